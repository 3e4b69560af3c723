"""Chat models: from an entry of the configuration to a LangChain model, and the built-in demo."""
