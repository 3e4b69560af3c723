"""Chat platforms, one package each. They receive events and send replies, and they import only the bus."""
