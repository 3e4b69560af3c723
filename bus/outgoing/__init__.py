"""What is owed to the platforms: rows, sends, pacing, signs."""
