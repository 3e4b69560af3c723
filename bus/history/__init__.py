"""What was said before, and how it is taken back."""
