"""Runs whose process was killed: the next process continues them, with both databases."""

import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from gateway.runtime.creation import encode_request
from gateway.runtime.local_run import LocalRun, first_event_number
from gateway.runtime.request import GraphRunRequest
from gateway.runtime.runs import RunManager
from gateway.runtime.stream_modes import parse_stream_modes
from store.checkpoints import open_checkpointer
from store.config import StoreConfig
from store.database import Database
from store.errors import RowNotFound
from tests.eventually import eventually
from tests.fakes.graphs import Graphs
from tests.fork_server import fork_parley

ROOT = Path(__file__).parents[2]
CHILD = "tests.gateway.runtime_child"
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
THREAD = "0b63b403-e0ed-40b2-9589-e740f38a62a3"
SLOW: dict[str, Any] = {
    "thread_id": THREAD,
    "assistant_id": "slow",
    "input": {"n": 1},
    "durability": "sync",
}
INSTANT = {"thread_id": THREAD, "assistant_id": "instant", "input": {"n": 10}}


@pytest.fixture(params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest) -> str:
    """Return the URL of a PostgreSQL database, and "" for a SQLite file."""
    return "" if request.param == "sqlite" else str(request.getfixturevalue("url"))


async def kill_during(home: Path, url: str, *requests: dict[str, Any]) -> list[str]:
    """Start runs in a process, and kill it while `slow` waits in its second node. Return the runs' ids."""
    arguments = [str(home), url, json.dumps(requests)]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        files = (theirs.fileno(), theirs.fileno(), 2)
        child = fork_parley(arguments, ENVIRONMENT, ROOT, files, module=CHILD)
        theirs.close()
        try:
            with anyio.fail_after(60):
                await anyio.wait_readable(ours)
            run_ids = ours.recv(4096).decode().split()
        finally:
            child.send_signal(signal.SIGKILL)
            await child.wait()
    assert run_ids, "the process ended"
    return run_ids


@asynccontextmanager
async def next_process(home: Path, url: str) -> AsyncIterator[tuple[RunManager, Graphs, Database]]:
    """Yield the runs of the next process, after it has taken over the unfinished ones."""
    graphs = Graphs()
    async with (
        Database.open(StoreConfig(url=url) if url else StoreConfig(), home) as database,
        open_checkpointer(home, database) as checkpointer,
        RunManager(database, graphs.sources, checkpointer) as runs,
    ):
        # With several nodes, a dead node is detected a moment later.
        await eventually(lambda: database.nodes.living, lambda living: len(living) == 1)
        yield runs, graphs, database


async def status_of(runs: RunManager, run_id: str) -> str:
    return (await runs.get(THREAD, run_id)).status


async def wait_taken(runs: RunManager, run_id: str) -> LocalRun:
    """Wait until this process executes a run, and return it."""
    await eventually(lambda: runs.find(None, run_id))
    live = runs.find(None, run_id)
    assert live is not None
    return live


async def wait_finished(runs: RunManager, graphs: Graphs, run_id: str) -> LocalRun:
    """Finish a run of `slow` that this process has taken over, and return it."""
    live = await wait_taken(runs, run_id)
    graphs.gate.set()
    with anyio.fail_after(60):
        await live.finished.wait()
    assert orjson.loads(live.result)["n"] == 102
    return live


async def test_a_run_goes_on_at_its_last_checkpoint(tmp_path: Path, shared: str) -> None:
    [run_id] = await kill_during(tmp_path, shared, SLOW)
    async with next_process(tmp_path, shared) as (runs, graphs, database):
        live = await wait_finished(runs, graphs, run_id)
        assert graphs.calls == {"nap": 1, "after": 1}
        assert await status_of(runs, run_id) == "success"
        assert (await runs.threads.get(THREAD)).status == "idle"
        events = live.log.subscribe().read()
        first = first_event_number(2)
        assert [event.id for event in events] == list(range(first, first + len(events)))
        assert orjson.loads(events[0].data)["attempt"] == 2
        assert [event.name for event in events].count("end") == 1
        assert await database.read("SELECT run_id FROM run_request") == []


async def test_a_run_without_a_checkpoint_starts_with_its_input(
    tmp_path: Path, shared: str
) -> None:
    [run_id] = await kill_during(tmp_path, shared, {**SLOW, "durability": "exit"})
    async with next_process(tmp_path, shared) as (runs, graphs, _):
        await wait_finished(runs, graphs, run_id)
        assert graphs.calls == {"one": 1, "nap": 1, "after": 1}


