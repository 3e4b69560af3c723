"""Settings of conversations and people: session defaults, language, choices made by command."""
