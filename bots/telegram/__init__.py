"""Telegram, with python-telegram-bot on the service's event loop."""
