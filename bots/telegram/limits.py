"""Telegram's rate limits, and how much of them optional calls may use."""

from collections.abc import Callable

from bots.common.limits import AccountLimiter, Windows

BOT_WINDOWS: Windows = {1.0: 30}
"""A bot makes some 30 calls a second (Bot FAQ)."""

GROUP_WINDOWS: Windows = {60.0: 20}
"""A group takes 20 messages a minute, edits included (Bot FAQ, "hitting limits")."""

PATCH_SHARE = 0.75
"""Part of a group's limit after which an answer stops growing: the rest is for final answers."""

TYPING_SHARE = 0.8
"""Likewise for "typing", which is sent 15 times a minute."""

TYPING_SHARE_BESIDE_PATCHES = 0.4
"""Likewise where growing answers show that work goes on."""

_MAX_WAIT_S = 30.0


def telegram_limiter(clock: Callable[[], float] | None = None) -> AccountLimiter:
    """Return the limiter of one bot."""
    return AccountLimiter(
        BOT_WINDOWS,
        chat_windows=lambda chat: GROUP_WINDOWS if is_group(chat) else {},
        max_wait_s=_MAX_WAIT_S,
        clock=clock,
    )


def is_group(chat: str) -> bool:
    """Return whether a chat id is a group's.

    >>> is_group("-100200"), is_group("42")
    (True, False)
    """
    return chat.startswith("-")
