"""Slack, Telegram and Feishu as local servers, as strict as the real ones. The tests use them too.

Independent of the SDKs and of the adapters: nothing here imports `bots` or `bus`.
"""

WITHIN_S = 60.0
"""How long to wait for something to reach a server, seconds. Generous, because a busy machine is slow."""
