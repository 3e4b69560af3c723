"""A simulated Telegram: the Bot API with the chats behind it."""
