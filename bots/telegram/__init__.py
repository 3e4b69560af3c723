"""Telegram: python-telegram-bot on the one event loop."""
