"""The events of a terminal, with a marker when the bot has nothing left to say."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import anyio
from pydantic import TypeAdapter

from bots.terminal.session import TerminalEvent, TerminalFile, TerminalMessage

IDLE_POLL_S = 0.03
"""How often to check whether the bot is finished after an answer, seconds."""

IDLE_GRACE_S = 0.01
"""Time to take events that are already waiting, seconds."""

HEARTBEAT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionIdle:
    """The session has no waiting, running or unsent messages."""

    kind: Literal["idle"] = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHeartbeat:
    """There was no event for a while."""

    kind: Literal["heartbeat"] = "heartbeat"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierMessage:
    """A message from before the terminal joined. `is_person`: whether the person wrote it."""

    is_person: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionJoined:
    """The terminal joined the session. This is the first event of each connection.

    Attributes:
        others: Other terminals that show the session.
        earlier: Its last messages.
    """

    kind: Literal["joined"] = "joined"
    others: int = 0
    earlier: tuple[EarlierMessage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session, to choose from.

    Attributes:
        last_words: The beginning of its last message; "" = none.
        used_at: When it was used last, Unix seconds.
    """

    name: str
    last_words: str
    used_at: float


SessionEvent = TerminalEvent | SessionJoined | SessionIdle | SessionHeartbeat

SESSION_EVENT: TypeAdapter[SessionEvent] = TypeAdapter(SessionEvent)


async def stream_session_events(
    events: AsyncIterator[TerminalEvent],
    is_settled: Callable[[], Awaitable[bool]],
    *,
    heartbeat_s: float = HEARTBEAT_S,
) -> AsyncIterator[SessionEvent]:
    """Yield events as they arrive. Add a SessionIdle after an answer, and a SessionHeartbeat in a long silence.

    Args:
        events: A stream whose wait can safely be canceled (memory streams can).
        is_settled: Returns whether the session has nothing left to say.
        heartbeat_s: The longest silence, seconds.
    """
    is_waiting = was_settled = False
    while True:
        patience_s = IDLE_GRACE_S if was_settled else IDLE_POLL_S if is_waiting else heartbeat_s
        event: TerminalEvent | None = None
        with anyio.move_on_after(patience_s):
            event = await anext(events)
        if event is not None:
            is_waiting, was_settled = is_waiting or _is_answer(event), False
            yield event
        elif was_settled:
            is_waiting = was_settled = False
            yield SessionIdle()
        elif is_waiting:
            was_settled = await is_settled()
        else:
            yield SessionHeartbeat()


def _is_answer(event: TerminalEvent) -> bool:
    return isinstance(event, TerminalFile) or (isinstance(event, TerminalMessage) and event.final)
