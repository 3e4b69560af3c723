"""Parses Telegram updates, passes them to the bus, and returns whether Telegram may forget them."""

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, assert_never

from bots.common.events import IgnoredEvent
from bots.common.greeting import Greeting
from bots.telegram.events import (
    BotAddedEvent,
    CallbackQueryEvent,
    ChatMigratedEvent,
    DraftStoppedEvent,
    TelegramEvent,
    parse_update,
)
from bots.telegram.identity import TelegramIdentity
from bots.telegram.payload import UNREADABLE, Json, as_line, as_object
from bus.errors import BusError
from bus.messages import ConversationKey, InboundMessage, MessageEdit, PressResponse
from bus.platform import Disposition, Intake

log = logging.getLogger(__name__)

_DETAIL_CHARS = 80
_MAX_MIGRATIONS = 100
"""Maximum number of recent supergroup migrations to remember.

Telegram may report that the bot was added to such a group.
"""

_MAX_ATTEMPTS = 4
"""Maximum number of attempts for an update that causes an internal error. Then the chat's next update is handled."""

_PROGRAM_ERRORS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""Exceptions that occur again at each retry of an update, unlike a full disk."""


class TelegramReceiver:
    """Passes updates to the bus, and returns whether Telegram may forget them.

    Args:
        intake: Receives messages, presses, edits and migrations.
        commands: Names of our commands.
        answer: Answers a callback query. Returns at once.
        stop_token: Returns the token of the stop button of a chat's draft with this ID; "" = unknown.
        greeting: Greets groups that the bot is added to.

    Attributes:
        identity: The bot's identity, set by the first connection.
    """

    def __init__(
        self,
        intake: Intake,
        commands: Collection[str],
        *,
        answer: Callable[[str, PressResponse], None],
        stop_token: Callable[[str, int], str],
        greeting: Greeting,
    ) -> None:
        self._intake = intake
        self._commands = commands
        self._answer = answer
        self._stop_token = stop_token
        self._greeting = greeting
        self._migrated_to: deque[str] = deque(maxlen=_MAX_MIGRATIONS)
        self._failures: Counter[int] = Counter()
        self._topics = TopicNames()
        self.identity: TelegramIdentity | None = None

    async def handle(self, raw: dict[str, Any], update_id: int) -> str:
        """Pass one update to the bus. Return why it was not accepted, or "". Never raises."""
        if self.identity is None:
            return "not connected yet"  # Without the bot's own name, mentions cannot be recognized.
        event = self._parse(raw, update_id, self.identity)
        try:
            await self._dispatch(event, self.identity.channel)
        except Exception as error:  # noqa: BLE001  Nothing was stored, so the update must be repeated.
            return self._record_failure(update_id, error)
        self._failures.pop(update_id, None)
        return ""

    async def _dispatch(self, event: TelegramEvent, channel: str) -> None:
        match event:
            case InboundMessage():
                await self._intake.receive(event)
            case MessageEdit():
                await self._intake.handle_edit(event)
            case CallbackQueryEvent():
                await self._handle_press(event, channel)
            case DraftStoppedEvent():
                await self._handle_draft_stopped(event, channel)
            case ChatMigratedEvent():
                self._migrated_to.append(event.new_chat)
                await self._intake.migrate_chat(
                    channel, event.workspace, event.old_chat, event.new_chat
                )
            case BotAddedEvent():
                await self._handle_bot_added(event, channel)
            case IgnoredEvent():
                self._intake.report_ignored(channel, event.reason, event.detail[:_DETAIL_CHARS])
            case _:
                assert_never(event)

    async def _handle_bot_added(self, event: BotAddedEvent, channel: str) -> None:
        self._intake.report_ignored(
            channel, Disposition.UNSUPPORTED, "the bot was added to a group"
        )
        if event.chat in self._migrated_to:  # The bot is already in that group.
            return
        key = ConversationKey(channel=channel, workspace=event.workspace, chat=event.chat)
        await self._intake.handle_bot_added(key, event.added_by)
        self._greeting.greet_group(
            event.chat, event_id=event.event_id, language=event.language or "en"
        )

    async def _handle_press(self, event: CallbackQueryEvent, channel: str) -> None:
        if event.press is None:
            self._intake.report_ignored(channel, Disposition.UNSUPPORTED, "a button of another bot")
            self._answer(event.query_id, PressResponse())
            return
        self._answer(event.query_id, await self._intake.handle_button_press(event.press))

    async def _handle_draft_stopped(self, event: DraftStoppedEvent, channel: str) -> None:
        """Handle a stopped draft like a press of its stop button. There is no query to answer."""
        token = self._stop_token(event.press.key.chat, event.draft_id)
        if token:
            await self._intake.handle_button_press(replace(event.press, token=token))
        else:
            self._intake.report_ignored(
                channel, Disposition.UNSUPPORTED, "a draft that is not being written"
            )

    def _parse(
        self, raw: dict[str, Any], update_id: int, identity: TelegramIdentity
    ) -> TelegramEvent:
        try:
            return self._name_topic(raw, parse_update(raw, identity, self._commands))
        except UNREADABLE as error:
            log.warning(
                "telegram: update %d cannot be parsed (%s)", update_id, type(error).__name__
            )
            return IgnoredEvent("unreadable update")

    def _name_topic(self, raw: dict[str, Any], event: TelegramEvent) -> TelegramEvent:
        """Remember the name of a topic, and add it to messages that lack it."""
        self._topics.learn(raw.get("message"))
        if not isinstance(event, InboundMessage):
            return event
        target = event.reply_target
        name = self._topics.name_of(target.chat, target.thread, event.topic_title)
        return replace(event, topic_title=name)

    def _record_failure(self, update_id: int, error: Exception) -> str:
        """Log once per update that it was not accepted. Return why, or "" if the update is dropped."""
        name = type(error).__name__
        trace = None if isinstance(error, BusError) else error
        self._failures[update_id] += 1
        if isinstance(error, _PROGRAM_ERRORS) and self._failures[update_id] >= _MAX_ATTEMPTS:
            del self._failures[update_id]
            log.error("telegram: update %d is dropped (%s)", update_id, name, exc_info=trace)
            channel = self.identity.channel if self.identity else ""
            self._intake.report_ignored(
                channel, Disposition.UNSUPPORTED, "an update that cannot be handled"
            )
            return ""
        if self._failures[update_id] == 1:
            log.warning(
                "telegram: update %d was not accepted (%s); retrying",
                update_id,
                name,
                exc_info=trace,
            )
        return name


def update_id_of(raw: object) -> int | None:
    """Return an update's number."""
    update_id = raw.get("update_id") if isinstance(raw, dict) else None
    return update_id if isinstance(update_id, int) else None


