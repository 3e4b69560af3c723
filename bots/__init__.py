"""Chat platforms, one package each: they receive events and send replies. They use only the bus."""
