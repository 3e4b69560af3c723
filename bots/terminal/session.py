"""Terminal sessions: the events that a terminal shows, and the lines that it sends."""

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
class TerminalButton:
    """A button under a message. A press returns its `token`."""

    label: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalMessage:
    """A message with all of its text so far.

    Attributes:
        final: Whether the text is finished. After that, a message with the same `id` can only change the buttons.
        buttons: What people can choose below it.
    """

    kind: Literal["shown"] = "shown"
    id: str
    text: str
    final: bool
    buttons: tuple[TerminalButton, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalLine:
    """A line that was typed in one of the session's terminals. `id` is the event ID that the terminal sent with it."""

    kind: Literal["line"] = "line"
    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalToolStep:
    """A finished tool call. See `bus.messages.ToolStep`."""

    kind: Literal["tool"] = "tool"
    id: str
    title: str
    arguments: str
    result: str
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalFile:
    """A sent file. `path` is relative to the adapter's folder."""

    kind: Literal["file"] = "file"
    id: str
    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalIndicator:
    """A message is being answered, or has been answered (`ok` or `failed`)."""

    kind: Literal["sign"] = "sign"
    state: Literal["working", "ok", "failed"]


TerminalEvent = TerminalMessage | TerminalFile | TerminalIndicator | TerminalToolStep | TerminalLine


@dataclass(frozen=True, slots=True)
class ShowResult:
    """The result of showing an event of a session.

    Attributes:
        attached: Number of terminals attached to the session.
        taken: Number of them that accepted the event. The others lag behind.
        absent_s: Seconds since the last terminal left the session; None = unknown.
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
    """The terminals of other processes, because any process can answer a session."""

    async def show(self, session: str, event: TerminalEvent) -> ShowResult:
        """Show an event on a session's terminals. Raises nothing."""
        ...


class SendLine(Protocol):
    """Sends a line with the references of its files."""

    def __call__(self, text: str, *, files: Sequence[str] = ()) -> Awaitable[Disposition]:
        """Return the line's disposition."""
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
        """Send a line to the bot, with attached files. Raises what `Intake.receive` raises."""
        return await self._send_line(text, files=files)

    async def attach(self, name: str, chunks: AsyncIterator[bytes]) -> str:
        """Store a file for the next line. Return its reference. Raises DeliveryError."""
        return await self._receive_file(name, chunks)

    def events(self) -> AsyncIterator[TerminalEvent]:
        """Iterate over the events to show, forever."""
        return aiter(self._events)


def check_session(session: str) -> None:
    """Raise ValueError unless `session` is a valid name: at most 64 letters, digits, `.`, `_` or `-`."""
    if not _SESSION.fullmatch(session):
        raise ValueError(
            "a session's name has 1 to 64 letters, digits, dots, dashes or underscores"
        )


def save_file(file: OutgoingFile, folder: Path, session: str) -> str:
    """Copy a file into `folder` under a free name. Return its path relative to `folder`. Blocking.

    Raises:
        DeliveryError: The disk cannot store it.
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
            f"The file could not be saved: {error.strerror}.", retryable=True
        ) from error
    return target.relative_to(folder).as_posix()
