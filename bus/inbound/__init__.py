"""From a platform event to a committed message: deduplication, albums, edits, button presses, routing."""
