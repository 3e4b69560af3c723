"""Passes units of work from callers on the event loop to a database's worker threads, and results back."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from store.transaction import T, Transaction
from store.work_group import is_command_work


@dataclass(slots=True, eq=False)
class UnitOfWork:
    """A unit of work, its waiting caller, its result, and the work group (store/work_group.py) of the caller."""

    work: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    is_read: bool = False
    group: str | None = None
    value: Any = None
    error: Exception | None = None


UnitT = TypeVar("UnitT", bound=UnitOfWork)


def take_batch(queue: SimpleQueue[UnitT | None], most: int) -> list[UnitT | None]:
    """Wait for a unit, then take all queued units, up to `most`. None ends a thread and always comes last."""
    batch = [queue.get()]
    with suppress(Empty):
        while batch[-1] is not None and len(batch) < most:
            batch.append(queue.get_nowait())
    return batch


class UnitTurns:
    """Queued units in the order in which they run. Work groups take turns, one unit each.

    Commands get every other turn while they have units. Units of one group stay in order.
    """

    def __init__(self) -> None:
        self._groups: dict[str | None, deque[UnitOfWork]] = {}
        self._commands: dict[str | None, deque[UnitOfWork]] = {}
        self._was_command = False

    def __bool__(self) -> bool:
        return bool(self._groups or self._commands)

    @property
    def have_command(self) -> bool:
        """Whether a unit of a command is queued."""
        return bool(self._commands)

    def add(self, unit: UnitOfWork) -> None:
        """Queue a unit behind the other units of its group."""
        groups = self._commands if is_command_work(unit.group) else self._groups
        groups.setdefault(unit.group, deque()).append(unit)

    def take(self) -> UnitOfWork:
        """Remove and return the next unit."""
        self._was_command = bool(self._commands) and not (self._was_command and self._groups)
        groups = self._commands if self._was_command else self._groups
        group = next(iter(groups))
        queue = groups.pop(group)
        unit = queue.popleft()
        if queue:
            groups[group] = queue  # Move the group to the end of the line.
        return unit


async def result_of(future: "asyncio.Future[T]") -> T:
    """Wait for the result of a unit of work.

    The traceback of an error keeps the frames that it passed through, with their variables. If a variable held the
    error, or the future or unit that holds it, this reference cycle would stay until a full garbage collection.
    """
    try:
        return await future
    finally:
        del future


def report_results(loop: asyncio.AbstractEventLoop, units: Sequence[UnitOfWork]) -> None:
    """Pass the results of units to their callers on the event loop. Called on any thread."""
    # RuntimeError: the event loop is closed and has no callers. Commits stay.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_resolve_futures, units)


def _resolve_futures(units: Sequence[UnitOfWork]) -> None:
    for unit in units:
        future, error = unit.future, unit.error
        del unit.future, unit.error  # See `result_of`.
        if future.done():
            continue
        if error is None:
            future.set_result(unit.value)
        else:
            future.set_exception(error)
