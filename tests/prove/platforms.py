"""What a proof needs of a simulated platform: places where people write, what they see there, and its faults."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from tests.prove.plan import Fault, PlaceTraits

STRANGER_WEIGHT = 0.3


class Arrival(StrEnum):
    """Whether the bot acknowledged what a platform told it."""

    CONFIRMED = "confirmed"
    WAITING = "waiting"
    GIVEN_UP = "given up"  # the platform stopped sending it
    NOT_SENT = "not sent"  # the platform does not tell bots of it


@dataclass(frozen=True, slots=True)
class SentEvent:
    """Something that a person did.

    Attributes:
        message_id: The platform's; of a slash command, the id of its event.
        arrival: Looks at the platform's state now.
        answers: Finds what was answered to it alone, as to a slash command.
    """

    message_id: str
    arrival: Callable[[], Arrival]
    answers: Callable[[], list["ShownMessage"]] = list


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """A message of the bot as people see it now.

    Attributes:
        id: The platform's, as the outbox notes it.
        buttons: By label, what a press of one says.
        file: Name of the file that it carries; "" for none.
        unfinished: Whether it says that work goes on.
    """

    id: str
    text: str
    buttons: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    unfinished: bool = False


class Place(ABC):
    """Where a person and the bot write to each other: a private chat, a topic, a thread.

    Attributes:
        chat: The chat as the journal names it.
        traits: What the plan knows of it.
    """

    def __init__(self, chat: str, traits: PlaceTraits) -> None:
        self.chat = chat
        self.traits = traits

    @property
    def name(self) -> str:
        """Unique among all places."""
        return self.traits.name

    @abstractmethod
    async def say(self, text: str, *, aside: bool = False) -> SentEvent:
        """Write to the bot; `aside` = in a group, to the others."""

    @abstractmethod
    async def send_file(self, name: str, content: bytes) -> SentEvent:
        """Send a file without words, in private."""

    @abstractmethod
    async def edit(self, message_id: str, text: str) -> SentEvent:
        """Change a message."""

    @abstractmethod
    async def delete(self, message_id: str) -> SentEvent:
        """Take a message away."""

    @abstractmethod
    async def press(self, message: ShownMessage, label: str) -> SentEvent:
        """Press a button that is, or was, below a message of the bot."""

    @abstractmethod
    def shown(self) -> list[ShownMessage]:
        """Return the bot's messages, oldest first."""

    @abstractmethod
    def working_signs(self, message_id: str) -> list[str]:
        """Return the bot's reactions that say that a message is worked on, unless another says how that ended."""

    def has_failed_sign(self, message_id: str) -> bool:
        """Return whether a reaction of the bot says that a message failed."""
        del message_id
        return False


class SimulatedPlatform(ABC):
    """A platform's server in this process, with one bot.

    Attributes:
        channel: Name of the bot's section in the configuration.
        places: Where people write to it.
        calls_webhook: Whether the platform calls the service, instead of being connected to.
    """

    channel: str
    calls_webhook: bool
    places: Sequence[Place]

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    @property
    @abstractmethod
    def section(self) -> dict[str, Any]:
        """The channel's section of the configuration."""

    @abstractmethod
    def call_at(self, service_url: str) -> None:
        """Call the service's webhooks below this address, instead of being connected to; before `section` is read."""

    @abstractmethod
    def forget_requests(self) -> None:
        """Drop the record of the bot's requests, which a long proof has no memory for."""

    @property
    @abstractmethod
    def violations(self) -> list[str]:
        """Requests of the bot that the platform's documents forbid."""

    @abstractmethod
    def fail_calls(self, fault: Fault) -> str:
        """Let the next calls of a method fail as the fault says; return the method's name."""

    @abstractmethod
    async def cut_connections(self) -> None:
        """Break every open connection."""

    @abstractmethod
    async def go_offline(self) -> None:
        """Accept no connections."""

    @abstractmethod
    async def come_back(self) -> None:
        """Accept connections again."""


def steers(section: Mapping[str, Any]) -> bool:
    """Return whether a channel's section says that messages are injected into the run before them."""
    return dict(section.get("session", {})).get("busy") == "steer"


def interrupts(section: Mapping[str, Any]) -> bool:
    """Return whether a channel's section says that a message ends the turn before it."""
    return dict(section.get("session", {})).get("busy") == "interrupt"


def stranger_traits(channel: str, *, can_edit: bool = True, can_delete: bool = True) -> PlaceTraits:
    """Return the traits of a private chat of somebody who may not use the bot."""
    return PlaceTraits(
        name=f"{channel} stranger",
        channel=channel,
        private=True,
        stranger=True,
        weight=STRANGER_WEIGHT,
        can_edit=can_edit,
        can_delete=can_delete,
    )


def pick(choices: Sequence[str], share: float) -> str:
    """Return the choice at a share (0 to 1) of a list."""
    return choices[min(int(share * len(choices)), len(choices) - 1)]
