"""The runs API in any order of requests: statuses, thread locks, events and history stay consistent.

Hypothesis chooses the requests. `PARLEY_TEST_LONG=1` tries many more, and `PARLEY_FUZZ_SEED` reproduces them.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Any, TypeVar

import anyio
import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from typing_extensions import override

from tests.eventually import eventually
from tests.gateway.langgraph_server import serving

T = TypeVar("T")
LONG = os.environ.get("PARLEY_TEST_LONG") == "1"
SEED = int(os.environ.get("PARLEY_FUZZ_SEED") or SystemRandom().randrange(10**6))
EXAMPLES, STEPS = (300, 40) if LONG else (5, 14)

GRAPHS = st.sampled_from(["instant", "agent", "slow", "slow", "boom", "cut", "hitl", "asking"])
"""The graphs. `slow` and `asking` wait for the gate; `hitl` and `asking` end with a question."""

STRATEGIES = st.sampled_from(["enqueue", "reject", "interrupt", "rollback"])
PICK = st.integers(0, 9)
ACTIVE = ("pending", "running")
ENDED = ("success", "error", "timeout", "interrupted")
THREAD_STATUSES = ("idle", "busy", "interrupted", "error")
END_S = 30.0
"""How long a run may take to end once nothing holds it up, seconds."""


@dataclass
class KnownThread:
    """The expected state of a thread after the requests so far.

    Attributes:
        runs: The runs by id, with their last status; "" = not seen yet.
        may_vanish: Runs that a rollback may have deleted.
    """

    id: str
    runs: dict[str, str] = field(default_factory=dict)
    may_vanish: set[str] = field(default_factory=set)


@dataclass
class OpenStream:
    """A stream of events that a client reads.

    Attributes:
        events: (id, name) of each event, once the stream is over.
        may_be_cut: Whether the service stopped in the meantime.
    """

    events: Future[list[tuple[int, str]]]
    may_be_cut: bool = False


class RunsMachine(RuleBasedStateMachine):
    """Any order of requests to the runs API, restarts included."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._portal_context = start_blocking_portal()
        self._portal: BlockingPortal = self._portal_context.__enter__()
        self.threads: list[KnownThread] = []
        self.deleted: list[str] = []
        self.streams: list[OpenStream] = []
        self._is_settling = False
        self._start()

    def _call(self, work: Callable[..., Coroutine[Any, Any, T]], *args: object) -> T:
        result: T = self._portal.call(partial(work, *args))
        return result

    def _start(self) -> None:
        # Entered and left by the same task, as task groups require.
        self._stack = ExitStack()
        service = self._portal.wrap_async_context_manager(serving(Path(self._folder.name)))
        self._api = self._stack.enter_context(service)

    def _stop(self) -> None:
        self._stack.close()

    @override
    def teardown(self) -> None:
        try:
            if not self._is_settling:  # otherwise settling failed
                self._settle()
        finally:
            self._stop()
            self._portal_context.__exit__(None, None, None)
            self._folder.cleanup()

    # ---- requests ------------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: Mapping[str, str | int] | None = None,
    ) -> httpx.Response:
        async def ask() -> httpx.Response:
            with anyio.fail_after(END_S):
                return await self._api.http.request(method, path, json=json, params=params)

        return self._call(ask)

    def _thread(self, pick: int) -> KnownThread:
        return self.threads[pick % len(self.threads)]

    def _body(self, graph: str, strategy: str) -> dict[str, Any]:
        return {"assistant_id": graph, "input": {"n": 1}, "multitask_strategy": strategy}

    def _note_rollback(self, thread: KnownThread) -> None:
        thread.may_vanish |= {
            run_id for run_id, status in thread.runs.items() if status not in ENDED
        }

    @precondition(lambda self: len(self.threads) < 2)
    @rule()
    def create_thread(self) -> None:
        answer = self._ask("POST", "/threads", json={})
        assert answer.status_code == 200, answer.text
        self.threads.append(KnownThread(answer.json()["thread_id"]))

    @precondition(lambda self: self.threads)
    @rule(pick=PICK, graph=GRAPHS, strategy=STRATEGIES)
    def start_run(self, pick: int, graph: str, strategy: str) -> None:
        thread = self._thread(pick)
        body = self._body(graph, strategy)
        answer = self._ask("POST", f"/threads/{thread.id}/runs", json=body)
        assert answer.status_code in ((200, 409) if strategy == "reject" else (200,)), answer.text
        if answer.status_code == 200:
            if strategy == "rollback":
                self._note_rollback(thread)
            thread.runs[answer.json()["run_id"]] = ""

    @precondition(lambda self: self.threads)
    @rule(pick=PICK, graph=GRAPHS, strategy=STRATEGIES)
    def stream_run(self, pick: int, graph: str, strategy: str) -> None:
        thread = self._thread(pick)
        self._listen("POST", thread, "/runs/stream", json=self._body(graph, strategy))
        if strategy == "rollback":
            self._note_rollback(thread)

    @precondition(lambda self: self.threads)  # deterministic, as Hypothesis requires
    @rule(pick=PICK, which=PICK)
    def join_stream(self, pick: int, which: int) -> None:
        thread = self._thread(pick)
        if thread.runs:
            run_id = list(thread.runs)[which % len(thread.runs)]
            self._listen("GET", thread, f"/runs/{run_id}/stream")

    @precondition(lambda self: self.threads)  # deterministic, as Hypothesis requires
    @rule(
        pick=PICK,
        which=PICK,
        action=st.sampled_from(["interrupt", "rollback"]),
        wait=st.booleans(),
    )
    def cancel(self, pick: int, which: int, action: str, *, wait: bool) -> None:
        thread = self._thread(pick)
        if not thread.runs:
            return
        run_id = list(thread.runs)[which % len(thread.runs)]
        query = {"action": action, "wait": str(wait).lower()}
        answer = self._ask("POST", f"/threads/{thread.id}/runs/{run_id}/cancel", params=query)
        assert answer.status_code in (200, 202, 404), answer.text
        if answer.status_code == 404:
            assert thread.runs[run_id] not in ACTIVE or self._status(thread, run_id) not in ACTIVE
        elif action == "rollback":
            thread.may_vanish.add(run_id)
        if answer.status_code == 200:
            assert self._status(thread, run_id) not in ACTIVE

    @precondition(lambda self: self.threads)
    @rule(pick=PICK)
    def resume(self, pick: int) -> None:
        thread = self._thread(pick)
        body = {"assistant_id": "hitl", "command": {"resume": "yes"}}
        answer = self._ask("POST", f"/threads/{thread.id}/runs", json=body)
        assert answer.status_code in (200, 409, 422), answer.text
        if answer.status_code == 200:
            thread.runs[answer.json()["run_id"]] = ""

    @precondition(lambda self: self.threads)
    @rule(pick=PICK, number=st.integers(0, 99))
    def update_state(self, pick: int, number: int) -> None:
        thread = self._thread(pick)
        answer = self._ask("POST", f"/threads/{thread.id}/state", json={"values": {"n": number}})
        # 400: no run has set the thread's graph yet, or the graph cannot tell which node wrote the values.
        assert answer.status_code in (200, 400, 409, 422), answer.text
        if answer.status_code == 200 and not self._active(thread):
            state = self._ask("GET", f"/threads/{thread.id}/state").json()
            assert state["values"]["n"] == number
            assert state["checkpoint"]["checkpoint_id"] == answer.json()["checkpoint_id"]

    @precondition(lambda self: self.threads)
    @rule(pick=PICK)
    def delete_thread(self, pick: int) -> None:
        thread = self._thread(pick)
        answer = self._ask("DELETE", f"/threads/{thread.id}")
        assert answer.status_code == 204, answer.text
        self.threads.remove(thread)
        self.deleted.append(thread.id)

    @precondition(lambda self: self.threads)
    @rule()
    def open_gate(self) -> None:
        self._settle()

    @precondition(lambda self: self.threads)
    @rule()
    def restart(self) -> None:
        for stream in self.streams:
            stream.may_be_cut = True
        self._stop()
        self._start()
        for thread in self.threads:
            assert self._active(thread) == []

    # ---- invariants ----------------------------------------------------------------------------

    @invariant()
    def statuses_are_legal(self) -> None:
        for thread in self.threads:
            runs = self._runs(thread)
            assert all(run["status"] in (*ACTIVE, *ENDED) for run in runs), runs
            assert [run["status"] for run in runs].count("running") <= 1, runs
            seen = {run["run_id"]: run["status"] for run in runs}
            for run_id, before in thread.runs.items():
                assert run_id in seen or run_id in thread.may_vanish, f"{run_id} is gone"
                if before in ENDED and run_id in seen:
                    assert seen[run_id] == before, f"{run_id}: {before}, then {seen[run_id]}"
            thread.runs = seen
            status = self._ask("GET", f"/threads/{thread.id}").json()["status"]
            assert status in THREAD_STATUSES

    @invariant()
    def what_is_deleted_stays_so(self) -> None:
        for thread_id in self.deleted[-2:]:
            assert self._ask("GET", f"/threads/{thread_id}").status_code == 404
            assert self._ask("GET", f"/threads/{thread_id}/state").status_code == 404

    def _settle(self) -> None:
        """Let every run end. After that, nothing is stuck, and each thread accepts another run."""

        async def end() -> None:
            graphs = self._api.graphs
            graphs.gate.set()
            await eventually(lambda: not self._api.runs.active, within_s=END_S)
            graphs.gate = anyio.Event()

        self._is_settling = True
        self._call(end)
        for thread in self.threads:
            assert self._active(thread) == []
            assert self._ask("GET", f"/threads/{thread.id}").json()["status"] != "busy"
            self._check_history(thread)
            answer = self._ask(
                "POST", f"/threads/{thread.id}/runs/wait", json=self._body("instant", "reject")
            )
            assert answer.status_code == 200, f"the thread is still locked: {answer.text}"
            assert answer.json()["n"] == 2
        for stream in self.streams:
            self._check_events(stream)
        self.streams.clear()
        self._is_settling = False

    def _check_history(self, thread: KnownThread) -> None:
        """The newest state is the current one, ids are unique, and parents are older states."""
        path = f"/threads/{thread.id}/history"
        history = self._ask("POST", path, json={"limit": 1000}).json()
        ids = [state["checkpoint"]["checkpoint_id"] for state in history]
        assert len(set(ids)) == len(ids)
        if not ids:
            return
        state = self._ask("GET", f"/threads/{thread.id}/state").json()
        assert state["checkpoint"]["checkpoint_id"] == ids[0]
        assert state["values"] == history[0]["values"]
        for position, past in enumerate(history):
            parent = past["parent_checkpoint"]
            if parent is not None and parent["checkpoint_id"] >= ids[-1]:  # older states are pruned
                assert parent["checkpoint_id"] in ids[position + 1 :], (past, ids)

    def _check_events(self, stream: OpenStream) -> None:
        """Events are in order and end once. They begin with `metadata`, or with `gap` if they are not in memory."""
        events = stream.events.result(END_S)
        names = [name for _, name in events]
        if not names or stream.may_be_cut:
            return
        assert names[0] in ("metadata", "gap"), names
        assert names.count("end") == 1, names
        assert names[-1] == "end", names
        numbers = [number for number, _ in events]
        assert numbers == sorted(set(numbers)), numbers

    def _listen(self, method: str, thread: KnownThread, path: str, json: object = None) -> None:
        """Read an event stream to its end, concurrently with other requests. Return when the response has begun."""

        async def read(*, task_status: anyio.abc.TaskStatus[str]) -> list[tuple[int, str]]:
            events: list[tuple[int, str]] = []
            url = f"/threads/{thread.id}{path}"
            async with self._api.http.stream(method, url, json=json) as answer:
                assert answer.status_code in (200, 404, 409), answer.status_code
                task_status.started(answer.headers.get("content-location", ""))
                if answer.status_code != 200:
                    return []
                try:
                    await _read_events(answer, events)
                except (httpx.HTTPError, anyio.ClosedResourceError):  # the service stopped
                    events.append((0, "cut"))
            return events

        events, location = self._portal.start_task(read)
        self.streams.append(OpenStream(events))
        if method == "POST" and location:
            thread.runs[location.rsplit("/", 1)[-1]] = ""

    def _runs(self, thread: KnownThread) -> list[dict[str, Any]]:
        answer = self._ask("GET", f"/threads/{thread.id}/runs", params={"limit": 1000})
        assert answer.status_code == 200, answer.text
        runs: list[dict[str, Any]] = answer.json()
        return runs

    def _active(self, thread: KnownThread) -> list[str]:
        return [run["run_id"] for run in self._runs(thread) if run["status"] in ACTIVE]

    def _status(self, thread: KnownThread, run_id: str) -> str:
        runs = {run["run_id"]: str(run["status"]) for run in self._runs(thread)}
        return runs.get(run_id, "")


async def _read_events(answer: httpx.Response, events: list[tuple[int, str]]) -> None:
    """Add (id, name) of each server-sent event."""
    number, name = 0, ""
    async for line in answer.aiter_lines():
        key, _, value = line.partition(": ")
        if key == "event":
            name = value
        elif key == "id":
            number = int(value)
        elif not line and name:
            events.append((number, name))
            number, name = 0, ""


@pytest.mark.timeout(7200 if LONG else 300)
def test_any_order_of_requests_leaves_runs_and_threads_consistent() -> None:
    sys.stdout.write(f"PARLEY_FUZZ_SEED={SEED}\n")  # shown if the test fails
    run_state_machine_as_test(
        seed(SEED)(RunsMachine),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink] if LONG else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
