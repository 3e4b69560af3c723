"""RunCreation: writes the start of a run to disk. One that its client was told had failed leaves nothing there."""

from dataclasses import dataclass, field, replace

import anyio
from anyio.abc import TaskGroup

from gateway.runtime.errors import RuntimeClosing
from gateway.runtime.finalizer import RunFinalizer
from gateway.runtime.live_run import LiveRun
from gateway.runtime.new_run import encode_request
from gateway.runtime.request import GraphRunRequest
from store.errors import OutcomeUnknown, StoreUnavailable
from store.runs import RunStore


@dataclass(slots=True, eq=False)
class _Write:
    """One write. `is_late`: nobody waits for it any more."""

    error: Exception | None = field(default_factory=RuntimeClosing)  # if it is cut off
    is_late: bool = False
    over: anyio.Event = field(default_factory=anyio.Event)


class RunCreation:
    """Writes the starts of runs.

    Args:
        rows: The runs' rows.
        finalizer: Takes back what was written too late.
        write_s: Time limit of a write, seconds.
    """

    def __init__(self, rows: RunStore, finalizer: RunFinalizer, *, write_s: float) -> None:
        self._rows = rows
        self._finalizer = finalizer
        self._write_s = write_s

    async def save(self, tasks: TaskGroup, live: LiveRun, request: GraphRunRequest) -> None:
        """Write the start of a run, and what is needed to start it again.

        Args:
            tasks: Owns the write: the database may carry it out when nobody waits for it any more.
            live: The run.
            request: What it is to do.

        Raises:
            RowNotFound, RunExists, ThreadElsewhere: As of `RunStore.create`.
            StoreUnavailable: It could not be written in time. If it was, or will be, it is taken back.
            RuntimeClosing: This process stops.
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
            self._finalizer.undone.add(live.run_id)  # whoever starts it again does not find it
            raise StoreUnavailable("The database did not take the run in time.")
        error, write.error = write.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback has this frame: see `store.unit_of_work.result_of`

    async def _write(
        self, write: _Write, live: LiveRun, request: GraphRunRequest, stored: str | None
    ) -> None:
        try:
            await self._insert(live, request, stored)
            write.error = None
        except Exception as error:  # noqa: BLE001 - it goes to whoever starts the run
            write.error = error
            if isinstance(error, OutcomeUnknown):
                self._finalizer.undone.add(live.run_id)
        finally:
            write.over.set()
        if (write.is_late and write.error is None) or isinstance(write.error, OutcomeUnknown):
            await self._finalizer.undo_start(live)
        else:
            self._finalizer.undone.discard(live.run_id)

    async def _insert(self, live: LiveRun, request: GraphRunRequest, stored: str | None) -> None:
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
