"""The three fixtures that everybody needs come here."""
