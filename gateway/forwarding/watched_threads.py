"""WatchedThreads: copies the runs of other nodes on threads that clients of this node watch, event by event."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import orjson
from anyio.abc import TaskGroup
from starlette.types import Message, Scope
from typing_extensions import override

from agent.thread_queue import QueueTicket
from gateway.forwarding.requests import NodeRequests, ResponseBroken
from gateway.langgraph.responses import HOPS
from gateway.runtime.event_log import EventLog
from gateway.runtime.finished_runs import FinishedRuns
from gateway.runtime.live_run import LiveRun, first_event_number
from gateway.runtime.serialization import dumps
from gateway.runtime.settings import RuntimeSettings
from gateway.runtime.subscribers import RunsElsewhere, ThreadSubscribers
from store.errors import StoreUnavailable
from store.node_calls import NodeCalls
from store.runs import Run

RENEW_S = 2.0
"""How often the other nodes are told again what is watched, seconds. Then a lost note is made good."""

WATCHED_S = 30.0
"""A node that did not tell again for so long, seconds, watches no more."""

ANSWER_S = 2.0
"""How long a client waits for the nodes that do not answer, seconds."""

FETCH_S = 5.0
"""How long a client waits for the events of runs that ended elsewhere, seconds."""

MAX_ATTEMPTS = 5
"""How often the events of a run are asked for without getting any."""

PAUSE_S = 0.2

WATCH, STARTED = "threads.watch", "threads.started"

Json = dict[str, Any]


@dataclass(slots=True)
class _Watched:
    """A thread that clients of this node watch.

    Attributes:
        unheard: Nodes that were there before, and have not answered yet: runs that are over there are old.
        known: The runs that are copied, or are over since before.
        told: Set when the nodes have answered, or were waited for long enough.
    """

    unheard: set[int]
    known: set[tuple[str, int]] = field(default_factory=set)
    told: anyio.Event = field(default_factory=anyio.Event)


class WatchedThreads(RunsElsewhere):
    """Tells other nodes which threads are watched here, and copies the runs that they start on these.

    A copy has all events of its run from the first one, however late this node learns of it.

    Args:
        subscribers: The clients of this node, and the node's own runs.
        calls: Calls to other nodes.
        requests: Gets the events from them.
        tasks: Runs the copying.
    """

    def __init__(
        self,
        subscribers: ThreadSubscribers,
        calls: NodeCalls,
        requests: NodeRequests,
        tasks: TaskGroup,
    ) -> None:
        settings = RuntimeSettings()
        self._subscribers = subscribers
        self._calls = calls
        self._requests = requests
        self._tasks = tasks
        self._watched: dict[str, _Watched] = {}
        self._watchers: dict[str, dict[int, float]] = {}
        self._active: dict[tuple[str, int], LiveRun] = {}
        self._ended = FinishedRuns(keep_s=settings.keep_s, keep_bytes=settings.keep_bytes)
        calls.serve(WATCH, self._add_watcher)
        calls.receive(STARTED, self._take_started)

    @override
    async def watch(self, thread_id: str) -> None:
        watched = self._watched.get(thread_id)
        if watched is not None:
            await watched.told.wait()
            return
        watched = self._watched[thread_id] = _Watched(set(self._calls.others))
        try:
            await self._tell([thread_id])
        finally:
            watched.told.set()

    @override
    def announce(self, live: LiveRun) -> None:
        now = anyio.current_time()
        for node, until in self._watchers.get(live.thread_id, {}).items():
            if until > now and node in self._calls.others:
                self._calls.tell(node, STARTED, dumps(_described(live)).decode())

    @override
    def copies(self, thread_id: str) -> list[LiveRun]:
        active = [live for live in self._active.values() if live.thread_id == thread_id]
        return self._ended.for_thread(thread_id) + active

    @override
    async def fetch_ended(self, thread_id: str) -> list[LiveRun]:
        found: list[LiveRun] = []

        async def ask(node: int) -> None:
            try:
                begun = await self._ask(node, [thread_id])
            except StoreUnavailable:
                return
            for described in begun:
                if described["is_finished"]:
                    live = _copy_of(described)
                    await self._copy_events(node, live)
                    found.append(live)

        with anyio.move_on_after(FETCH_S):
            async with anyio.create_task_group() as tasks:
                for node in self._calls.others:
                    tasks.start_soon(ask, node)
        return found

    async def run(self) -> None:
        """Tell again what is watched, until cancelled."""
        while True:
            with anyio.move_on_after(RENEW_S):
                await self._calls.database.nodes.wait_change()
            self._watched = {
                thread_id: watched
                for thread_id, watched in self._watched.items()
                if self._subscribers.has(thread_id)
            }
            now = anyio.current_time()
            self._ended.evict(now=now)
            for thread_id, nodes in list(self._watchers.items()):
                if not any(until > now for until in nodes.values()):
                    del self._watchers[thread_id]
            if self._watched:
                await self._tell(list(self._watched))

    async def _tell(self, threads: list[str]) -> None:
        async with anyio.create_task_group() as tasks:
            for node in self._calls.others:
                tasks.start_soon(self._tell_node, node, threads)

    async def _tell_node(self, node: int, threads: list[str]) -> None:
        try:
            begun = await self._ask(node, threads)
        except StoreUnavailable:
            return
        for described in begun:
            self._take(node, described)
        for thread_id in threads:
            if watched := self._watched.get(thread_id):
                watched.unheard.discard(node)

    async def _ask(self, node: int, threads: list[str]) -> list[Json]:
        """Tell a node what is watched; return its runs on these threads. Raises StoreUnavailable."""
        body = dumps({"node": self._calls.node, "threads": threads}).decode()
        answer = await self._calls.call(node, WATCH, body, within_s=ANSWER_S)
        return list(orjson.loads(answer))

    async def _add_watcher(self, body: str) -> str:
        """Note what another node watches; return the runs of this node on these threads."""
        asked: Json = orjson.loads(body)
        until = anyio.current_time() + WATCHED_S
        begun: list[LiveRun] = []
        for thread_id in asked["threads"]:
            self._watchers.setdefault(thread_id, {})[asked["node"]] = until
            begun += self._subscribers.own_runs(thread_id)
        return dumps([_described(live) for live in begun]).decode()

    def _take_started(self, node: int, body: str) -> None:
        self._take(node, orjson.loads(body))

    def _take(self, node: int, described: Json) -> None:
        """Copy a run of another node, unless it is known, or was over before anybody watched."""
        watched = self._watched.get(described["thread_id"])
        attempt = described["run_id"], described["attempt"]
        if watched is None or attempt in watched.known:
            return
        watched.known.add(attempt)
        if described["is_finished"] and node in watched.unheard:
            return
        live = _copy_of(described)
        self._active[live.attempt_id] = live
        self._subscribers.publish_here(live)
        self._tasks.start_soon(self._copy, node, live)

    async def _copy(self, node: int, live: LiveRun) -> None:
        await self._copy_events(node, live)
        del self._active[live.attempt_id]
        self._ended.remove(live.run_id)  # an earlier attempt
        self._ended.add(live, now=anyio.current_time())

    async def _copy_events(self, node: int, live: LiveRun) -> None:
        """Add the events of a run to its copy until it ends, or its node does."""
        frames = _Frames(live)
        failures = 0
        while not live.is_finished and node in self._calls.others and failures < MAX_ATTEMPTS:
            before = live.log.last_id
            try:
                scope = _stream_scope(live)
                await self._requests.forward(node, scope, b"", _never, frames.take)
            except (StoreUnavailable, ResponseBroken):
                await anyio.sleep(PAUSE_S)
            frames.reset()
            failures = 0 if live.log.last_id > before else failures + 1
        if not live.is_finished:
            # The next attempt of a restartable run is another copy, or a run of this node.
            live.row = replace(live.row, status="interrupted")
            if not live.restartable:
                frames.add("end", dumps({"run_id": live.run_id, "status": "interrupted"}))
        live.log.close()
        live.finished.set()


class _Frames:
    """Reads the frames of a run's stream into its copy."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live
        self._rest = b""

    async def take(self, message: Message) -> None:
        """Take a part of the response."""
        *frames, self._rest = (self._rest + message.get("body", b"")).split(b"\n\n")
        for frame in frames:
            lines = dict(_fields(frame))
            if b"event" in lines and int(lines[b"id"]) > self._live.log.last_id:
                self.add(lines[b"event"].decode(), lines[b"data"])

    def reset(self) -> None:
        """Begin with another response."""
        self._rest = b""

    def add(self, name: str, data: bytes) -> None:
        """Add an event to the copy; its last one ends it."""
        live = self._live
        live.log.append(name, data)
        if name == "end":
            live.row = replace(live.row, status=orjson.loads(data)["status"])


