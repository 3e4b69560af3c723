"""Chat models: built from the configuration, plus the built-in demo."""
