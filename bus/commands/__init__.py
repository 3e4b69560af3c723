"""The command table: name, help, handler; /help is generated from it."""
