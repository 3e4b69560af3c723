"""Terminal sessions: the events that a terminal shows, and how it sends lines."""

import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from anyio.streams.memory import MemoryObjectReceiveStream

from bus.errors import DeliveryError
from bus.platform import Disposition, OutgoingFile

_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalMessage:
    """A message with all of its text so far. `final`: it does not change any more."""

    kind: Literal["shown"] = "shown"
    id: str
    text: str
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalFile:
    """A file that was sent; `path` is relative to the adapter's folder."""

    kind: Literal["file"] = "file"
    id: str
    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalIndicator:
    """A message is being answered, or was (`ok` or `failed`)."""

    kind: Literal["sign"] = "sign"
    state: Literal["working", "ok", "failed"]


TerminalEvent = TerminalMessage | TerminalFile | TerminalIndicator


@dataclass(frozen=True, slots=True)
class ShowResult:
    """What became of an event of a session.

    Attributes:
        attached: How many terminals are attached to the session.
        taken: How many of them took the event; the others lag behind.
        absent_s: Seconds since the last terminal left the session; None = not known.
    """

    attached: int = 0
    taken: int = 0
    absent_s: float | None = None

    def __add__(self, other: "ShowResult") -> "ShowResult":
        known = [one for one in (self.absent_s, other.absent_s) if one is not None]
        return ShowResult(
            self.attached + other.attached,
            self.taken + other.taken,
            min(known, default=None),
        )


class OtherTerminals(Protocol):
    """The terminals that are attached to other processes: a session is answered by any of them."""

    async def show(self, session: str, event: TerminalEvent) -> ShowResult:
        """Show an event at those of a session. Raises nothing."""
        ...


class SendLine(Protocol):
    """Sends a line with the references of its files."""

    def __call__(self, text: str, *, files: Sequence[str] = ()) -> Awaitable[Disposition]:
        """Return what became of the line."""
        ...


class TerminalSession:
    """One terminal attached to a session (`TerminalAdapter.attach`)."""

    def __init__(
        self,
        send_line: SendLine,
        events: MemoryObjectReceiveStream[TerminalEvent],
        receive_file: Callable[[str, AsyncIterator[bytes]], Awaitable[str]],
    ) -> None:
        self._send_line = send_line
        self._events = events
        self._receive_file = receive_file

    async def say(self, text: str, files: Sequence[str] = ()) -> Disposition:
        """Send a line to the bot, with files that were attached. Raises what `Intake.receive` raises."""
        return await self._send_line(text, files=files)

    async def attach(self, name: str, chunks: AsyncIterator[bytes]) -> str:
        """Store a file for the next line; return its reference. Raises DeliveryError."""
        return await self._receive_file(name, chunks)

    def events(self) -> AsyncIterator[TerminalEvent]:
        """Iterate over what to show, forever."""
        return aiter(self._events)


def check_session(session: str) -> None:
    """Raise ValueError unless `session` may name a session: letters, digits, `.`, `_`, `-`, at most 64."""
    if not _SESSION.fullmatch(session):
        raise ValueError(
            "a session's name has 1 to 64 letters, digits, dots, dashes or underscores"
        )


def save_file(file: OutgoingFile, folder: Path, session: str) -> str:
    """Copy a file below `folder` under a free name; return its path relative to `folder`. Blocking.

    Raises:
        DeliveryError: the disk does not take it.
    """
    name = Path(file.name).name or "file"
    try:
        home = folder / session
        home.mkdir(parents=True, exist_ok=True)
        target = home / name
        for number in range(1, 1000):
            if not target.exists():
                break
            target = home / f"{Path(name).stem}-{number}{Path(name).suffix}"
        shutil.copyfile(file.path, target)
    except OSError as error:
        raise DeliveryError(
            f"The file could not be kept: {error.strerror}.", retryable=True
        ) from error
    return target.relative_to(folder).as_posix()
