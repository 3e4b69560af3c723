"""A look at what waits at Telegram while nothing comes: a poller can be dead and answer all the same."""

import logging

import anyio
from telegram import Bot
from telegram.error import TelegramError

from bots.telegram.api import MALFORMED, TelegramTimeouts

_LOG = logging.getLogger(__name__)

PROBES = 2
"""Looks in a row that must find updates waiting: one of them may have come between poll and look."""


class UpdatesWithheld(TelegramError):
    """Updates wait at Telegram, and polling does not bring them."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} updates are withheld")
        self.waiting = waiting


class WebhookConflict(TelegramError):
    """A webhook is set for this bot, so that nothing comes by polling."""


class StallCheck:
    """Looks every now and then while long polls end with nothing."""

    def __init__(self, bot: Bot, timing: TelegramTimeouts) -> None:
        self._bot = bot
        self._timing = timing
        self._looked_at = anyio.current_time()
        self._found = 0

    async def next_hold_s(self, *, came: bool) -> int:
        """Return how long the next poll may wait, seconds.

        Args:
            came: Whether the last poll brought anything.

        Raises:
            Withheld, Taken: nothing can come this way.
        """
        if came:
            self._looked_at, self._found = anyio.current_time(), 0
        elif self._found or anyio.current_time() - self._looked_at >= self._timing.check_s:
            waiting = await self._waiting()
            self._looked_at = anyio.current_time()
            self._found = self._found + 1 if waiting else 0
            if self._found >= PROBES:
                raise UpdatesWithheld(waiting)
        return 0 if self._found else self._timing.poll_s

    async def _waiting(self) -> int:
        """Return how many updates wait, 0 if that is not told."""
        try:
            with anyio.fail_after(self._timing.total_s()):
                info = await self._bot.get_webhook_info()
        except (TelegramError, TimeoutError, *MALFORMED) as error:
            _LOG.info("telegram: what waits there is not told (%s)", type(error).__name__)
            return 0
        if info.url:
            raise WebhookConflict("A webhook is set")
        return info.pending_update_count