async def test_a_run_without_a_thread_starts_again_and_leaves_nothing(
    tmp_path: Path, shared: str
) -> None:
    [run_id] = await kill_during(tmp_path, shared, {**SLOW, "thread_id": None})
    async with next_process(tmp_path, shared) as (runs, graphs, database):
        await wait_finished(runs, graphs, run_id)
        assert await database.read("SELECT run_id FROM run_request") == []
        assert await database.read("SELECT thread_id FROM thread") == []


async def test_runs_of_a_thread_go_on_in_their_order(tmp_path: Path, shared: str) -> None:
    first, second, third = await kill_during(
        tmp_path, shared, SLOW, INSTANT, {**INSTANT, "input": {"n": 20}}
    )
    async with next_process(tmp_path, shared) as (runs, graphs, _):
        live = await wait_taken(runs, first)
        with anyio.fail_after(60):
            await graphs.reached.wait()
        assert [active.run_id for active in runs.active] == [first, second, third]
        assert await status_of(runs, second) == "pending"
        graphs.gate.set()
        with anyio.fail_after(60):
            await runs.active[-1].finished.wait()
        assert live.row.status == "success"
        assert [await status_of(runs, run_id) for run_id in (second, third)] == ["success"] * 2
        state = await runs.checkpointer.aget_tuple({"configurable": {"thread_id": THREAD}})
        assert state is not None
        assert state.checkpoint["channel_values"]["n"] == 21


@pytest.mark.parametrize("strategy", ["interrupt", "rollback"])
async def test_a_run_that_was_to_be_canceled_is(tmp_path: Path, shared: str, strategy: str) -> None:
    """The node died between the second run's start and the end of the first."""
    first, second = await kill_during(
        tmp_path, shared, {**SLOW, "assistant_id": "stubborn"}, SLOW | {"multitask": strategy}
    )
    async with next_process(tmp_path, shared) as (runs, graphs, _):
        live = await wait_taken(runs, second)
        graphs.gate.set()
        with anyio.fail_after(60):
            await live.finished.wait()
        assert live.row.status == "success"
        if strategy == "interrupt":
            assert await status_of(runs, first) == "interrupted"
        else:
            with pytest.raises(RowNotFound):
                await runs.rows.get(THREAD, first)


async def test_a_run_is_canceled_before_it_goes_on(tmp_path: Path, shared: str) -> None:
    [run_id] = await kill_during(tmp_path, shared, SLOW)
    async with next_process(tmp_path, shared) as (runs, graphs, _):
        live = await wait_taken(runs, run_id)
        await runs.cancel(THREAD, run_id)
        with anyio.fail_after(60):
            await live.finished.wait()
        assert await status_of(runs, run_id) == "interrupted"
        assert "after" not in graphs.calls


@pytest.mark.parametrize("action", ["interrupt", "rollback"])
async def test_a_run_that_was_canceled_and_had_not_stopped_does_not_start_again(
    tmp_path: Path, shared: str, action: str
) -> None:
    [run_id] = await kill_during(
        tmp_path, shared, {**SLOW, "assistant_id": "stubborn"}, {"cancel": action}
    )
    async with next_process(tmp_path, shared) as (runs, graphs, database):

        async def is_left() -> bool:
            return bool(await database.read("SELECT run_id FROM run_request"))

        await eventually(is_left, lambda left: not left)
        assert not graphs.reached.is_set()
        listed = {run.run_id: run.status for run in await runs.rows.list_by_thread(THREAD)}
        assert listed == ({run_id: "interrupted"} if action == "interrupt" else {})
        assert (await runs.threads.get(THREAD)).status == "idle"


@pytest.mark.parametrize("graph", ["listening", "pondering", "heeding"])
async def test_injected_messages_arrive_once(tmp_path: Path, shared: str, graph: str) -> None:
    """The node died before the agent took the message, before the result was stored, or after that."""
    said = {
        "role": "human",
        "content": [{"type": "text", "text": "by the\u2028way\x85on"}],
        "id": "m1",
        "name": "ann",
    }
    [run_id] = await kill_during(
        tmp_path, shared, {**SLOW, "assistant_id": graph}, {"inject": [said]}
    )
    async with next_process(tmp_path, shared) as (runs, graphs, _):
        live = await wait_taken(runs, run_id)
        graphs.gate.set()
        with anyio.fail_after(60):
            await live.finished.wait()
        messages = orjson.loads(live.result)["messages"]
        assert [{name: one[name] for name in ("content", "id", "name")} for one in messages] == [
            {name: said[name] for name in ("content", "id", "name")}
        ]
        assert "untaken" not in orjson.loads(live.log.subscribe().read()[-1].data)


