"""The update loop: an update is confirmed to Telegram only after the bus has kept it.

The SDK's own updater confirms what merely waits in memory. Here the offset moves past an update when
`receive` has returned, and the next poll confirms it; whatever was not kept comes again, in order.
"""

import logging
from collections.abc import Sequence
from typing import Any

import anyio
from telegram import BotCommand, Update
from telegram.error import BadRequest, Conflict, InvalidToken, TelegramError

from bots.telegram.api import MALFORMED, PollingBot, Timing
from bots.telegram.capabilities import CHANNEL
from bots.telegram.errors import cause_name
from bots.telegram.inbound import Ignored, convert
from bots.telegram.speech import Me
from bots.telegram.state import State, trouble_of
from bus.errors import BusError
from bus.messages import Inbound
from bus.ports import CommandInfo, Intake, Link, Reason

_LOG = logging.getLogger(__name__)

_COMMANDS = 100
"""Most commands a bot can list (Bot API: setMyCommands)."""

_HELP_CHARACTERS = 256
"""Longest description of a command (Bot API: BotCommand)."""


class _Backoff:
    """Waits that double from one failure to the next."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._failures = 0

    def clear(self) -> None:
        self._failures = 0

    def next_s(self) -> float:
        wait = min(self._timing.retry_min_s * 2.0**self._failures, self._timing.retry_max_s)
        self._failures = min(self._failures + 1, 30)
        return wait


class Polling:
    """Greets Telegram, polls, and starts over after every failure."""

    def __init__(
        self, bot: PollingBot, state: State, *, commands: Sequence[CommandInfo], timing: Timing
    ) -> None:
        self._bot = bot
        self._state = state
        self._commands = commands
        self._names = frozenset(command.name for command in commands)
        self._timing = timing
        self._offset: int | None = None
        self._contested = False
        self._registered = False
        self._unread: int | None = None
        self._trouble = _Backoff(timing)
        self._refusals = _Backoff(timing)

    async def run(self, intake: Intake) -> None:
        """Receive until cancelled."""
        while True:
            try:
                me = await self._greet()
                await self._receive(intake, me)
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
        self._contested = isinstance(error, Conflict)
        if self._state.set(trouble.link, trouble.detail):
            _LOG.warning("telegram: %s", trouble.detail)
        return self._trouble.next_s() if trouble.retry_after_s is None else trouble.retry_after_s

    async def _greet(self) -> Me:
        """Learn who we are, make polling possible and list the commands."""
        with anyio.fail_after(3 * self._timing.total_s()):
            user = await self._bot.get_me()
            await self._forget_webhook()
            if not self._registered:
                await self._register()
        return Me(user_id=user.id, username=user.username or "")

    async def _forget_webhook(self) -> None:
        """Remove a webhook: while one is set, every poll is refused. What waits at Telegram stays."""
        try:
            await self._bot.delete_webhook(drop_pending_updates=False)
        except BadRequest as error:
            _LOG.warning("telegram: deleteWebhook was refused: %s", cause_name(error))

    async def _register(self) -> None:
        listed = [
            BotCommand(command.name, command.help[:_HELP_CHARACTERS])
            for command in self._commands[:_COMMANDS]
        ]
        try:
            await self._bot.set_my_commands(listed)
        except InvalidToken:
            raise
        except TelegramError as error:
            _LOG.warning("telegram: the command list was not taken: %s", cause_name(error))
        else:
            self._registered = True

    async def _receive(self, intake: Intake, me: Me) -> None:
        """Poll until something fails. The first poll asks for an answer at once, to be sure.

        While another process competes for the token, only a long poll that lasts proves the connection.
        """
        hold_s = self._timing.poll_s if self._contested else 0
        while True:
            with anyio.fail_after(self._timing.total_s(waiting_s=hold_s)):
                updates = await self._bot.poll(
                    self._offset, hold_s, patience_s=self._timing.answer_s
                )
            if hold_s:
                self._trouble.clear()
            await self._handle(updates, intake, me)
            hold_s = self._timing.poll_s

    async def _handle(self, updates: Sequence[Any], intake: Intake, me: Me) -> None:
        if updates:
            self._state.heard()
        refused = await self._take_all(updates, intake, me)
        detail = (
            f"Messages wait at Telegram: they are not accepted now ({refused})." if refused else ""
        )
        self._contested = False
        if self._state.health.link is not Link.CONNECTED:
            _LOG.info("telegram: connected as @%s", me.username)
        self._state.set(Link.CONNECTED, detail)
        if refused:
            await anyio.sleep(self._refusals.next_s())
        else:
            self._refusals.clear()

    async def _take_all(self, updates: Sequence[Any], intake: Intake, me: Me) -> str:
        """Hand updates over, in order; stop at the first that is not kept and return why."""
        numbered = [(raw, update_id) for raw in updates if (update_id := _id_of(raw)) is not None]
        if updates and not numbered:
            raise TelegramError("The updates have no ids")
        for raw, update_id in numbered:
            refused = await self._take(raw, update_id, intake, me)
            if refused:
                return refused
            self._offset = update_id + 1
        return ""

    async def _take(self, raw: dict[str, Any], update_id: int, intake: Intake, me: Me) -> str:
        meaning = self._read(raw, update_id, me)
        if isinstance(meaning, Ignored):
            intake.ignored(CHANNEL, meaning.reason, meaning.detail)
            return ""
        try:
            await intake.receive(meaning)
        except BusError as error:
            return self._refused(update_id, error)
        except Exception as error:  # noqa: BLE001  Whatever it was, nothing was kept: it must come again.
            return self._refused(update_id, error)
        return ""

    def _read(self, raw: dict[str, Any], update_id: int, me: Me) -> Inbound | Ignored:
        try:
            return convert(Update.de_json(raw, None), me, self._names)
        except MALFORMED as error:
            _LOG.warning("telegram: update %d cannot be read (%s)", update_id, type(error).__name__)
            return Ignored(reason=Reason.UNSUPPORTED, detail="unreadable update")

    def _refused(self, update_id: int, error: Exception) -> str:
        """Log, once an update, that it was not kept."""
        name = type(error).__name__
        if self._unread != update_id:
            self._unread = update_id
            _LOG.warning(
                "telegram: update %d was not accepted (%s); it will come again",
                update_id,
                name,
                exc_info=None if isinstance(error, BusError) else error,
            )
        return name


def _id_of(raw: object) -> int | None:
    update_id = raw.get("update_id") if isinstance(raw, dict) else None
    return update_id if isinstance(update_id, int) else None
