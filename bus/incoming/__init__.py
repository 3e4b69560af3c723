"""What comes from the platforms: judged, committed, handed over."""
