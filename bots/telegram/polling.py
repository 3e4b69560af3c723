"""Long polling: confirms an update to Telegram only after the bus has committed it.

The SDK's own updater confirms updates that are still waiting in memory. Here the offset of the next poll stays at the
oldest unhandled update (`update_queue.py`), so Telegram sends uncommitted updates again.
"""

import logging
from collections.abc import Sequence

import anyio
from telegram import Bot
from telegram.error import BadRequest, Conflict, TelegramError

from bots.common.health import HealthTracker, describe_refusal
from bots.telegram.api import MALFORMED, TelegramBot, TelegramTimeouts
from bots.telegram.errors import cause_name
from bots.telegram.receiver import update_id_of
from bots.telegram.update_queue import UpdateQueue
from bus.platform import Intake

log = logging.getLogger(__name__)

_FIRST_RECHECK_S = 0.1
_MAX_RECHECK_S = 1.0
"""How often to ask Telegram for updates of other chats while a chat is slow, seconds.

Telegram returns unconfirmed updates at once, so polls need a pause.
"""


class UpdatePoller:
    """Polls for one bot, in one process of the service at a time, because Telegram permits only one poller.

    Args:
        queue: Handles the updates.
        intake: Knows other processes.
        health: Shows the state of the connection.
        timeouts: Time limits.
        allowed: Kinds of updates.
    """

    def __init__(
        self,
        queue: UpdateQueue,
        intake: Intake,
        health: HealthTracker,
        *,
        timeouts: TelegramTimeouts,
        allowed: Sequence[str],
    ) -> None:
        self._queue = queue
        self._intake = intake
        self._health = health
        self._timeouts = timeouts
        self._allowed = allowed
        self._contested = False

    async def prepare(self, bot: TelegramBot) -> None:
        """Remove a webhook, because Telegram refuses every poll while one is set. Waiting updates stay."""
        try:
            await bot.delete_webhook(drop_pending_updates=False)
        except BadRequest as error:
            log.warning("telegram: deleteWebhook was refused: %s", cause_name(error))

    async def receive(self, bot: TelegramBot) -> None:
        """Poll until something fails. First wait until no other process of the service polls.

        The first poll returns at once, to check the connection. While another process competes for the token, only a
        long poll that is not interrupted shows that the connection works.
        """
        account = bot.token.partition(":")[0]
        async with self._intake.exclusive(f"telegram {account}", self._show_waiting):
            await self._poll_on(bot)

    async def _poll_on(self, bot: TelegramBot) -> None:
        hold_s = self._timeouts.poll_s if self._contested else 0
        recheck_s = _FIRST_RECHECK_S
        stall_check = StallCheck(bot, self._timeouts)
        while True:
            updates = await self._poll(bot, hold_s)
            new = self._queue.submit(updates)
            if new:
                self._health.mark_event()
            recheck_s = _FIRST_RECHECK_S if new else min(2 * recheck_s, _MAX_RECHECK_S)
            idle = await self._queue.wait_idle(recheck_s)
            self._show()
            hold_s = await stall_check.next_hold_s(received=bool(updates)) if idle else 0

    async def _poll(self, bot: TelegramBot, hold_s: int) -> list[tuple[int, dict[str, object]]]:
        try:
            with anyio.fail_after(self._timeouts.total_s(waiting_s=hold_s)):
                updates = await bot.poll(
                    self._queue.begin_poll(),
                    hold_s,
                    grace_s=self._timeouts.answer_s,
                    allowed=self._allowed,
                )
        except Conflict as error:
            self._contested = "webhook" not in error.message.lower()
            raise
        self._contested = False
        numbered = [(number, raw) for raw in updates if (number := update_id_of(raw)) is not None]
        if updates and not numbered:
            raise TelegramError("The updates have no IDs")
        return numbered

    def _show_waiting(self) -> None:
        self._health.mark_connected("Another process of the service receives the messages.")

    def _show(self) -> None:
        refusal = self._queue.refusal
        self._health.mark_connected(describe_refusal(refusal) if refusal else "")


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
