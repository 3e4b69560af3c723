"""From a platform event to a committed message: deduplication, gestures, edits, button presses, routing."""
