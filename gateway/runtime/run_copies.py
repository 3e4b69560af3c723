"""RunCopies: copies of other nodes' runs, for clients of this node. Their events come from the run_event table."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import orjson
from anyio.abc import TaskGroup
from typing_extensions import override

from agent.thread_queue import QueueTicket
from gateway.runtime.event_log import EventLog
from gateway.runtime.finished_runs import FinishedRuns
from gateway.runtime.lifecycle import CancelAction
from gateway.runtime.local_run import EVENTS_PER_ATTEMPT, LocalRun, first_event_number
from gateway.runtime.runs import RunManager, RuntimeSettings
from gateway.runtime.serialization import dumps
from gateway.runtime.shared_events import RETRY_S, WROTE, EventWriter, events_of
from gateway.runtime.thread_states import ThreadStates
from gateway.runtime.thread_watchers import RunsOfOtherNodes
from store.errors import RowNotFound, StoreUnavailable
from store.node_calls import NodeCalls
from store.run_events import ROWS_PER_READ, EventRow, RunEventStore
from store.runs import Run, RunStatus

POLL_S = 1.0
"""How often a node reads the table, and reports what it reads and watches, if no signal arrives, seconds."""

GAP_S = 1.0
"""How long to wait for missing events, seconds."""

WATCHED_S = 30.0
"""How long a node counts as a watcher after it last reported, seconds."""

ANSWER_S = 2.0
"""How long a client waits for nodes that do not respond, seconds."""

FETCH_S = 5.0
"""How long a client waits for events of earlier runs at other nodes, seconds."""

NEXT_ATTEMPTS = 100
NEXT_S = 0.1
"""How many times to look for the attempt that follows a lost one, and the pause in between, seconds."""

READ, STARTED = "runs.read", "runs.started"
"""The call with which a node reports what it reads and watches, and the signal that a run has started on a watched
thread."""

Json = dict[str, Any]


@dataclass(slots=True, eq=False, kw_only=True)
class CopiedRun(LocalRun):
    """One attempt of a run at another node.

    Attributes:
        node: The node.
        cancel: Cancels the run there.
        is_gone: Whether the node no longer knows the run.
        following: The attempt that follows, if the node was lost.
        is_decided: Set when it is known whether another attempt follows.
        wrote: Set when there are new rows.
    """

    node: int
    cancel: Callable[[CancelAction], None]
    is_gone: bool = False
    following: LocalRun | None = None
    is_decided: anyio.Event = field(default_factory=anyio.Event)
    wrote: anyio.Event = field(default_factory=anyio.Event)

    @override
    async def next_attempt(self) -> LocalRun | None:
        await self.is_decided.wait()
        return self.following

    @override
    def request_cancel(self, action: CancelAction) -> None:
        if not self.finished.is_set():
            self.cancel(action)

    def add(self, rows: Sequence[EventRow]) -> bool:
        """Add the events that follow without a gap, and return whether there were any."""
        before = self.log.last_id
        for row in rows:
            if row.first_id != self.log.last_id + 1:
                break
            for name, data in events_of(row):
                self.log.append(name, data)
                if name == "end":
                    self.end(orjson.loads(data)["status"], row.result)
        return self.log.last_id > before

    def end(self, status: RunStatus, result: bytes | None) -> None:
        """End the log after its last event. `result`: as in `LocalRun.own_result`."""
        self.row = replace(self.row, status=status)
        self._result = result
        self.encoded_values = None
        self.log.close(result)
        self.is_decided.set()
        self.finished.set()
        self.stopped.set()

    def go_on(self, following: LocalRun) -> None:
        """Send readers to another attempt for the events that follow."""
        self.following = following
        self.log.close()
        self.is_decided.set()

    def finish_like(self, following: LocalRun) -> None:
        """End the run as another attempt ended, for clients that wait for it."""
        self.row, self._result = following.row, following.result
        self.finished.set()


@dataclass(slots=True)
class _WatchedThread:
    """A thread that clients of this node watch.

    Attributes:
        unheard: Nodes that existed when the watch began and have not responded yet. The ended runs in their first
            response are older than the watch.
        known: The runs that are copied, or ended before the thread was watched.
        told: Set when the nodes have responded, or the wait for them has ended.
    """

    unheard: set[int]
    known: set[tuple[str, int]] = field(default_factory=set)
    told: anyio.Event = field(default_factory=anyio.Event)


class RunCopies(RunsOfOtherNodes):
    """Copies other nodes' runs that clients of this node read, or whose threads they watch.

    A copy contains all events of one attempt, however late this node learns of it.

    Args:
        runs: The runs of this node.
        store: The table of events.
        calls: Calls to other nodes.
        writer: Writes the events of this node's runs that other nodes read.
        cancel: Cancels a run of another node. Returns at once.
        tasks: Runs the copying.
    """

    def __init__(
        self,
        runs: RunManager,
        store: RunEventStore,
        calls: NodeCalls,
        writer: EventWriter,
        cancel: Callable[[CopiedRun, CancelAction], None],
        tasks: TaskGroup,
    ) -> None:
        settings = RuntimeSettings()
        self._runs = runs
        self._watchers = runs.watchers
        self._store = store
        self._calls = calls
        self._writer = writer
        self._cancel = cancel
        self._tasks = tasks
        self._watched: dict[str, _WatchedThread] = {}
        self._watching_nodes: dict[str, dict[int, float]] = {}
        self._active: dict[tuple[str, int], CopiedRun] = {}
        self._ended = FinishedRuns(keep_s=settings.keep_s, keep_bytes=settings.keep_bytes)
        calls.serve(READ, self._add_reader)
        calls.receive(STARTED, self._take_started)
        calls.receive(WROTE, self._take_wrote)

    @override
    async def watch(self, thread_id: str) -> None:
        watched = self._watched.get(thread_id)
        if watched is not None:
            await watched.told.wait()
            return
        watched = self._watched[thread_id] = _WatchedThread(set(self._calls.others))
        try:
            await self._tell_all()
        finally:
            watched.told.set()

    @override
    def announce(self, live: LocalRun) -> None:
        now = anyio.current_time()
        for node, until in self._watching_nodes.get(live.thread_id, {}).items():
            if until > now and node in self._calls.others:
                self._writer.add_reader(live, node)
                self._calls.tell(node, STARTED, dumps(describe(live)).decode())

    @override
    def copies(self, thread_id: str) -> list[LocalRun]:
        active = [live for live in self._active.values() if live.thread_id == thread_id]
        return self._ended.for_thread(thread_id) + active

    @override
    async def fetch(self, thread_id: str) -> list[LocalRun]:
        found: list[LocalRun] = []

        async def ask(node: int) -> None:
            try:
                begun = await self._ask(node, threads=[thread_id])
            except StoreUnavailable:
                return
            found.extend([await self.copied(node, described) for described in begun])

        with anyio.move_on_after(FETCH_S):
            async with anyio.create_task_group() as tasks:
                for node in self._calls.others:
                    tasks.start_soon(ask, node)
        return found

    async def find(self, run_id: str, *, thread_id: str = "") -> LocalRun | None:
        """Return a run whose events this or another node has in memory.

        Args:
            run_id: The run.
            thread_id: Its thread. "" = unknown.

        Raises:
            StoreUnavailable: The node that executes the run does not respond, or the run is moving to another node.
        """
        live = self._runs.find(thread_id or None, run_id) or self._find_ended(run_id)
        if live is not None:
            return live
        node, is_over = await self._runs.abandoned_runs.find_node(thread_id, run_id)
        if live := self._runs.find(thread_id or None, run_id):
            return live
        if node is not None and node != self._calls.node:
            live = await self._copy_from(node, run_id)
        elif not thread_id:
            # The run has no row, because it has a thread of its own.
            live = await self._copy_from_any(run_id)
        if live is None and not is_over:
            raise StoreUnavailable("The run is moving to another node; try again.")
        return live

    def _find_ended(self, run_id: str) -> LocalRun | None:
        """Return the copy of a run that has ended. A lost attempt does not count as ended."""
        ended = self._ended.find(run_id)
        is_lost = isinstance(ended, CopiedRun) and ended.following is not None
        return None if is_lost else ended

    async def run(self) -> None:
        """Report repeatedly what is read and watched, until canceled."""
        while True:
            with anyio.move_on_after(POLL_S):
                await self._calls.database.nodes.wait_change()
            self._watched = {
                thread_id: watched
                for thread_id, watched in self._watched.items()
                if self._watchers.has(thread_id)
            }
            now = anyio.current_time()
            self._ended.evict(now=now)
            self._writer.forget_old()
            for thread_id, nodes in list(self._watching_nodes.items()):
                if not any(until > now for until in nodes.values()):
                    del self._watching_nodes[thread_id]
            if self._watched or self._active:
                await self._tell_all()

    async def _tell_all(self) -> None:
        async with anyio.create_task_group() as tasks:
            for node in self._calls.others:
                tasks.start_soon(self._tell, node)

    async def _tell(self, node: int) -> None:
        """Report to a node what is read and watched here, and process its response."""
        threads = list(self._watched)
        read = [copy for copy in self._active.values() if copy.node == node]
        if not (threads or read):
            return
        asked = {copy.run_id: copy.log.last_id for copy in read}
        try:
            begun = await self._ask(node, threads=threads, runs=asked)
        except StoreUnavailable:
            return
        known = {described["run_id"] for described in begun}
        for copy in read:
            copy.is_gone = copy.run_id not in known
        for described in begun:
            self._take(node, described)
        for thread_id in threads:
            if watched := self._watched.get(thread_id):
                watched.unheard.discard(node)

    async def _ask(
        self, node: int, *, threads: Sequence[str] = (), runs: Mapping[str, int] = {}
    ) -> list[Json]:
        """Report to a node what is read and watched, and return which of these runs it has.

        Args:
            node: The node.
            threads: The threads that are watched.
            runs: The runs that are read, with the number of the last event that this node has.

        Raises:
            StoreUnavailable: It does not respond.
        """
        body = dumps({"node": self._calls.node, "threads": threads, "runs": runs}).decode()
        return list(orjson.loads(await self._calls.call(node, READ, body, within_s=ANSWER_S)))

    async def _add_reader(self, body: str) -> str:
        """Record what another node reads and watches, and return which of these runs this node has."""
        asked: Json = orjson.loads(body)
        node = asked["node"]
        until = anyio.current_time() + WATCHED_S
        begun: list[LocalRun] = []
        for thread_id in asked["threads"]:
            self._watching_nodes.setdefault(thread_id, {})[node] = until
            begun += self._watchers.own_runs(thread_id)
        read = [live for one in asked["runs"] if (live := self._runs.find(None, one))]
        for live in begun:
            if not live.is_finished:
                self._writer.add_reader(live, node)
        for live in read:
            self._writer.add_reader(live, node, after=asked["runs"][live.run_id])
        await self._writer.flush()
        known = {live.attempt_id: live for live in [*begun, *read]}
        return dumps([describe(live) for live in known.values()]).decode()

    def _take_started(self, node: int, body: str) -> None:
        self._take(node, orjson.loads(body))

    def _take_wrote(self, _node: int, body: str) -> None:
        run_id, last_id = body.split()
        attempt = (int(last_id) - 1) // EVENTS_PER_ATTEMPT + 1
        copy = self._active.get((run_id, attempt))
        if copy is not None and copy.log.last_id < int(last_id):
            copy.wrote.set()

    def _take(self, node: int, described: Json) -> None:
        """Copy a run on a watched thread, unless it is known, or ended before anybody watched the thread."""
        watched = self._watched.get(described["thread_id"])
        attempt = described["run_id"], described["attempt"]
        if watched is None or attempt in watched.known:
            return
        watched.known.add(attempt)
        if described["is_finished"] and node in watched.unheard:
            return
        self._watchers.publish_here(self._copy(node, described))

    async def _copy_from(self, node: int, run_id: str) -> LocalRun | None:
        """Return the copy of another node's run. Raises StoreUnavailable."""
        for described in await self._ask(node, runs={run_id: 0}):
            return await self.copied(node, described)
        return None

    async def _copy_from_any(self, run_id: str) -> LocalRun | None:
        found: list[LocalRun] = []

        async def ask(node: int) -> None:
            try:
                copy = await self._copy_from(node, run_id)
            except StoreUnavailable:
                return
            if copy is not None:
                found.append(copy)

        async with anyio.create_task_group() as tasks:
            for node in self._calls.others:
                tasks.start_soon(ask, node)
        return found[0] if found else None

    async def copied(self, node: int, described: Json) -> CopiedRun:
        """Return a copy with all events that its run had when its node described it."""
        copy = self._copy(node, described)
        with anyio.move_on_after(ANSWER_S):
            while copy.log.last_id < described["last_id"] and not copy.log.closed:
                await copy.log.wait_for_change()
        return copy

    def _copy(self, node: int, described: Json) -> CopiedRun:
        """Return the copy of a run. Start it if there is none."""
        found = self._active.get((described["run_id"], described["attempt"]))
        if found is not None:
            return found
        copy = CopiedRun(
            row=_row_of(described),
            graph_id=described["graph_id"],
            ticket=QueueTicket(described["thread_id"]),
            temporary=described["temporary"],
            restartable=described["restartable"],
            attempt=described["attempt"],
            in_graph=True,
            node=node,
            cancel=lambda action: self._cancel(copy, action),
        )
        copy.log = EventLog(state=copy.values_json, first=first_event_number(copy.attempt))
        self._active[copy.attempt_id] = copy
        self._tasks.start_soon(self._fill, copy, described)
        return copy

    async def _fill(self, copy: CopiedRun, described: Json) -> None:
        """Add a run's events to its copy until the run or its node ends."""
        with suppress(StoreUnavailable):
            if described["is_finished"] and not await self._read_next(copy):
                # The node writes events of ended runs only on request.
                await self._ask(copy.node, runs={copy.run_id: 0})
        await self._read_events(copy)
        if not copy.log.closed:
            # The next attempt of a restartable run is another copy, or a run of this node.
            copy.row = replace(copy.row, status="interrupted")
            await self._go_on(copy)
        del self._active[copy.attempt_id]
        self._ended.remove(copy.run_id)  # The kept copy is of an earlier attempt.
        self._ended.add(copy, now=anyio.current_time())
        if copy.following is not None:
            await copy.following.finished.wait()
            copy.finish_like(copy.following)

    async def _read_events(self, copy: CopiedRun) -> None:
        gap_since = 0.0
        while not copy.log.closed and copy.node in self._calls.others and not copy.is_gone:
            copy.wrote = anyio.Event()
            try:
                rows = await self._read_next(copy)
            except StoreUnavailable:
                await anyio.sleep(RETRY_S)
                continue
            if not rows or copy.add(rows):
                gap_since = 0.0
            elif not gap_since:
                gap_since = anyio.current_time()
            elif anyio.current_time() - gap_since >= GAP_S:
                copy.encoded_values = await self._values(copy)
                copy.log.skip_to(rows[0].first_id)
                copy.add(rows)
            is_caught_up = gap_since or len(rows) < ROWS_PER_READ
            if is_caught_up and not copy.finished.is_set():
                with anyio.move_on_after(POLL_S):
                    await copy.wrote.wait()

    async def _read_next(self, copy: CopiedRun) -> Sequence[EventRow]:
        """Return the next rows of an attempt. Raises StoreUnavailable."""
        until = first_event_number(copy.attempt + 1) - 1
        return await self._store.read(copy.run_id, after=copy.log.last_id, until=until)

    async def _go_on(self, copy: CopiedRun) -> None:
        """Find the attempt that follows a lost one. If there is none, end the copy."""
        for _ in range(NEXT_ATTEMPTS):
            try:
                following = await self.find(copy.run_id, thread_id=_thread_of(copy))
            except StoreUnavailable:
                await anyio.sleep(NEXT_S)
                continue
            if following is None:
                break
            if following.attempt > copy.attempt:
                copy.go_on(following)
                return
            await anyio.sleep(NEXT_S)
        await self._end(copy)

    async def _end(self, copy: CopiedRun) -> None:
        """End a copy as its run's row says, because no node has the run any longer."""
        status: RunStatus = "interrupted"
        result: bytes | None = None
        try:
            row = await self._runs.rows.get(copy.thread_id, copy.run_id)
            status, result = row.status, await self._values(copy)
            if row.error:
                result = dumps({"__error__": row.error})
        except (RowNotFound, StoreUnavailable):
            pass
        copy.log.append("end", dumps({"run_id": copy.run_id, "status": status}))
        copy.end(status, result)

    async def _values(self, copy: CopiedRun) -> bytes | None:
        """Return the state of a run's thread. None = it cannot be read."""
        try:
            thread = await self._runs.threads.get(copy.thread_id)
            return dumps(await ThreadStates(self._runs).values(thread))
        except (RowNotFound, StoreUnavailable):
            return None


def _thread_of(live: LocalRun) -> str:
    return "" if live.temporary else live.thread_id


def describe(live: LocalRun) -> Json:
    """Return the description that another node needs to copy a run."""
    return {
        "run_id": live.run_id,
        "thread_id": live.thread_id,
        "graph_id": live.graph_id,
        "assistant_id": live.row.assistant_id,
        "created_at": live.row.created_at,
        "is_finished": live.is_finished,
        "temporary": live.temporary,
        "restartable": live.restartable,
        "attempt": live.attempt,
        "last_id": live.log.last_id,
    }


def _row_of(described: Mapping[str, Any]) -> Run:
    return Run(
        run_id=described["run_id"],
        thread_id=described["thread_id"],
        assistant_id=described["assistant_id"],
        status="running",
        metadata={},
        kwargs={},
        multitask_strategy="enqueue",
        created_at=described["created_at"],
        updated_at=described["created_at"],
    )
