"""The interface of a simulated platform for a proof: places where people write, what they see, and faults."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tests.people.chat_user import CallFailure, ChatUser
from tests.prove.plan import Fault, FaultKind, PlaceTraits

STRANGER_WEIGHT = 0.3

FAILURES = {
    FaultKind.CALLS_REFUSED: CallFailure.REFUSED,
    FaultKind.CALLS_FAIL: CallFailure.FAILS,
    FaultKind.CALLS_CUT_BEFORE: CallFailure.CUT_BEFORE,
    FaultKind.CALLS_CUT_AFTER: CallFailure.CUT_AFTER,
    FaultKind.CALLS_SLOW: CallFailure.SLOW,
}


@dataclass(frozen=True, slots=True)
class Place:
    """A person in one chat of a proof.

    Attributes:
        user: Their actions, and what they see.
        traits: The properties that the plan depends on.
    """

    user: ChatUser
    traits: PlaceTraits

    @property
    def name(self) -> str:
        """The place's unique name."""
        return self.traits.name


class SimulatedPlatform(ABC):
    """A platform's server in this process, with one bot.

    Attributes:
        channel: Name of the bot's section in the configuration.
        places: The places where people write to it.
        calls: The bot's calls that may fail. A call listed several times fails more often.
        calls_webhook: Whether the platform calls the service, instead of the service connecting to it.
    """

    channel: str
    calls: Sequence[str]
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
        """Call the service's webhooks below this address, instead of accepting connections.

        Call this before you read `section`.
        """

    @abstractmethod
    def forget_requests(self) -> None:
        """Drop the record of the bot's requests, so that a long proof does not run out of memory."""

    @property
    @abstractmethod
    def violations(self) -> list[str]:
        """Requests of the bot that the platform's documentation forbids."""

    @abstractmethod
    def fail(self, call: str, how: CallFailure, *, times: int, seconds: float) -> None:
        """Let the next calls of a method fail."""

    def fail_calls(self, fault: Fault) -> str:
        """Make the next calls of a method fail according to a fault. Return the method's name."""
        call = pick(self.calls, fault.pick)
        self.fail(call, FAILURES[fault.kind], times=fault.times, seconds=fault.seconds)
        return call

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
    """Return whether a channel injects messages into the active run, according to its section."""
    return dict(section.get("session", {})).get("busy") == "steer"


def interrupts(section: Mapping[str, Any]) -> bool:
    """Return whether a message interrupts the active turn of a channel, according to its section."""
    return dict(section.get("session", {})).get("busy") == "interrupt"


def stranger_traits(channel: str, *, can_edit: bool = True, can_delete: bool = True) -> PlaceTraits:
    """Return the traits of a private chat with a person who may not use the bot."""
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
    """Return the element at a fraction (0 to 1) of a list."""
    return choices[min(int(share * len(choices)), len(choices) - 1)]
