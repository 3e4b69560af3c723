"""What a proof needs of a simulated platform: places where people write, what they see there, and its faults."""

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
        user: What they do there, and see.
        traits: What the plan knows of it.
    """

    user: ChatUser
    traits: PlaceTraits

    @property
    def name(self) -> str:
        """Unique among all places."""
        return self.traits.name


class SimulatedPlatform(ABC):
    """A platform's server in this process, with one bot.

    Attributes:
        channel: Name of the bot's section in the configuration.
        places: Where people write to it.
        calls: The bot's calls that may fail; those named more often fail more often.
        calls_webhook: Whether the platform calls the service, instead of being connected to.
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
        """Call the service's webhooks below this address, instead of being connected to; before `section` is read."""

    @abstractmethod
    def forget_requests(self) -> None:
        """Drop the record of the bot's requests, which a long proof has no memory for."""

    @property
    @abstractmethod
    def violations(self) -> list[str]:
        """Requests of the bot that the platform's documents forbid."""

    @abstractmethod
    def fail(self, call: str, how: CallFailure, *, times: int, seconds: float) -> None:
        """Let the next calls of a method fail."""

    def fail_calls(self, fault: Fault) -> str:
        """Let the next calls of a method fail as the fault says; return the method's name."""
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
