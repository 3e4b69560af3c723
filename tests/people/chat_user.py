"""A person in one chat with the bot, on any simulated platform: what they do and see there."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bus.locales import LANGUAGES
from tests.eventually import WITHIN_S, eventually

WORKING = frozenset(words.working for words in LANGUAGES.values())
"""The text of a progress notice."""


class CallFailure(StrEnum):
    """A failure of one of the bot's calls."""

    REFUSED = "refused"  # A rate limit, with the time to wait.
    FAILS = "fails"  # HTTP 5xx
    CUT_BEFORE = "cut before"  # The connection breaks before the call takes effect.
    CUT_AFTER = "cut after"  # The connection breaks after it took effect.
    SLOW = "slow"


class Arrival(StrEnum):
    """Whether the bot has acknowledged an event."""

    CONFIRMED = "confirmed"
    WAITING = "waiting"
    GIVEN_UP = "given up"  # the platform stopped sending it
    NOT_SENT = "not sent"  # the platform does not tell bots of it


@dataclass(frozen=True, slots=True)
class SentEvent:
    """An action of a person.

    Attributes:
        message_id: The platform's ID of the message, or of a slash command's event.
        arrival: Returns whether the bot has acknowledged it now.
        answers: Returns answers that only its author sees, such as those to a slash command.
    """

    message_id: str
    arrival: Callable[[], Arrival]
    answers: Callable[[], list["ShownMessage"]] = list


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """A message of the bot as people see it now.

    Attributes:
        id: The platform's ID, as stored in the outbox.
        buttons: The token of each button, by label.
        file: Name of its file; "" = none.
        unfinished: Whether it says that work continues.
        misplaced: Whether it is in this chat but not in the person's thread.
    """

    id: str
    text: str
    buttons: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    unfinished: bool = False
    misplaced: bool = False


class ChatUser(ABC):
    """A person in one conversation with the bot: a private chat, a topic, a thread or a group.

    Attributes:
        name: The kind of conversation.
        channel: The platform's name, which most configurations also use for the bot's section.
        chat: The chat's ID in the journal.
    """

    name: str
    channel: str
    chat: str

    @abstractmethod
    async def send(self, text: str, *, aside: bool = False) -> SentEvent:
        """Send a message to the bot, with a mention if needed. `aside`: send it to the other people in a group."""

    async def enter(self, text: str) -> SentEvent:
        """Send a text as typed into the app, which may interpret it as the app's own slash command."""
        return await self.send(text)

    @abstractmethod
    async def send_file(self, name: str, content: bytes) -> SentEvent:
        """Send a file without words, in private."""

    @abstractmethod
    async def edit(self, message_id: str, text: str) -> SentEvent:
        """Edit a message."""

    @abstractmethod
    async def delete(self, message_id: str) -> SentEvent:
        """Delete a message."""

    @abstractmethod
    async def press(self, message: ShownMessage, label: str) -> SentEvent:
        """Press a button that is or was below a message of the bot."""

    @abstractmethod
    def shown(self) -> list[ShownMessage]:
        """Return the bot's messages, oldest first."""

    @abstractmethod
    def working_signs(self, message_id: str) -> list[str]:
        """Return the bot's working reactions to a message without a done or failure reaction."""

    def has_failed_sign(self, message_id: str) -> bool:
        """Return whether the bot has reacted to a message with its failure reaction."""
        del message_id
        return False

    @abstractmethod
    def lose_next_response(self) -> None:
        """Break the connection of the bot's next message after it is posted and before the response."""

    def bot_messages(self) -> list[str]:
        """Return the current texts of the bot's messages in this conversation, oldest first.

        Leaves out progress notices.
        """
        found = (message for message in self.shown() if not message.misplaced)
        return [message.text for message in found if message.text not in WORKING]

    def misplaced_messages(self) -> list[str]:
        """Return the bot's messages elsewhere in this chat."""
        found = (message for message in self.shown() if message.misplaced)
        return [message.text for message in found if message.text not in WORKING]

    def button_labels(self) -> list[str]:
        """Return the labels of all buttons in this conversation, oldest first."""
        return [label for message in self.shown() for label in message.buttons]

    async def press_newest(self, label: str) -> None:
        """Press the newest button with a label."""
        found = (message for message in reversed(self.shown()) if label in message.buttons)
        await self.press(next(found), label)

    async def wait_and_press(self, label: str, *, within_s: float = WITHIN_S) -> None:
        """Wait for a button, then press it."""
        await eventually(self.button_labels, lambda labels: label in labels, within_s=within_s)
        await self.press_newest(label)

    async def expect_messages(self, *expected: str, within_s: float = WITHIN_S) -> None:
        """Wait until the bot's messages in this conversation are exactly these."""
        await eventually(self.bot_messages, lambda shown: shown == [*expected], within_s=within_s)

    async def wait_for_message(self, *parts: str, within_s: float = WITHIN_S) -> str:
        """Wait for a message of the bot that contains all these parts; return the first."""

        def matching(shown: list[str]) -> list[str]:
            return [text for text in shown if all(part in text for part in parts)]

        return matching(await eventually(self.bot_messages, matching, within_s=within_s))[0]
