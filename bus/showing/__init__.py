"""What a running turn shows: growing cards, previews, working messages."""
