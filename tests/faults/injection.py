"""Records the store and adapter calls of a turn, and makes one of them fail once."""

import inspect
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from types import FrameType
from typing import Any, ClassVar, NoReturn, TypeVar

import anyio
from typing_extensions import override

from bus.conversation.steps import TurnSteps
from bus.errors import DeliveryError
from bus.messages import Attachment, MessageId, ReplyTarget
from bus.platform import Adapter
from store.database import Database, Params, Row, Transaction
from store.errors import RowConflict
from store.transaction import T
from tests.fakes.platform import ButtonPlatform, CardPlatform, PreviewPlatform

AnyAdapter = TypeVar("AnyAdapter", bound=Adapter)

NOT_INJECTED = frozenset({"run", "until"})
"""Methods of the fake platforms that no turn calls."""


class Mode(StrEnum):
    """How a call fails."""

    ERROR = "error"
    """A documented, temporary error: the database fails a statement, or a retryable `DeliveryError`."""
    REFUSAL = "refusal"
    """A documented, final error: `RowConflict`, or a `DeliveryError` that is not retryable."""
    TIMEOUT = "timeout"
    """The store does not answer in time, or a platform's response is lost after the call took effect."""
    UNKNOWN = "unknown"
    """An unexpected exception."""
    CANCELLATION = "cancellation"
    """The service is stopped during the call."""


class ProcessKilled(BaseException):
    """The process was killed, so it stores and sends nothing more."""


