"""Feishu and Lark: receives over the long connection or a webhook, answers with streaming cards."""
