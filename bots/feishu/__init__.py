"""Feishu and Lark: receives events over the long connection or a webhook, and answers with streaming cards."""