def _fields(frame: bytes) -> Iterable[tuple[bytes, bytes]]:
    for line in frame.split(b"\n"):
        name, _, value = line.partition(b": ")
        yield name, value


def _described(live: LiveRun) -> Json:
    return {
        "run_id": live.run_id,
        "thread_id": live.thread_id,
        "graph_id": live.graph_id,
        "assistant_id": live.row.assistant_id,
        "created_at": live.row.created_at,
        "is_finished": live.is_finished,
        "restartable": live.restartable,
        "attempt": live.attempt,
    }


def _copy_of(described: Json) -> LiveRun:
    thread_id: str = described["thread_id"]
    row = Run(
        run_id=described["run_id"],
        thread_id=thread_id,
        assistant_id=described["assistant_id"],
        status="running",
        metadata={},
        kwargs={},
        multitask_strategy="enqueue",
        created_at=described["created_at"],
        updated_at=described["created_at"],
    )
    attempt: int = described["attempt"]
    return LiveRun(
        row=row,
        graph_id=described["graph_id"],
        ticket=QueueTicket(thread_id),
        temporary=False,
        restartable=described["restartable"],
        attempt=attempt,
        log=EventLog(first=first_event_number(attempt)),
        in_graph=True,
    )


def _stream_scope(live: LiveRun) -> Scope:
    """Return a request for the events of a run after those that the copy has."""
    return {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "http_version": "1.1",
        "root_path": "",
        "path": f"/api/threads/{live.thread_id}/runs/{live.run_id}/stream",
        "query_string": b"",
        "headers": [(b"last-event-id", b"%d" % live.log.last_id)],
        HOPS: 0,
    }


async def _never() -> Message:
    await anyio.sleep_forever()
    raise AssertionError
