"""The thread protocol: the events of a thread's runs as one numbered sequence, in LangChain's newer form.

Events are encoded once for all subscribers of a thread, and only while there are any. Values, updates and similar data
are passed on as the JSON that they already are.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from gateway.runtime.checkpoint_order import CheckpointOrdering
from gateway.runtime.content_blocks import ContentBlockEncoder
from gateway.runtime.event_log import EventLogReader
from gateway.runtime.events import RunEvent
from gateway.runtime.graph_tree import GraphTree, Namespace, graph_name
from gateway.runtime.local_run import LocalRun
from gateway.runtime.serialization import dumps

MAX_EVENTS = 10_000
"""Maximum number of events kept per thread for late subscribers."""

MAX_BYTES = 8 * 1024 * 1024
"""Size limit of a thread's kept events."""

MAX_TOTAL_BYTES = 64 * 1024 * 1024
"""Size limit of all threads' kept events. Beyond it, the least recently read thread is dropped."""

MAX_THREADS = 100
"""Maximum number of threads whose events are kept. A dropped thread starts again with number 1."""

PROTOCOL_STREAM_MODES = ("values", "updates", "messages-tuple", "custom", "tasks", "checkpoints")
"""The stream modes that the protocol needs."""

GAP_METHOD = "error"
"""The method of the event that replaces missing events. All subscriptions get it."""

RESUME_GAP = dumps(
    {
        "type": "error",
        "id": None,
        "error": "resume_gap",
        "message": "Events are missing here: read the thread's state.",
    }
)
"""Sent to a client before events that do not follow the last one it has."""

_PASSTHROUGH = frozenset({"values", "updates", "custom", "tasks", "checkpoints"})
_INTERRUPT_KEY = b'"__interrupt__"'

MethodData = tuple[str, Any]
"""Method and data. Bytes are encoded JSON."""


@dataclass(frozen=True, slots=True)
class ProtocolEvent:
    """One event of a thread.

    Attributes:
        seq: 1, 2, 3 ... within the thread.
        event_id: Stays the same after the thread's log was dropped and rebuilt.
        method: `values`, `messages`, `lifecycle`, `input.requested` ...
        name: The `name` of a custom event's data.
        data: The complete event as JSON.
    """

    seq: int
    event_id: str
    method: str
    namespace: tuple[str, ...]
    name: str | None
    data: bytes

    @property
    def channel(self) -> str:
        """The channel that clients subscribe to for it."""
        return "input" if self.method == "input.requested" else self.method


class ProtocolEncoder:
    """Encodes the events of one run in the protocol's form.

    Attributes:
        tree: The run's graphs.
    """

    def __init__(self, graph_id: str) -> None:
        self.tree = GraphTree(graph_id)
        self._graph_id = graph_id
        self._messages: dict[tuple[str, ...], ContentBlockEncoder] = {}
        self._ordering = CheckpointOrdering()
        self._error: str | None = None
        self._is_interrupted = False
        self._interrupts: list[Any] = []

    def encode(self, event: RunEvent) -> Iterator[tuple[tuple[str, ...], MethodData]]:
        """Yield (namespace, (method, data)) for one event. Values are delayed until the next event."""
        return self._ordering.reorder(self._encode_in_order(event))

    def _encode_in_order(self, event: RunEvent) -> Iterator[tuple[tuple[str, ...], MethodData]]:
        mode, _, rest = event.name.partition("|")
        namespace = tuple(rest.split("|")) if rest else ()
        for inner in self.tree.add_namespace(namespace):
            yield inner, ("lifecycle", {"event": "started", "graph_name": graph_name(inner)})
        if mode == "messages":
            for said in self._encode_message(namespace, event.data):
                yield namespace, said
        elif mode in _PASSTHROUGH:
            for said in self._encode_passthrough(mode, namespace, event.data):
                yield namespace, said
            if mode == "tasks" and (ended := self.tree.finish_task(event.data)) is not None:
                yield _subgraph_ended(*ended)
        else:
            yield from self._encode_control(mode, event.data)

    def _encode_message(self, namespace: Namespace, data: bytes) -> Iterator[MethodData]:
        pieces = self._messages.setdefault(namespace, ContentBlockEncoder())
        message = orjson.loads(data)[0]
        for piece in pieces.encode(message):
            yield "messages", piece
            is_end = piece["event"] == "content-block-finish"
            if is_end and piece["content"].get("type") == "tool_call":
                yield "tools", _tool_started(piece["content"])
        if message.get("type") == "tool":
            yield "tools", _tool_finished(message)

    def _encode_passthrough(
        self, mode: str, namespace: tuple[str, ...], data: bytes
    ) -> Iterator[MethodData]:
        if namespace or mode not in {"values", "updates"} or _INTERRUPT_KEY not in data:
            yield mode, data
            return
        whole = orjson.loads(data)
        asked = whole.pop("__interrupt__", None)
        self._is_interrupted = self._is_interrupted or asked is not None
        if mode == "values":
            self._interrupts = asked or []
        if whole:
            yield mode, whole

    def _encode_control(
        self, mode: str, data: bytes
    ) -> Iterator[tuple[tuple[str, ...], MethodData]]:
        if mode == "metadata":
            yield (), ("lifecycle", self._lifecycle_data("running"))
        elif mode == "error":
            self._error = str(orjson.loads(data).get("message"))
        elif mode == "end":
            for namespace, pieces in self._messages.items():
                for piece in pieces.finish_all(self._error):
                    yield namespace, ("messages", piece)
            for one in self._interrupts:
                # Sent only at the end, because a client that answers must find the interrupt on disk.
                asked = {"interrupt_id": one["id"], "payload": one["value"], "value": one["value"]}
                yield (), ("input.requested", asked)
            status = self._final_status(orjson.loads(data)["status"])
            for ended in self.tree.finish(status):
                yield _subgraph_ended(*ended)
            yield (), ("lifecycle", self._lifecycle_data(status))

    def _final_status(self, status: str) -> str:
        if status == "success":
            return "interrupted" if self._is_interrupted else "completed"
        return "interrupted" if status == "interrupted" else "failed"

    def _lifecycle_data(self, event: str) -> dict[str, str]:
        data = {"event": event, "graph_name": self._graph_id}
        if event == "failed":
            data["error"] = self._error or "The run failed."
        return data


