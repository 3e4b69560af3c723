"""Feishu and Lark: receives over the long connection or a webhook, and answers with streaming cards."""