class Faults:
    """Records each call by its site ("caller > callee"). The first call of one site fails.

    Attributes:
        calls: The called sites, in order, without duplicates.
        happened: Set when the fault was injected.
        is_killed: Every call raises `ProcessKilled`.
        outages: The database's health right after each failed store call; "" = healthy. On a busy machine, a later
        transaction may be committed first, and then it is healthy again.
        kill_at: An adapter's method, and whether to kill the process after or before it takes effect.
        methods: The adapter's called methods, in order, without duplicates.
        breaks_once: The next call of this store function fails as with a broken disk; "" = none.
    """

    def __init__(self, site: str = "", mode: Mode = Mode.ERROR) -> None:
        self.calls: dict[str, None] = {}
        self.happened = anyio.Event()
        self.is_on = False
        self.is_killed = False
        self.outages: list[str] = []
        self._begun = 0
        self._begun_before_fault = sys.maxsize
        self.kill_at: tuple[str, bool] | None = None
        self.methods: dict[str, None] = {}
        self.breaks_once = ""
        self._site = site
        self._mode = mode

    async def store_call(
        self, database: Database, call: Callable[[], Awaitable[T]], fail: Callable[[], Awaitable[T]]
    ) -> T:
        self._check_alive()
        if self.breaks_once and _store_site().endswith(f" > {self.breaks_once}"):
            self.breaks_once = ""
            self.happened.set()
            return await fail()
        if self._is_looking and self._is_due(_store_site()):
            if self._mode is Mode.ERROR:
                try:
                    return await fail()
                finally:
                    is_over = self._begun > self._begun_before_fault
                    self.outages.append(database.outage or ("over again" if is_over else ""))
            if self._mode is Mode.REFUSAL:
                raise RowConflict("injected")
            if self._mode is Mode.TIMEOUT:
                raise TimeoutError
            await self._other()
        return await call()

    def transaction_begins(self) -> None:
        """Record the start of a transaction, on the writer thread."""
        self._begun += 1

    def transaction_fails(self, _: Transaction) -> NoReturn:
        """Fail on the writer thread, as with a broken disk."""
        self._begun_before_fault = self._begun
        raise sqlite3.OperationalError("disk I/O error")

    async def adapter_call(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - any method
        self._check_alive()
        if self._is_looking and self._is_due(f"{_caller()} > {name}"):
            if self._mode is Mode.ERROR:
                raise DeliveryError("injected", retryable=True, retry_after_s=0.01)
            if self._mode is Mode.REFUSAL:
                raise DeliveryError("injected")
            if self._mode is Mode.TIMEOUT:
                await call()
                raise DeliveryError("injected", retryable=True, ambiguous=True)
            await self._other()
        self.methods[name] = None
        if self.kill_at == (name, False):
            self._kill_here()
        result = await call()
        if self.kill_at == (name, True):
            self._kill_here()
        return result

    def _kill_here(self) -> None:
        self.happened.set()
        self.kill()

    def kill(self) -> None:
        """Let nothing be stored or sent anymore."""
        self.is_killed = True
        raise ProcessKilled

    def restart(self) -> None:
        """Reset the faults for the next process."""
        self.is_killed = False
        self.kill_at = None
        self.happened = anyio.Event()

    def _check_alive(self) -> None:
        if self.is_killed:
            raise ProcessKilled

    async def _other(self) -> None:
        if self._mode is Mode.UNKNOWN:
            raise RuntimeError("injected")
        await anyio.sleep(0.02)  # Time for the service to stop.

    @property
    def _is_looking(self) -> bool:
        """Whether calls are recorded, which walks through the frames to find the caller."""
        return self.is_on and not self.happened.is_set()

    def _is_due(self, site: str) -> bool:
        if site.startswith("?"):
            return False
        self.calls[site] = None
        if site != self._site:
            return False
        self.happened.set()
        return True


SERVICE: ContextVar[str] = ContextVar("service", default="")
"""The service that a task works for, because several services run in parallel in one process."""


@dataclass(frozen=True)
class StepPoint:
    """The point right before a step of a turn, or right after it, even if it failed.

    Attributes:
        step: The method of `TurnSteps`. If it returns a context manager, the point is at entering it. If it yields
        events, the point is at reading one.
    """

    step: str
    is_after: bool = False

    @override
    def __str__(self) -> str:
        return f"{'after' if self.is_after else 'before'} {self.step}"


STEPS = frozenset(
    name
    for name, method in vars(TurnSteps).items()
    if not name.startswith("_")
    and (inspect.iscoroutinefunction(method) or name in ("events", "show_working", "slot"))
) - {"keep_indicator"}
"""The steps that a turn awaits. `keep_indicator` is not among them, because it runs until it is canceled."""

COMMITS = {
    "begin": "InboxStore.mark_running",
    "set_run": "InboxStore.set_run",
    "note_injection": "MessageHistoryStore.assign_run",
    "finish": "InboxStore.finish",
}
"""The steps of COMMIT 1 to 4, and the store function that each calls.

`discard` and `fail` are other forms of COMMIT 4.
"""


class AtStep:
    """Does something when a turn first reaches a point, and records all points.

    It watches the turns of the `SERVICE` in which it is created.

    Attributes:
        reached: The reached points, in order, without duplicates.
    """

    _installed: ClassVar[list["AtStep"]] = []

    def __init__(
        self,
        point: StepPoint | None = None,
        act: Callable[[], Awaitable[object] | None] = lambda: None,
    ) -> None:
        self.reached: dict[StepPoint, None] = {}
        self._point = point
        self._act = act
        self._service = SERVICE.get()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Watch turns inside the block."""
        if not self._installed:
            for name, step in _ORIGINALS.items():
                setattr(TurnSteps, name, _watched(name, step))
        self._installed.append(self)
        try:
            yield
        finally:
            self._installed.remove(self)
            if not self._installed:
                for name, step in _ORIGINALS.items():
                    setattr(TurnSteps, name, step)

    @classmethod
    async def come_to(cls, point: StepPoint) -> None:
        """Notify the watchers that a turn reached a point."""
        for one in tuple(cls._installed):
            if SERVICE.get() != one._service:
                continue
            is_first = point not in one.reached
            one.reached[point] = None
            if is_first and point == one._point:
                with anyio.CancelScope(shield=True):
                    done = one._act()
                    if done is not None:
                        await done


_ORIGINALS = {name: vars(TurnSteps)[name] for name in STEPS}


def _watched(name: str, step: Any) -> Any:  # noqa: ANN401 - any method
    before, after = StepPoint(name), StepPoint(name, is_after=True)
    come_to = AtStep.come_to

    async def call(*args: object, **named: object) -> object:
        await come_to(before)
        try:
            return await step(*args, **named)
        finally:
            await come_to(after)

    @asynccontextmanager
    async def block(*args: object) -> AsyncIterator[object]:
        await come_to(before)
        async with step(*args) as entered:
            await come_to(after)
            yield entered

    async def events(*args: object) -> AsyncIterator[object]:
        await come_to(before)
        async with aclosing(step(*args)) as found:
            async for event in found:
                await come_to(after)
                yield event

    if inspect.iscoroutinefunction(step):
        return call
    return events if name == "events" else block


class KillAtStep(AtStep):
    """Kills the process at a point."""

    def __init__(self, faults: Faults, point: StepPoint | None = None) -> None:
        super().__init__(point, partial(self._kill, faults))

    @staticmethod
    def _kill(faults: Faults) -> None:
        faults.is_killed = True
        faults.happened.set()


def _store_site() -> str:
    """Return the store function that the bus is calling, with its caller."""
    name = "?"
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith("bus.") and module != "bus.retry":
            return f"{frame.f_code.co_qualname} > {name}".replace(".<locals>", "")
        if module.startswith("store.") and "<locals>" not in frame.f_code.co_qualname:
            name = frame.f_code.co_qualname
        if module.startswith("asyncio."):
            break  # The bus did not create the task.
        frame = frame.f_back
    return "?"


def _caller() -> str:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("bus."):
            return frame.f_code.co_qualname.replace(".<locals>", "")
        frame = frame.f_back
    return "?"


class FaultyDatabase(Database):
    """A database whose calls the faults can intercept."""

    def __init__(self, database: Database, faults: Faults) -> None:
        vars(self).update(vars(database))
        self._faults = faults

    @override
    async def transaction(self, work: Callable[[Transaction], T], *, order: str = "") -> T:
        call = super().transaction

        def counted(transaction: Transaction) -> T:
            self._faults.transaction_begins()
            return work(transaction)

        return await self._faults.store_call(
            self,
            lambda: call(counted, order=order),
            lambda: call(self._faults.transaction_fails),
        )

    @override
    async def execute(
        self, sql: str, params: Params | Callable[[], Params], *, order: str = ""
    ) -> Sequence[Row]:
        return await self.transaction(
            lambda tx: tx.run(sql, params() if callable(params) else params), order=order
        )

    @override
    async def read(self, sql: str, params: Params | None = None) -> list[Row]:
        call = super().read
        return await self._faults.store_call(
            self, lambda: call(sql, params), lambda: call("SELECT * FROM injected")
        )


def with_faults(platform: AnyAdapter, faults: Faults) -> AnyAdapter:
    """Let the faults intercept every adapter method of a platform. Return the platform."""
    for name, method in inspect.getmembers(platform, inspect.iscoroutinefunction):
        if not name.startswith("_") and name not in NOT_INJECTED:
            setattr(platform, name, _passing(name, method, faults))
    return platform


def _passing(name: str, method: Callable[..., Awaitable[Any]], faults: Faults) -> Any:  # noqa: ANN401 - any method
    async def passing(*args: object, **named: object) -> object:
        return await faults.adapter_call(name, lambda: method(*args, **named))

    return passing


class StreamingPlatform(CardPlatform):
    """A platform with streaming, buttons, indicators and files in both directions.

    Sends are idempotent, as on Feishu.
    """

    @asynccontextmanager
    async def download(
        self, attachment: Attachment, *, max_bytes: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        await self.open_download()
        yield self._chunks()

    async def open_download(self) -> None:
        """Fail like a download."""

    async def _chunks(self) -> AsyncIterator[bytes]:
        yield b"content"


class NoticePlatform(ButtonPlatform):
    """A platform with a progress notice, which the answer deletes, as on Telegram. Recognizes repeated sends."""

    def __init__(self) -> None:
        super().__init__("fake", notice_after_s=0.01)
        self._capabilities = replace(self._capabilities, idempotent_send_s=3600.0)

    @override
    def _show(self, place: ReplyTarget, text: str, key: str) -> MessageId:
        known = next((shown for shown in self.shown if shown.key == key), None)
        return MessageId(known.id) if known else super()._show(place, text, key)


class DraftPlatform(NoticePlatform, PreviewPlatform):
    """A platform with drafts. Recognizes repeated sends."""

    def __init__(self) -> None:
        PreviewPlatform.__init__(self, "fake")
        self._capabilities = replace(self._capabilities, idempotent_send_s=3600.0)
