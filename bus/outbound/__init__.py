"""From a reply to what people see: outbox delivery, pacing, streaming messages, indicators."""