def _subgraph_ended(namespace: Namespace, status: str) -> tuple[Namespace, MethodData]:
    data = {"event": status, "graph_name": graph_name(namespace)}
    if status == "failed":
        data["error"] = "The graph failed."
    return namespace, ("lifecycle", data)


def _tool_started(call: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "event": "tool-started",
        "tool_call_id": call["id"],
        "tool_name": call["name"],
        "input": call["args"],
    }


def _tool_finished(message: Mapping[str, Any]) -> dict[str, Any]:
    data = {"tool_call_id": message.get("tool_call_id")}
    if message.get("status") == "error":
        return {"event": "tool-error", **data, "message": str(message.get("content"))}
    return {"event": "tool-finished", **data, "output": dict(message)}


class ThreadEventLog:
    """The numbered events of a thread's runs since its first subscription."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._events: deque[ProtocolEvent] = deque()
        self.bytes = 0
        self._readers: dict[tuple[str, int], tuple[ProtocolEncoder, EventLogReader]] = {}
        self.last_seq = 0

    def advance(self, begun: Sequence[LocalRun]) -> None:
        """Read the new events of the thread's runs, oldest run first.

        If an attempt follows one that broke off, a gap comes first, and late events of the broken attempt are dropped.
        """
        for live in begun:
            if live.row.status == "interrupted" and not live.in_graph:
                continue  # It stopped before it began.
            key = live.attempt_id
            newest_attempt = max(self._attempts(live.run_id), default=0)
            if newest_attempt > live.attempt:
                continue
            if key not in self._readers:
                if newest_attempt:
                    self._append_gap(*key)
                self._readers[key] = ProtocolEncoder(live.graph_id), live.log.subscribe()
            run, reader = self._readers[key]
            while reader.position < live.log.last_id and (events := reader.read()):
                for event in events:
                    self._append(live.run_id, run, event)
        known = {live.attempt_id for live in begun}
        self._readers = {key: value for key, value in self._readers.items() if key in known}

    def read(self, after: int) -> list[ProtocolEvent]:
        """Return the kept events after a number. A number beyond the last one returns all."""
        count = self.last_seq if after > self.last_seq else self.last_seq - after
        newest_first = list(islice(reversed(self._events), count))
        return newest_first[::-1]

    def has_gap_after(self, after: int) -> bool:
        """Return whether events right after a number were dropped."""
        first = self._events[0].seq if self._events else self.last_seq + 1
        return 0 < after <= self.last_seq and after + 1 < first

    def find_seq(self, event_id: str) -> int | None:
        """Return the number of a kept event. None = unknown."""
        return next((one.seq for one in reversed(self._events) if one.event_id == event_id), None)

    def tree(self, run_id: str) -> GraphTree | None:
        """Return the graphs of a run's last attempt, if its events were read."""
        attempts = self._attempts(run_id)
        return self._readers[run_id, max(attempts)][0].tree if attempts else None

    def _attempts(self, run_id: str) -> list[int]:
        """Return the attempts of a run whose events are read."""
        return [attempt for read_id, attempt in self._readers if read_id == run_id]

    def _append_gap(self, run_id: str, attempt: int) -> None:
        self.last_seq += 1
        event_id = f"{run_id}:gap.{attempt}"
        self._retain(ProtocolEvent(self.last_seq, event_id, GAP_METHOD, (), None, RESUME_GAP))

    def _append(self, run_id: str, run: ProtocolEncoder, event: RunEvent) -> None:
        stamp = int(self._now() * 1000)
        for number, (namespace, (method, data)) in enumerate(run.encode(event)):
            self.last_seq += 1
            encoded = data if isinstance(data, bytes) else dumps(data)
            event_id = f"{run_id}:{event.id}.{number}"
            whole = (
                b'{"type":"event","event_id":"%b","seq":%d,"method":"%b",'
                b'"params":{"namespace":%b,"timestamp":%d,"data":%b}}'
            ) % (
                event_id.encode(),
                self.last_seq,
                method.encode(),
                dumps(namespace),
                stamp,
                encoded,
            )
            name = _custom_name(encoded) if method == "custom" else None
            self._retain(ProtocolEvent(self.last_seq, event_id, method, namespace, name, whole))

    def _retain(self, event: ProtocolEvent) -> None:
        self._events.append(event)
        self.bytes += len(event.data)
        while len(self._events) > MAX_EVENTS or self.bytes > MAX_BYTES:
            self.bytes -= len(self._events.popleft().data)


class ThreadEventLogs:
    """The event logs of the threads that were read most recently."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sequences: OrderedDict[str, ThreadEventLog] = OrderedDict()

    def for_thread(self, thread_id: str) -> ThreadEventLog:
        """Return a thread's event log. Create it if there is none."""
        found = self._sequences.setdefault(thread_id, ThreadEventLog(self._now))
        self._sequences.move_to_end(thread_id)
        while len(self._sequences) > 1 and (
            len(self._sequences) > MAX_THREADS
            or sum(log.bytes for log in self._sequences.values()) > MAX_TOTAL_BYTES
        ):
            self._sequences.popitem(last=False)
        return found


def _custom_name(data: bytes) -> str | None:
    value = orjson.loads(data)
    name = value.get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else None
