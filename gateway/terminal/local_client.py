"""The terminal sessions of this process: whether they are idle, and the chat's connection to them without HTTP."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from bots.terminal.adapter import TERMINAL, WORKSPACE, TerminalAdapter
from bots.terminal.session import TerminalSession
from bus.errors import BusError
from bus.service import Bus
from gateway.terminal.attached_files import read_chunks
from gateway.terminal.remote_client import MessageRefused, TerminalClient, TerminalClientEvent
from gateway.terminal.session_events import (
    EarlierMessage,
    SessionEvent,
    SessionJoined,
    SessionSummary,
    stream_session_events,
)
from store.conversations import ConversationKey
from store.errors import StoreError

MAX_SESSIONS = 20
"""Maximum number of sessions to offer."""

LAST_WORDS_CHARS = 200

EARLIER_MESSAGES = 4
"""Number of earlier messages that a terminal shows when it joins."""


async def is_session_idle(bus: Bus, session: str) -> bool:
    """Return whether a terminal session has no waiting, running or unsent messages."""
    key = ConversationKey(channel=TERMINAL, workspace=WORKSPACE, chat=session)
    conversation = await bus.conversations.find(key)
    if conversation is not None and conversation.pending:
        return False
    return await bus.outbox.next_open(key, now=time.time()) is None


async def session_events(
    terminal: TerminalAdapter, bus: Bus, session: TerminalSession, name: str
) -> AsyncIterator[SessionEvent]:
    """Yield the events of a session after a terminal joined it, starting with earlier messages."""
    key = ConversationKey(channel=TERMINAL, workspace=WORKSPACE, chat=name)
    others = terminal.count_attached(name) - 1
    earlier = [
        EarlierMessage(is_person=is_person, text=text)
        for is_person, text in await bus.last_words(key, count=EARLIER_MESSAGES)
    ]
    yield SessionJoined(others=others, earlier=tuple(earlier))
    async for event in stream_session_events(session.events(), partial(is_session_idle, bus, name)):
        yield event


async def list_sessions(bus: Bus) -> list[SessionSummary]:
    """Return the terminal sessions, most recently used first. Raises StoreError."""
    found = await bus.conversations.list_recent(channel=TERMINAL, limit=MAX_SESSIONS)
    summaries = []
    for conversation in found:
        words = await bus.last_words(conversation.key, count=1)
        text = " ".join(words[0][1].split())[:LAST_WORDS_CHARS] if words else ""
        summaries.append(
            SessionSummary(
                name=conversation.key.chat, last_words=text, used_at=conversation.updated_at
            )
        )
    return summaries


class LocalTerminalClient:
    """A session of this process's own terminal adapter."""

    def __init__(
        self, terminal: TerminalAdapter, session: TerminalSession, bus: Bus, name: str
    ) -> None:
        self._terminal = terminal
        self._session = session
        self._bus = bus
        self._name = name

    async def send(self, text: str, files: Sequence[Path] = (), *, line_id: str = "") -> str:
        """Send a line and files."""
        try:
            refs = [await self._session.attach(path.name, read_chunks(path)) for path in files]
            say = self._terminal.say
            return (await say(self._name, text, event_id=line_id, files=refs)).value
        except (BusError, StoreError, OSError) as error:
            raise MessageRefused(str(error)) from error

    async def press(self, token: str, message: str) -> str:
        """Press a button of a message."""
        try:
            return (await self._terminal.press(self._name, token, message=message)).text
        except (BusError, StoreError) as error:
            raise MessageRefused(str(error)) from error

    async def list_sessions(self) -> list[SessionSummary]:
        """Return the sessions, most recently used first."""
        try:
            return await list_sessions(self._bus)
        except StoreError as error:
            raise MessageRefused(str(error)) from error

    def events(self) -> AsyncIterator[TerminalClientEvent]:
        """Iterate over the events to show."""
        return session_events(self._terminal, self._bus, self._session, self._name)


@asynccontextmanager
async def open_local_client(
    terminal: TerminalAdapter, bus: Bus, name: str
) -> AsyncIterator[TerminalClient]:
    """Attach to a session in this process."""
    with terminal.attach(name) as session:
        yield LocalTerminalClient(terminal, session, bus, name)
