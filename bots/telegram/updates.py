"""One update at a time from Telegram to the bus, however it came in."""

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, assert_never

from telegram import Update

from bots.telegram.api import MALFORMED
from bots.telegram.capabilities import CHANNEL
from bots.telegram.events import (
    BotAddedEvent,
    CallbackQueryEvent,
    ChatMigratedEvent,
    DraftStoppedEvent,
    TelegramEvent,
    parse_update,
)
from bots.telegram.inbound import IgnoredUpdate
from bots.telegram.mentions import TelegramIdentity
from bus.errors import BusError
from bus.messages import ButtonPress, InboundMessage, MessageEdit, PressResponse
from bus.platform import Disposition, Intake

_LOG = logging.getLogger(__name__)

_MOVES = 100
"""Groups that became supergroups lately: Telegram may tell of them as of groups that the bot was added to."""

_PATIENCE = 4
"""How often an update is handed over that breaks the program; then those behind it have their turn."""

_BROKEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What an update may raise that no waiting cures, unlike a full disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What an update may need besides the bus.

    Attributes:
        reply: Answers the query of a pressed button; returns at once.
        stop_token: Returns the token of the button that a chat's draft of this number stands for; "" if none.
        greet: Says hello to a group, in a language; returns at once.
    """

    reply: Callable[[str, PressResponse], None]
    stop_token: Callable[[str, int], str]
    greet: Callable[[str, str], None]


class UpdateHandler:
    """Hands updates over, and says whether Telegram may forget them.

    Args:
        intake: Where messages go.
        commands: Names of our commands.
        around: What else is needed.
    """

    def __init__(self, intake: Intake, commands: Collection[str], around: Around) -> None:
        self._intake = intake
        self._commands = commands
        self._around = around
        self._moved_to: deque[str] = deque(maxlen=_MOVES)
        self._refusals: Counter[int] = Counter()

    async def handle(self, raw: dict[str, Any], update_id: int, me: TelegramIdentity) -> str:
        """Hand one update over; return why it was not kept, or ""."""
        meaning = self._read(raw, update_id, me)
        try:
            await self._hand_over(meaning)
        except Exception as error:  # noqa: BLE001  Whatever it was, nothing was kept: it must come again.
            return self._refused(update_id, error)
        self._refusals.pop(update_id, None)
        return ""

    async def _hand_over(self, meaning: TelegramEvent) -> None:
        match meaning:
            case InboundMessage():
                await self._intake.receive(meaning)
            case MessageEdit():
                await self._intake.handle_edit(meaning)
            case CallbackQueryEvent():
                await self._press(meaning)
            case DraftStoppedEvent():
                await self._halt(meaning)
            case ChatMigratedEvent():
                self._moved_to.append(meaning.new_chat)
                await self._intake.migrate_chat(
                    CHANNEL, meaning.workspace, meaning.old_chat, meaning.new_chat
                )
            case BotAddedEvent():
                self._greet(meaning)
            case IgnoredUpdate():
                self._intake.report_ignored(CHANNEL, meaning.reason, meaning.detail)
            case _:
                assert_never(meaning)

    def _greet(self, joined: BotAddedEvent) -> None:
        self._intake.report_ignored(
            CHANNEL, Disposition.UNSUPPORTED, "the bot was added to a group"
        )
        if joined.chat not in self._moved_to:  # There it is known, under another id.
            self._around.greet(joined.chat, joined.language)

    async def _press(self, pressed: CallbackQueryEvent) -> None:
        if pressed.press is None:
            self._intake.report_ignored(
                CHANNEL, Disposition.UNSUPPORTED, "a button of somebody else's"
            )
            self._around.reply(pressed.query_id, PressResponse())
            return
        self._around.reply(pressed.query_id, await self._intake.handle_button_press(pressed.press))

    async def _halt(self, halted: DraftStoppedEvent) -> None:
        """Act on a stopped draft as on its stop button; there is no query to answer."""
        press: ButtonPress = halted.press
        token = self._around.stop_token(press.key.chat, halted.draft_id)
        if token:
            await self._intake.handle_button_press(replace(press, token=token))
        else:
            self._intake.report_ignored(
                CHANNEL, Disposition.UNSUPPORTED, "a draft that nobody writes any more"
            )

    def _read(self, raw: dict[str, Any], update_id: int, me: TelegramIdentity) -> TelegramEvent:
        try:
            return parse_update(Update.de_json(raw, None), me, self._commands)
        except MALFORMED as error:
            _LOG.warning("telegram: update %d cannot be read (%s)", update_id, type(error).__name__)
            return IgnoredUpdate(reason=Disposition.UNSUPPORTED, detail="unreadable update")

    def _refused(self, update_id: int, error: Exception) -> str:
        """Log, once an update, that it was not kept; return why, or "" if it is given up."""
        name = type(error).__name__
        trace = None if isinstance(error, BusError) else error
        self._refusals[update_id] += 1
        if isinstance(error, _BROKEN) and self._refusals[update_id] >= _PATIENCE:
            del self._refusals[update_id]
            _LOG.error("telegram: update %d is given up (%s)", update_id, name, exc_info=trace)
            self._intake.report_ignored(
                CHANNEL, Disposition.UNSUPPORTED, "an update that cannot be handled"
            )
            return ""
        if self._refusals[update_id] == 1:
            _LOG.warning(
                "telegram: update %d was not accepted (%s); it will come again",
                update_id,
                name,
                exc_info=trace,
            )
        return name


def update_id_of(raw: object) -> int | None:
    """Return an update's number."""
    update_id = raw.get("update_id") if isinstance(raw, dict) else None
    return update_id if isinstance(update_id, int) else None
