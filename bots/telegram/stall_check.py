"""Detects a stalled poll: polling may return nothing even though updates are waiting."""

import logging

import anyio
from telegram import Bot
from telegram.error import TelegramError

from bots.telegram.api import MALFORMED, TelegramTimeouts

log = logging.getLogger(__name__)

PROBES = 2
"""Number of consecutive checks that must find waiting updates before polling counts as stalled.

One check is not enough: an update may arrive between the poll and the check.
"""


class UpdatesWithheld(TelegramError):
    """Updates are waiting at Telegram, but polling does not return them."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} updates are withheld")
        self.waiting = waiting


class WebhookConflict(TelegramError):
    """A webhook is set for this bot, so polling returns nothing."""


class StallCheck:
    """Periodically asks Telegram for the number of waiting updates while polls return nothing."""

    def __init__(self, bot: Bot, timeouts: TelegramTimeouts) -> None:
        self._bot = bot
        self._timeouts = timeouts
        self._checked_at = anyio.current_time()
        self._found = 0

    async def next_hold_s(self, *, received: bool) -> int:
        """Return how long the next poll may wait, seconds.

        Args:
            received: Whether the last poll returned updates.

        Raises:
            UpdatesWithheld, WebhookConflict: Updates cannot arrive.
        """
        if received:
            self._checked_at, self._found = anyio.current_time(), 0
        elif self._found or anyio.current_time() - self._checked_at >= self._timeouts.check_s:
            waiting = await self._count_waiting()
            self._checked_at = anyio.current_time()
            self._found = self._found + 1 if waiting else 0
            if self._found >= PROBES:
                raise UpdatesWithheld(waiting)
        return 0 if self._found else self._timeouts.poll_s

    async def _count_waiting(self) -> int:
        """Return the number of waiting updates; 0 if Telegram does not say."""
        try:
            with anyio.fail_after(self._timeouts.total_s()):
                info = await self._bot.get_webhook_info()
        except (TelegramError, TimeoutError, *MALFORMED) as error:
            log.info("telegram: getWebhookInfo failed (%s)", type(error).__name__)
            return 0
        if info.url:
            raise WebhookConflict("A webhook is set")
        return info.pending_update_count