_MAX_NAMES = 1_000
"""Maximum number of topics to remember. The most recently named ones are kept."""


class TopicNames:
    """Remembers the names of topics, by chat and topic, while the process runs."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}

    def learn(self, message: object) -> None:
        """Remember the name of a topic in a service message."""
        said = as_object(message)
        named = as_object(said.get("forum_topic_created")) or as_object(
            said.get("forum_topic_edited")
        )
        if name := as_line(named.get("name")):
            self._keep(_place(said), name)

    def name_of(self, chat: str, thread: str, told: str) -> str:
        """Return a topic's name.

        Args:
            chat: The chat.
            thread: The topic; "" = outside of topics.
            told: The topic's first name, as the message itself contains it, or "".
        """
        if not thread:
            return told
        if told and (chat, thread) not in self._names:
            self._keep((chat, thread), told)
        return self._names.get((chat, thread), "")

    def _keep(self, place: tuple[str, str], name: str) -> None:
        self._names.pop(place, None)
        self._names[place] = name
        if len(self._names) > _MAX_NAMES:
            del self._names[next(iter(self._names))]


def _place(message: Json) -> tuple[str, str]:
    chat = as_object(message.get("chat")).get("id")
    # A topic has the ID of the message that opened it.
    return str(chat), str(message.get("message_thread_id") or message.get("message_id"))