@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize(
    ("place", "asked", "calls"),
    [
        ("interrupt_after", ["one", "nap"], {"one": 1}),
        ("interrupt_after", ["nap"], {"one": 1, "nap": 1}),
        ("interrupt_after", "*", {"one": 1}),
        ("interrupt_before", ["after"], {"one": 1, "nap": 1}),
        ("interrupt_after", ["after"], {"one": 1, "nap": 1, "after": 1}),
    ],
)
async def test_a_run_that_stopped_where_it_was_to_does_not_pass_that_place(
    tmp_path: Path, durability: str, place: str, asked: list[str] | str, calls: dict[str, int]
) -> None:
    """The process died before the run's end was stored."""
    given = {**SLOW, "durability": durability, place: asked}
    request = GraphRunRequest(modes=parse_stream_modes("values"), create_thread=True, **given)
    async with next_process(tmp_path, "") as (runs, graphs, database):
        graphs.gate.set()
        live = await runs.start(request)
        await live.stopped.wait()
        assert graphs.calls == calls
        status = (await runs.threads.get(THREAD)).status
        await database.execute("UPDATE run SET status = 'running'", {})
        stored = encode_request(request, live)
        await database.execute(
            *runs.rows.requests.insert_statement(live.run_id, THREAD, stored, now=1.0)
        )
    async with next_process(tmp_path, "") as (runs, graphs, _):
        await eventually(partial(status_of, runs, live.run_id), partial(eq, "success"))
        assert graphs.calls == {}
        assert (await runs.threads.get(THREAD)).status == status


async def test_runs_of_a_thread_that_end_in_one_moment_do_not_leave_it_busy(
    tmp_path: Path, shared: str
) -> None:
    async with next_process(tmp_path, shared) as (runs, graphs, _):
        request = GraphRunRequest(modes=parse_stream_modes("values"), create_thread=True, **SLOW)
        active = [await runs.start(request) for _ in range(5)]
        await graphs.reached.wait()
        for live in active:
            await runs.cancel(THREAD, live.run_id)
        with anyio.fail_after(60):
            for live in active:
                await live.stopped.wait()
        assert (await runs.threads.get(THREAD)).status != "busy"


async def test_a_run_that_ends_its_process_three_times_is_given_up(
    tmp_path: Path, shared: str
) -> None:
    [run_id] = await kill_during(tmp_path, shared, SLOW)
    for _ in range(2):
        assert await kill_during(tmp_path, shared) == [run_id]
    async with next_process(tmp_path, shared) as (runs, graphs, _):
        live = await wait_taken(runs, run_id)
        with anyio.fail_after(60):
            await live.finished.wait()
        ended = await runs.rows.get(THREAD, run_id)
        assert ended.status == "error"
        assert ended.error is not None
        assert ended.error["error"] == "TooManyAttempts"
        assert graphs.calls == {}
        assert (await runs.threads.get(THREAD)).status == "error"


async def test_a_run_whose_client_starts_it_again_is_interrupted(
    tmp_path: Path, shared: str
) -> None:
    """The bus's runs are of this kind."""
    [run_id] = await kill_during(tmp_path, shared, {**SLOW, "restartable": False})
    async with next_process(tmp_path, shared) as (runs, _, _):

        async def ended() -> str:
            return (await runs.rows.get(THREAD, run_id)).status

        await eventually(ended, lambda status: status == "interrupted")
        left = await runs.rows.get(THREAD, run_id)
        assert left.error == {
            "error": "Interrupted",
            "message": "The server stopped during this run.",
        }
        assert (await runs.threads.get(THREAD)).status == "idle"


async def test_a_delayed_run_waits_for_the_rest_of_its_delay(tmp_path: Path, shared: str) -> None:
    delayed = {**INSTANT, "thread_id": THREAD.replace("0b", "1b"), "after_seconds": 86_400}
    run_id, _ = await kill_during(tmp_path, shared, delayed, SLOW)
    async with next_process(tmp_path, shared) as (runs, graphs, _):
        live = await wait_taken(runs, run_id)
        with anyio.fail_after(60):
            await graphs.reached.wait()
        assert live.row.status == "pending"


@pytest.mark.parametrize("body", ["{", "[]", '{"input": {}}'])
async def test_a_run_whose_request_cannot_be_read_ends_and_holds_up_no_other(
    tmp_path: Path, shared: str, body: str
) -> None:
    first, second = await kill_during(tmp_path, shared, SLOW, INSTANT)
    async with Database.open(StoreConfig(url=shared) if shared else StoreConfig(), tmp_path) as one:
        await one.execute(
            "UPDATE run_request SET body = :body WHERE run_id = :run_id",
            {"body": body, "run_id": first},
        )
    async with next_process(tmp_path, shared) as (runs, _, database):
        await eventually(partial(status_of, runs, second), partial(eq, "success"))
        failed = await runs.get(THREAD, first)
        assert (failed.status, (failed.error or {})["error"]) == ("error", "InvalidRequest")
        assert await database.read("SELECT run_id FROM run_request") == []
