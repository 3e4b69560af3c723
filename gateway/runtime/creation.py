"""RunCreation: stores a request's run, and reads the stored request of a run that starts again."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import anyio
import orjson
from anyio.abc import TaskGroup

from agent.thread_queue import QueueTicket
from gateway.runtime.assistants import assistant_id_for_graph
from gateway.runtime.errors import InvalidRequest, RuntimeClosing
from gateway.runtime.finalizer import RunFinalizer
from gateway.runtime.local_run import LocalRun
from gateway.runtime.request import GraphRunRequest, parse_messages
from gateway.runtime.serialization import dumps
from gateway.runtime.stream_modes import parse_stream_modes
from store.checkpoints import CheckpointSaver
from store.errors import OutcomeUnknown, RowNotFound, StoreUnavailable
from store.run_requests import AbandonedRun
from store.runs import Run, RunStore

_OTHER_FORM = frozenset({"modes", "kwargs", "restartable"})
_STORED_FIELDS = [field for field in fields(GraphRunRequest) if field.name not in _OTHER_FORM]
"""Fields of a request that are stored as they are. The other fields are stored in another form, or not at all."""


def new_local_run(
    request: GraphRunRequest,
    *,
    run_id: str,
    thread_id: str,
    graph_id: str,
    created_at: float,
    temporary: bool,
) -> LocalRun:
    """Return a pending run, without its first event. `created_at`: Unix seconds."""
    assistant_id = request.shown_assistant_id or assistant_id_for_graph(graph_id)
    row = Run(
        run_id=run_id,
        thread_id=thread_id,
        assistant_id=assistant_id,
        status="pending",
        metadata={"graph_id": graph_id, **request.metadata, "assistant_id": assistant_id},
        kwargs=dict(request.kwargs),
        multitask_strategy=request.multitask,
        start_key=request.start_key,
        created_at=created_at,
        updated_at=created_at,
    )
    return LocalRun(
        row=row,
        graph_id=graph_id,
        ticket=QueueTicket(thread_id),
        temporary=temporary,
        webhook_url=request.webhook,
        restartable=request.restartable,
    )


def encode_request(request: GraphRunRequest, live: LocalRun) -> str:
    """Return the stored form of a request, JSON. If the run has a row, its `kwargs` are stored there instead."""
    stored = {
        **encode_start(request),
        "thread_id": live.thread_id,
        "graph_id": live.graph_id,
        "kwargs": request.kwargs if live.temporary else None,
    }
    return dumps(stored).decode()


def encode_start(request: GraphRunRequest) -> dict[str, Any]:
    """Return a request as JSON, for another node that will start it."""
    return {
        **{field.name: getattr(request, field.name) for field in _STORED_FIELDS},
        "stream_mode": sorted(request.modes.requested),
        "subgraphs": request.modes.subgraphs,
        "kwargs": request.kwargs,
        "restartable": request.restartable,
    }


def decode_start(body: Mapping[str, Any], **changed: Any) -> GraphRunRequest:  # noqa: ANN401 - fields of a request
    """Return the request that `encode_start` encoded, with some fields changed.

    Raises KeyError, TypeError, ValueError.
    """
    given = {field.name: body[field.name] for field in _STORED_FIELDS if field.name in body}
    modes = parse_stream_modes(body["stream_mode"], subgraphs=body["subgraphs"])
    others = {"kwargs": body["kwargs"] or {}, "restartable": body.get("restartable", True)}
    return GraphRunRequest(**(given | {"modes": modes} | others | changed))


def decode_abandoned_run(
    abandoned: AbandonedRun, *, now: float
) -> tuple[GraphRunRequest, LocalRun]:
    """Return the request of a run that is started again, and its next attempt.

    `now`: Unix seconds. The part of a delay that has passed is not repeated.

    Raises:
        InvalidRequest: Another version stored the request in a form that cannot be read.
    """
    try:
        body: dict[str, Any] = orjson.loads(abandoned.body)
        rest_s = max(0.0, body["after_seconds"] - (now - abandoned.created_at))
        request = decode_start(body, after_seconds=rest_s)
        if abandoned.kwargs:
            request = replace(request, kwargs=orjson.loads(abandoned.kwargs) or request.kwargs)
        live = _next_attempt(abandoned, request, body)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(f"The stored request cannot be read: {error!r}") from error
    return request, live


def _next_attempt(
    abandoned: AbandonedRun, request: GraphRunRequest, body: Mapping[str, Any]
) -> LocalRun:
    live = new_local_run(
        request,
        run_id=abandoned.run_id,
        thread_id=body["thread_id"],
        graph_id=body["graph_id"],
        created_at=abandoned.created_at,
        temporary=abandoned.thread_id is None,
    )
    live.attempt, live.crashes = abandoned.attempt, abandoned.crashes
    # JSON may contain other line separators.
    lines = abandoned.messages.rstrip("\n").split("\n") if abandoned.messages else []
    live.messages = parse_messages([orjson.loads(line) for line in lines])
    return live


@dataclass(slots=True, eq=False)
class _Write:
    """One write. `is_late`: its caller has stopped waiting for it."""

    error: Exception | None = field(default_factory=RuntimeClosing)  # If the write is cut off.
    is_late: bool = False
    over: anyio.Event = field(default_factory=anyio.Event)


class RunCreation:
    """Writes the starts of runs.

    Args:
        rows: The runs' rows.
        finalizer: Reverts starts that were written too late.
        write_s: Time limit of a write, seconds.
    """

    def __init__(self, rows: RunStore, finalizer: RunFinalizer, *, write_s: float) -> None:
        self._rows = rows
        self._finalizer = finalizer
        self._write_s = write_s

    async def save(self, tasks: TaskGroup, live: LocalRun, request: GraphRunRequest) -> None:
        """Write the start of a run, and the data to start it again.

        Args:
            tasks: Owns the write, because the database may finish it after its caller has stopped waiting.
            live: The run.
            request: The run's request.

        Raises:
            RowNotFound, RunExists, ThreadAtOtherNode: See `RunStore.create`.
            StoreUnavailable: It could not be written in time. If it is written later, it is reverted.
            RuntimeClosing: This process is stopping.
        """
        stored = encode_request(request, live) if live.restartable else None
        if live.temporary and stored is None:
            return
        write = _Write()
        tasks.start_soon(self._write, write, live, request, stored)
        with anyio.move_on_after(self._write_s):
            await write.over.wait()
        if not write.over.is_set():
            write.is_late = True
            self._finalizer.undone.add(
                live.run_id
            )  # Other nodes do not find the run, and so do not start it again.
            raise StoreUnavailable("The database did not store the run in time.")
        error, write.error = write.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # Its traceback contains this frame: see `store.unit_of_work.result_of`.

    async def _write(
        self, write: _Write, live: LocalRun, request: GraphRunRequest, stored: str | None
    ) -> None:
        try:
            await self._insert(live, request, stored)
            write.error = None
        except Exception as error:  # noqa: BLE001 - the caller of `save` gets it
            write.error = error
            if isinstance(error, OutcomeUnknown):
                self._finalizer.undone.add(live.run_id)
        finally:
            write.over.set()
        if (write.is_late and write.error is None) or isinstance(write.error, OutcomeUnknown):
            await self._finalizer.undo_start(live)
        else:
            self._finalizer.undone.discard(live.run_id)

    async def _insert(self, live: LocalRun, request: GraphRunRequest, stored: str | None) -> None:
        if live.temporary:
            await self._rows.requests.create(live.run_id, stored or "", now=live.row.created_at)
            return
        await self._rows.create(
            replace(live.row, status="running") if live.ticket.ready.is_set() else live.row,
            tags={"graph_id": live.graph_id, "assistant_id": live.row.assistant_id},
            create_thread=request.create_thread or request.thread_id is None,
            request=stored,
            undone=self._finalizer.undone,
        )


async def require_checkpoint(
    saver: CheckpointSaver, thread_id: str, checkpoint: Mapping[str, Any]
) -> None:
    """Check that a checkpoint has no ID, or one that exists in the thread. Raises RowNotFound."""
    # LangGraph reads the ID of a subgraph's checkpoint from the checkpoint map.
    wanted = checkpoint.get("checkpoint_id")
    if not wanted or checkpoint.get("checkpoint_ns"):
        return
    where = {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": str(wanted)}
    if await saver.aget_tuple({"configurable": where}) is None:
        raise RowNotFound(
            "Checkpoint not found: it belongs to another thread, or was pruned. Continue from the thread's history."
        )
