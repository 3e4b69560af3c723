"""Helpers of the adapter contract: a platform's server with a few operations, and an intake that records messages."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import anyio.abc

from bus.platform import Adapter, ChannelHealth, ConnectionState
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake
from tests.people.chat_user import CallFailure

RETRY_AFTER_S = 17.0
"""The error of a platform that refuses a send."""

STOP_S = 5.0
"""How long a canceled `run` may take."""


class Rig(ABC):
    """One platform's server, with the operations that the suite needs.

    Attributes:
        name: The channel.
        rooms: Whether the platform has chats with several people.
    """

    name: str
    rooms = True

    @abstractmethod
    def serving(self) -> AbstractAsyncContextManager[object]:
        """Run the platform's server."""

    @abstractmethod
    def adapter(self) -> Adapter:
        """Return an adapter that is configured for the server, with short waits."""

    @abstractmethod
    async def say(self, text: str) -> None:
        """Write to the bot in a private chat."""

    async def say_in_room(self, text: str) -> None:
        """Write to the bot in a room."""
        raise AssertionError(f"{self.name} has no rooms")

    async def chat_in_room(self, text: str) -> None:
        """Write in the same room without addressing the bot."""
        raise AssertionError(f"{self.name} has no rooms")

    @abstractmethod
    def unacknowledged(self) -> int:
        """Return how many messages the platform considers undelivered."""

    def acknowledged(self) -> bool:
        """Return whether the platform considers all messages delivered."""
        return self.unacknowledged() == 0

    async def overtake(self, recorder: RecordingIntake) -> None:
        """Receive and acknowledge a group's message after a private one that is not stored yet."""
        await self.say_in_room("later")
        await eventually(lambda: "later" in recorder.texts and self.unacknowledged() <= 1)

    @abstractmethod
    def seen(self) -> list[str]:
        """Return the bot's messages as people see them, in the order of creation."""

    @abstractmethod
    def violations(self) -> list[str]:
        """Return the violations that the platform found in requests."""


class RemoteRig(Rig):
    """A platform behind a network and a token."""

    @abstractmethod
    def fail_next_send(self, how: CallFailure) -> None:
        """Make the next send fail. A refusal says to wait for `RETRY_AFTER_S`."""

    @abstractmethod
    async def go_away(self) -> None:
        """Make the platform unreachable."""

    @abstractmethod
    async def come_back(self) -> None:
        """Make the platform reachable again."""

    @abstractmethod
    def intruder(self) -> tuple[Adapter, str]:
        """Return an adapter with a wrong secret, and that secret."""


@asynccontextmanager
async def serving(rig: Rig) -> AsyncIterator[None]:
    """Run a platform's server. It must find no violations."""
    async with rig.serving():
        yield
    assert rig.violations() == []


@asynccontextmanager
async def running(
    adapter: Adapter,
    recorder: RecordingIntake,
    *,
    link: ConnectionState | None = ConnectionState.CONNECTED,
) -> AsyncIterator[None]:
    """Run an adapter with the connection of `link`. When canceled, it must end within `STOP_S`."""

    ended = anyio.Event()

    async def run(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        try:
            await adapter.run(recorder, task_status=task_status)
        finally:
            ended.set()

    async with anyio.create_task_group() as tasks:
        await tasks.start(run)
        if link is not None:
            await linked(adapter, link)
        yield
        tasks.cancel_scope.cancel()
        with anyio.fail_after(STOP_S, shield=True):
            await ended.wait()


async def linked(adapter: Adapter, *links: ConnectionState) -> ChannelHealth:
    await eventually(lambda: adapter.health().state in links)
    return adapter.health()
