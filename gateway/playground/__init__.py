"""Slack, Telegram and Feishu as local servers, as strict as the real ones. The tests use them too.

Independent of the SDKs and of the adapters: nothing here imports `bots` or `bus`.
"""

WITHIN_S = 60.0
"""How long a wait for what a server sees may take, seconds. Generous, because a busy machine is slow."""
