"""The process of `parley serve`: port, signals, HTTP server and startup report. Also the chat without a port."""
