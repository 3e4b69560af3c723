"""Telegram's rate limits, and how much of them optional calls may use."""

from collections.abc import Callable

import anyio

from bots.common.learned_rate import LearnedRate
from bots.common.limits import AccountLimiter, Windows

DOCUMENTED_PER_S = 30
"""Messages a second that Telegram names for bulk notifications, "or so" (Bot FAQ); answers are none."""

FIRST_PER_S = 2 * DOCUMENTED_PER_S
"""Calls a second of a bot, until Telegram answers 429: only that tells what it takes of this bot."""

LEAST_PER_S = DOCUMENTED_PER_S / 3
MOST_PER_S = 1_000
"""What Telegram takes of a bot that pays for broadcasts (Bot FAQ)."""

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
    clock = clock or anyio.current_time
    return AccountLimiter(
        {},
        learned=LearnedRate(first=FIRST_PER_S, least=LEAST_PER_S, most=MOST_PER_S, clock=clock),
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
