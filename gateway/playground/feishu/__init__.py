"""A simulated Feishu: the open API, cards, the long connection and webhooks."""
