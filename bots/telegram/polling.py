"""The update loop: an update is confirmed to Telegram only after the bus has kept it.

The SDK's own updater confirms what merely waits in memory. Here the offset moves past an update when
`receive` has returned, and the next poll confirms it; whatever was not kept comes again, in order.
"""

import logging
from collections.abc import Sequence
from typing import Any

import anyio
from telegram.error import BadRequest, TelegramError

from bots.telegram.api import ALLOWED_UPDATES, MALFORMED, TelegramBot, TelegramTimeouts
from bots.telegram.errors import cause_name
from bots.telegram.failures import OTHER_POLLER, State, trouble_of
from bots.telegram.mentions import TelegramIdentity
from bots.telegram.setup import Backoff, get_identity, register_commands
from bots.telegram.stall_check import StallCheck
from bots.telegram.updates import UpdateHandler, update_id_of
from bus.platform import CommandInfo, ConnectionState

_LOG = logging.getLogger(__name__)


class UpdatePoller:
    """Greets Telegram, polls, and starts over after every failure."""

    def __init__(
        self,
        bot: TelegramBot,
        state: State,
        *,
        commands: Sequence[CommandInfo],
        timing: TelegramTimeouts,
        allowed: Sequence[str] = ALLOWED_UPDATES,
    ) -> None:
        self._bot = bot
        self._state = state
        self._commands = commands
        self._timing = timing
        self._allowed = allowed
        self._offset: int | None = None
        self._contested = False
        self._registered = False
        self._trouble = Backoff(timing)
        self._refusals = Backoff(timing)

    async def run(self, updates: UpdateHandler) -> None:
        """Receive until cancelled."""
        while True:
            try:
                me = await self._greet()
                await self._receive(updates, me)
            except (TelegramError, TimeoutError, *MALFORMED) as error:
                wait = self._note(error)
                await anyio.sleep(wait)

    def _note(self, error: Exception) -> float:
        """Note a failure; return how long to wait, seconds."""
        trouble = trouble_of(
            error,
            base_url=self._bot.base_url.removesuffix(self._bot.token),
            refused_s=self._timing.refused_s,
        )
        self._contested = trouble.detail == OTHER_POLLER
        if self._state.set(trouble.link, trouble.detail):
            _LOG.warning("telegram: %s", trouble.detail)
        return self._trouble.next_s() if trouble.retry_after_s is None else trouble.retry_after_s

    async def _greet(self) -> TelegramIdentity:
        """Learn who we are, make polling possible and list the commands."""
        with anyio.fail_after(3 * self._timing.total_s()):
            me = await get_identity(self._bot)
            await self._forget_webhook()
            if not self._registered:
                self._registered = await register_commands(self._bot, self._commands)
        return me

    async def _forget_webhook(self) -> None:
        """Remove a webhook: while one is set, every poll is refused. What waits at Telegram stays."""
        try:
            await self._bot.delete_webhook(drop_pending_updates=False)
        except BadRequest as error:
            _LOG.warning("telegram: deleteWebhook was refused: %s", cause_name(error))

    async def _receive(self, taker: UpdateHandler, me: TelegramIdentity) -> None:
        """Poll until something fails. The first poll asks for an answer at once, to be sure.

        While another process competes for the token, only a long poll that lasts proves the connection.
        """
        hold_s = self._timing.poll_s if self._contested else 0
        watch = StallCheck(self._bot, self._timing)
        while True:
            with anyio.fail_after(self._timing.total_s(waiting_s=hold_s)):
                updates = await self._bot.poll(
                    self._offset,
                    hold_s,
                    patience_s=self._timing.answer_s,
                    allowed=self._allowed,
                )
            if hold_s:
                self._trouble.clear()
            await self._handle(updates, taker, me)
            hold_s = await watch.next_hold_s(came=bool(updates))

    async def _handle(
        self, updates: Sequence[Any], taker: UpdateHandler, me: TelegramIdentity
    ) -> None:
        if updates:
            self._state.heard()
        refused = await self._take_all(updates, taker, me)
        detail = (
            f"Messages wait at Telegram: they are not accepted now ({refused})." if refused else ""
        )
        self._contested = False
        if self._state.health.state is not ConnectionState.CONNECTED:
            _LOG.info("telegram: connected as @%s", me.username)
        self._state.set(ConnectionState.CONNECTED, detail)
        if refused:
            await anyio.sleep(self._refusals.next_s())
        else:
            self._refusals.clear()

    async def _take_all(
        self, updates: Sequence[Any], taker: UpdateHandler, me: TelegramIdentity
    ) -> str:
        """Hand updates over, in order; stop at the first that is not kept and return why."""
        numbered = [
            (raw, update_id) for raw in updates if (update_id := update_id_of(raw)) is not None
        ]
        if updates and not numbered:
            raise TelegramError("The updates have no ids")
        for raw, update_id in numbered:
            refused = await taker.handle(raw, update_id, me)
            if refused:
                return refused
            self._offset = update_id + 1
        return ""
