"""The process of `parley serve`: port, signals, HTTP server and start-up report; and the chat without a port."""
