"""`parley serve` as a process: the port, the signals, the server, its first words; and the chat without a port."""
