"""Handles different chats' updates concurrently and each chat's in order. Confirms no update too early."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup

from bus.errors import unwrapped
from bus.retry import Backoff

MAX_CONCURRENT = 32
"""Maximum number of chats whose updates are handled at the same time."""

HandleUpdate = Callable[[dict[str, Any], int], Awaitable[str]]
"""Handles one update. Returns why it was not accepted, or "". Never raises."""


class UpdateQueue:
    """Passes updates to the bus, with one worker for each chat that has any.

    If an update is not accepted, its chat's worker repeats it with backoff, and only this chat waits. `getUpdates`
    confirms all updates below its offset. The offset therefore stays at the oldest unhandled update, even if later
    updates of other chats are handled. Telegram returns those again, and this queue skips them.

    Args:
        handle: Handles one update.
        backoff: Delays between attempts for an update that is not accepted.
    """

    def __init__(self, handle: HandleUpdate, backoff: Backoff) -> None:
        self._handle = handle
        self._backoff = backoff
        self._queues: dict[str, deque[tuple[int, dict[str, Any]]]] = {}
        self._pending: set[int] = set()
        self._handled: set[int] = set()
        self._next: int | None = None
        self._refusals: dict[str, str] = {}
        self._room = anyio.Semaphore(MAX_CONCURRENT)
        self._idle = anyio.Event()
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Handle updates inside the block. Telegram resends updates that are unhandled when the block ends."""
        with unwrapped():
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
                    self._queues.clear()
                    self._pending.clear()
                    self._refusals.clear()

    @property
    def refusal(self) -> str:
        """Why updates are not accepted now; "" if they are."""
        return next(iter(self._refusals.values()), "")

    def begin_poll(self) -> int | None:
        """Return the offset of the next poll; None = the oldest unconfirmed update."""
        offset = min(self._pending, default=self._next)
        if offset is not None:
            self._handled = {number for number in self._handled if number >= offset}
        return offset

    def submit(self, updates: Sequence[tuple[int, dict[str, Any]]]) -> bool:
        """Add updates in Telegram's order. Return whether any of them was new."""
        new = [
            (number, raw)
            for number, raw in updates
            if number not in self._pending and number not in self._handled
        ]
        for number, raw in new:
            self._pending.add(number)
            self._next = number + 1
            self._enqueue(chat_of(raw), number, raw)
        return bool(new)

    async def wait_idle(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` until every update is handled. Return whether all are."""
        if self._pending:
            self._idle = anyio.Event()
            with anyio.move_on_after(timeout_s):
                await self._idle.wait()
        return not self._pending

    def _enqueue(self, chat: str, number: int, raw: dict[str, Any]) -> None:
        if self._tasks is None:
            raise RuntimeError("The queue is not running")
        queue = self._queues.get(chat)
        if queue is None:
            queue = self._queues[chat] = deque()
            self._tasks.start_soon(self._work, chat, queue)
        queue.append((number, raw))

    async def _work(self, chat: str, queue: deque[tuple[int, dict[str, Any]]]) -> None:
        """Handle a chat's updates one after another, until none are left."""
        while queue:
            number, raw = queue[0]
            await self._handle_until_accepted(chat, number, raw)
            queue.popleft()
            self._pending.discard(number)
            self._handled.add(number)
        del self._queues[chat]
        if not self._pending:
            self._idle.set()

    async def _handle_until_accepted(self, chat: str, number: int, raw: dict[str, Any]) -> None:
        attempt = 0
        while True:
            async with self._room:
                refusal = await self._handle(raw, number)
            if not refusal:
                self._refusals.pop(chat, None)
                return
            self._refusals[chat] = refusal
            attempt += 1
            await anyio.sleep(self._backoff.wait_s(attempt))


def chat_of(raw: dict[str, Any]) -> str:
    """Return the chat of an update of any kind; "" for updates without one.

    >>> chat_of({"update_id": 1, "callback_query": {"message": {"chat": {"id": -5}}}})
    '-5'
    """
    for value in raw.values():
        if not isinstance(value, dict):
            continue
        message = value.get("message")  # of a callback query
        for holder in (value, message):
            chat = holder.get("chat") if isinstance(holder, dict) else None
            if isinstance(chat, dict):
                return str(chat.get("id"))
    return ""
