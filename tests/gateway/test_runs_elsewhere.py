"""Runs of two nodes on one PostgreSQL database: clients can ask either node."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from operator import lt
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from anyio.abc import TaskGroup

from gateway.runtime.shared_events import WROTE
from gateway.runtime.stopping import hand_over
from store.run_events import EventRow, RunEventStore
from tests.eventually import eventually
from tests.gateway.langgraph_server import ApiServer, serving
from tests.gateway.test_langgraph_features import Receiver
from tests.gateway.test_langgraph_runs import HELLO, collect, new_thread


class TwoNodes(NamedTuple):
    """Node `a` executes the runs. Clients ask node `b` for them."""

    a: ApiServer
    b: ApiServer


@asynccontextmanager
async def two_nodes(url: str, folder: Path) -> AsyncIterator[TwoNodes]:
    """Serve two nodes that know each other."""
    async with AsyncExitStack() as stack:
        servers = []
        for name in ("a", "b"):
            (folder / name).mkdir()
            opening = serving(folder / name, way="tcp", database_url=url, heartbeat_s=1.0)
            servers.append(await stack.enter_async_context(opening))
        for server in servers:
            nodes = server.database.nodes
            await eventually(
                lambda nodes=nodes: nodes.living,  # type: ignore[misc]  # bound at once
                lambda living: len(living) == 2,
            )
        yield TwoNodes(*servers)


async def status(at: ApiServer, method: str, path: str, body: object = None) -> int:
    return (await at.http.request(method, path, json=body)).status_code


def shape(parts: list[Any]) -> list[tuple[Any, ...]]:
    return [(part.id, part.event, part.data) for part in parts]


def count_tokens(parts: list[Any]) -> int:
    return sum(part.event == "messages" for part in parts)


async def follow(stream: AsyncIterator[Any], seen: list[Any]) -> None:
    """Add the parts of a stream as they arrive."""
    async for part in stream:
        seen += [part]


async def test_a_run_is_streamed_and_resumed_at_another_node(url: str, tmp_path: Path) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        run = await a.sdk.runs.create(
            thread, "paced", input=HELLO, stream_mode=["messages-tuple", "values"]
        )
        seen: list[Any] = []
        stream = b.sdk.runs.join_stream(thread, run["run_id"])

        async with anyio.create_task_group() as group:
            group.start_soon(follow, stream, seen)
            for number in range(6):
                a.graphs.tokens.release()
                # Each token arrives while the model is held before the next one.
                await eventually(partial(count_tokens, seen), partial(lt, number), within_s=60)
        at_a = await collect(a.sdk.runs.join_stream(thread, run["run_id"]))
        assert shape(seen) == shape(at_a)
        assert [int(part.id) for part in seen] == list(range(1, len(seen) + 1))
        rest = await collect(b.sdk.runs.join_stream(thread, run["run_id"], last_event_id="4"))
        assert shape(rest) == shape(at_a[4:])
        assert b.runs.active == []


async def test_join_waits_at_another_node_and_returns_the_values(url: str, tmp_path: Path) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        run = await a.sdk.runs.create(thread, "slow", input={"n": 1})
        await a.graphs.reached.wait()
        values: list[Any] = []

        async def join() -> None:
            values.append(await b.sdk.runs.join(thread, run["run_id"]))

        async with anyio.create_task_group() as group:
            group.start_soon(join)
            assert (await b.sdk.runs.get(thread, run["run_id"]))["status"] == "running"
            assert (await b.sdk.threads.get(thread))["status"] == "busy"
            assert await status(b, "DELETE", f"/threads/{thread}/runs/{run['run_id']}") == 409
            assert values == []
            a.graphs.gate.set()
        assert values[0]["n"] == 102
        assert (await b.sdk.threads.get_state(thread))["values"]["n"] == 102
        assert len(await b.sdk.threads.get_history(thread)) == len(
            await a.sdk.threads.get_history(thread)
        )


@pytest.mark.parametrize("wait", [False, True])
async def test_a_run_is_canceled_at_another_node(url: str, tmp_path: Path, wait: bool) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        run = await a.sdk.runs.create(thread, "slow", input={"n": 1})
        await a.graphs.reached.wait()
        await b.sdk.runs.cancel(thread, run["run_id"], wait=wait)
        with anyio.fail_after(60):
            await a.graphs.stopped.wait()
        await b.sdk.runs.join(thread, run["run_id"])
        assert (await a.sdk.runs.get(thread, run["run_id"]))["status"] == "interrupted"
        assert await status(b, "POST", f"/threads/{thread}/runs/{run['run_id']}/cancel") == 404


@pytest.mark.parametrize("strategy", ["reject", "enqueue", "interrupt", "rollback"])
async def test_multitask_strategies_hold_across_nodes(
    url: str, tmp_path: Path, strategy: str
) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        first = await a.sdk.runs.create(thread, "slow", input={"n": 1})
        await a.graphs.reached.wait()
        second = {"assistant_id": "instant", "input": {"n": 10}, "multitask_strategy": strategy}
        response = await b.http.post(f"/threads/{thread}/runs", json=second)
        if strategy == "reject":
            assert response.status_code == 409
            a.graphs.gate.set()
            await b.sdk.runs.join(thread, first["run_id"])
            return
        assert response.status_code == 200, response.text
        assert [live.run_id for live in b.runs.active] == []
        if strategy == "enqueue":
            assert not a.graphs.stopped.is_set()
            a.graphs.gate.set()
        await b.sdk.runs.join(thread, response.json()["run_id"])
        assert (await b.sdk.threads.get_state(thread))["values"]["n"] == 11
        listed = {run["run_id"]: run["status"] for run in await b.sdk.runs.list(thread)}
        expected = {"enqueue": "success", "interrupt": "interrupted", "rollback": None}
        assert listed.get(first["run_id"]) == expected[strategy]


async def test_the_state_of_a_busy_thread_is_not_changed_at_another_node(
    url: str, tmp_path: Path
) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        await a.sdk.runs.create(thread, "slow", input={"n": 1})
        await a.graphs.reached.wait()
        assert await status(b, "POST", f"/threads/{thread}/state", {"values": {"n": 5}}) == 409
        a.graphs.gate.set()
        await eventually(lambda: a.runs.active, lambda active: not active, within_s=60)
        await b.sdk.threads.update_state(thread, {"n": 5})
        assert (await a.sdk.threads.get_state(thread))["values"]["n"] == 5
        assert (await a.sdk.runs.wait(thread, "instant", input=None))["n"] == 5


async def test_a_thread_is_deleted_at_another_node_while_a_run_is_on_it(
    url: str, tmp_path: Path
) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        await a.sdk.runs.create(thread, "slow", input={"n": 1})
        await a.graphs.reached.wait()
        await b.sdk.threads.delete(thread)
        assert a.graphs.stopped.is_set()
        for node in (a, b):
            assert await status(node, "GET", f"/threads/{thread}") == 404


async def test_threads_are_pruned_wherever_their_runs_are(url: str, tmp_path: Path) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        threads = [await new_thread(a), await new_thread(a)]
        await a.sdk.runs.create(threads[0], "slow", input={"n": 1})
        await a.graphs.reached.wait()
        body = {"thread_ids": threads, "strategy": "keep_latest"}
        kept = await b.http.post("/threads/prune", json=body)
        assert (kept.status_code, kept.json()) == (200, {"pruned_count": 1})
        assert not a.graphs.stopped.is_set()
        deleted = await b.http.post("/threads/prune", json={"thread_ids": threads})
        assert (deleted.status_code, deleted.json()) == (200, {"pruned_count": 2})
        assert a.graphs.stopped.is_set()
        for thread in threads:
            assert await status(b, "GET", f"/threads/{thread}") == 404


async def test_stateless_runs_are_joined_and_canceled_at_another_node(
    url: str, tmp_path: Path
) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        created = await a.http.post("/runs", json={"assistant_id": "paced", "input": HELLO})
        run_id = created.json()["run_id"]
        for _ in range(6):
            a.graphs.tokens.release()
        response = await b.http.get(f"/runs/{run_id}/join")
        assert response.json()["messages"][-1]["content"] == "tok0 tok1 tok2 tok3 tok4 tok5 "
        missing = await b.http.get("/runs/9b2d7c1e-0000-4000-8000-000000000001/join")
        assert missing.status_code == 404

        await a.http.post("/runs", json={"assistant_id": "slow", "input": {}})
        await a.graphs.reached.wait()
        stopped = await b.http.post("/runs/cancel", json={"status": "running"})
        assert stopped.status_code == 204
        with anyio.fail_after(60):
            await a.graphs.stopped.wait()
        await eventually(lambda: a.runs.active, lambda active: not active, within_s=60)
        again = await b.http.post("/runs/cancel", json={"status": "running"})
        assert again.status_code == 404


async def test_a_client_that_disconnects_cancels_its_run_at_another_node(
    url: str, tmp_path: Path
) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        run = await a.sdk.runs.create(thread, "slow", input={"n": 1})
        await a.graphs.reached.wait()
        where = f"/threads/{thread}/runs/{run['run_id']}/stream?cancel_on_disconnect=true"
        async with b.http.stream("GET", where) as response:
            await anext(response.aiter_bytes())
            assert not a.graphs.stopped.is_set()
        with anyio.fail_after(60):
            await a.graphs.stopped.wait()


async def test_a_lost_wake_up_costs_a_second(url: str, tmp_path: Path) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        run = await a.sdk.runs.create(
            thread, "paced", input=HELLO, stream_mode=["messages-tuple", "values"]
        )
        b.app.state.services.node_calls.receive(WROTE, lambda _node, _body: None)
        seen: list[Any] = []
        stream = b.sdk.runs.join_stream(thread, run["run_id"])

        async with anyio.create_task_group() as group:
            group.start_soon(follow, stream, seen)
            for number in range(6):
                a.graphs.tokens.release()
                with anyio.fail_after(10):  # takes a second on a busy machine
                    await eventually(partial(count_tokens, seen), partial(lt, number))
        at_a = await collect(a.sdk.runs.join_stream(thread, run["run_id"]))
        assert shape(seen) == shape(at_a)


async def test_a_broken_connection_loses_no_event(url: str, tmp_path: Path) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        run = await a.sdk.runs.create(thread, "drip", input=HELLO, stream_mode=["messages-tuple"])
        seen: list[Any] = []
        stream = b.sdk.runs.join_stream(thread, run["run_id"])

        async with anyio.create_task_group() as group:
            group.start_soon(follow, stream, seen)
            await eventually(lambda: len(seen), lambda count: count > 20, within_s=60)
            await a.database.transaction(
                lambda tx: tx.run(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND query LIKE '%pg_notify%'"
                )
            )
        at_a = await collect(a.sdk.runs.join_stream(thread, run["run_id"]))
        assert len(at_a) > 200
        assert shape(seen) == shape(at_a)


def lose_rows(
    monkeypatch: pytest.MonkeyPatch, seen: list[Any], *, for_ever: bool
) -> list[EventRow]:
    """Lose the rows that are written first after a given text was seen. Other rows may precede them."""
    append = RunEventStore.append
    lost: list[EventRow] = []

    async def lose(store: RunEventStore, rows: list[EventRow]) -> None:
        if seen and not lost:
            lost.extend(rows)
            return
        await append(store, rows)
        if lost and not for_ever:
            await append(store, lost)

    monkeypatch.setattr(RunEventStore, "append", lose)
    return lost


@pytest.mark.parametrize("for_ever", [False, True])
async def test_missing_events_are_waited_for_and_then_leave_a_gap(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, for_ever: bool
) -> None:
    """Rows may become visible out of order, and a crash of PostgreSQL empties the table."""
    seen: list[Any] = []
    lost = lose_rows(monkeypatch, seen, for_ever=for_ever)
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        run = await a.sdk.runs.create(
            thread, "paced", input=HELLO, stream_mode=["messages-tuple", "values"]
        )
        async with anyio.create_task_group() as group:
            group.start_soon(follow, b.sdk.runs.join_stream(thread, run["run_id"]), seen)
            await eventually(lambda: seen)
            a.graphs.tokens.release()
            await eventually(lambda: lost)
            a.graphs.tokens.release()
            if for_ever:
                await eventually(lambda: "gap" in [part.event for part in seen])
            for _ in range(4):
                a.graphs.tokens.release()
        at_a = await collect(a.sdk.runs.join_stream(thread, run["run_id"]))
    numbers = [int(part.id) for part in seen]
    assert numbers == sorted(numbers)
    assert seen[-1].event == "end"
    if not for_ever:
        assert shape(seen) == shape(at_a)
        return
    gap = [part.event for part in seen].index("gap")
    assert seen[gap + 1].event == "values"
    assert shape(seen[gap + 2 :]) == shape(at_a[seen[gap].data["resumes_at"] - 1 :])


async def test_deleted_events_are_written_again_for_a_new_reader(url: str, tmp_path: Path) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        run = await a.sdk.runs.create(thread, "agent", input=HELLO)
        at_a = await collect(a.sdk.runs.join_stream(thread, run["run_id"]))
        copies = b.app.state.services.cluster_runs.copies
        for _ in range(2):
            [copy] = await copies.fetch(thread)
            assert copy.log.last_id == int(at_a[-1].id)
            await RunEventStore(a.database).delete_old(keep_s=0)


async def test_events_are_written_while_they_are_read_and_deleted_by_age(
    url: str, tmp_path: Path
) -> None:
    count = "SELECT count(*) AS number FROM run_event"
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        await a.sdk.runs.wait(thread, "agent", input=HELLO)
        assert (await a.database.read(count))[0]["number"] == 0
        run = await a.sdk.runs.create(thread, "slow", input={"n": 1})
        await a.graphs.reached.wait()
        store = RunEventStore(b.database)
        async with anyio.create_task_group() as group:
            group.start_soon(collect, b.sdk.runs.join_stream(thread, run["run_id"]))
            await eventually(partial(store.read, run["run_id"], after=0, until=99))
            await store.delete_old(keep_s=0)
            assert await store.read(run["run_id"], after=0, until=99)
            a.graphs.gate.set()
        await store.delete_old(keep_s=60)
        assert (await a.database.read(count))[0]["number"] > 0
        await store.delete_old(keep_s=0)
        assert (await a.database.read(count))[0]["number"] == 0


async def test_large_responses_arrive_whole(url: str, tmp_path: Path) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        text = '\u4f60\U0001f600"\\' * 100_000
        said = {"messages": [{"role": "user", "content": text, "id": "m"}]}
        body = {"assistant_id": "slow", "input": said}
        await a.http.post(f"/threads/{thread}/runs", json=body)
        await a.graphs.reached.wait()
        body = {"assistant_id": "instant", "input": said, "multitask_strategy": "enqueue"}
        created = await b.http.post(f"/threads/{thread}/runs", json=body)
        assert created.status_code == 200
        a.graphs.gate.set()
        state = await b.http.get(f"/threads/{thread}/runs/{created.json()['run_id']}/join")
        assert state.json()["messages"][0]["content"] == text


class EventFollower:
    """The events that a node's clients see of a run on another node."""

    def __init__(self) -> None:
        self.of_run: list[Any] = []
        self.of_thread: list[Any] = []
        self.values: list[Any] = []

    async def follow(self, at: ApiServer, group: TaskGroup, thread: str, run_id: str) -> None:
        """Stream and join the run, and watch its thread."""

        async def join() -> None:
            self.values.append(await at.sdk.runs.join(thread, run_id))

        of_thread = await at.sdk.threads.join_stream(thread, last_event_id="-")
        group.start_soon(follow, of_thread, self.of_thread)
        group.start_soon(follow, at.sdk.runs.join_stream(thread, run_id), self.of_run)
        group.start_soon(join)
        await eventually(lambda: self.of_run)
        await eventually(lambda: self.of_thread)

    def ends_of_thread(self) -> int:
        """Return how many runs have ended according to the thread's stream."""
        return sum(part.data.get("status") == "run_done" for part in self.of_thread)


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_run_goes_on_at_another_node_when_its_own_stops(
    url: str, tmp_path: Path, is_cut: bool
) -> None:
    """A step that ends in time is not repeated. Any other step is interrupted and repeated."""
    (tmp_path / "b").mkdir()
    receiver, seen = Receiver([b"200 OK"]), EventFollower()
    async with (
        receiver.running(),
        serving(tmp_path / "b", way="tcp", database_url=url) as b,
        anyio.create_task_group() as group,
    ):
        async with two_nodes_beside(url, tmp_path, b) as a:
            thread = await new_thread(a)
            options = {"webhook": receiver.url, "durability": "sync"}
            run = await a.sdk.runs.create(thread, "slow", input={"n": 1}, **options)
            await a.graphs.reached.wait()
            await seen.follow(b, group, thread, run["run_id"])
            if not is_cut:
                live = a.runs.active[0]
                hand_over([live])
                a.graphs.gate.set()
                with anyio.fail_after(60):
                    await live.stopped.wait()
        b.graphs.gate.set()
        await eventually(seen.ends_of_thread, within_s=60)
        await eventually(lambda: seen.values, within_s=60)
        await eventually(lambda: seen.of_run[-1].event == "end", within_s=60)
        await receiver.wait_for(1)
        group.cancel_scope.cancel()
        assert b.graphs.calls == ({"nap": 1, "after": 1} if is_cut else {"after": 1})
        assert seen.values[0]["n"] == 102
        assert (await b.sdk.runs.get(thread, run["run_id"]))["status"] == "success"
        assert_attempts(seen.of_run, 1, 2)
        assert (seen.ends_of_thread(), len(receiver.taken)) == (1, 1)


@pytest.mark.parametrize("ending", ["stream", "wait"])
async def test_a_client_that_disconnects_after_its_run_has_moved_cancels_it(
    url: str, tmp_path: Path, ending: str
) -> None:
    (tmp_path / "b").mkdir()
    asked = {"assistant_id": "slow", "input": {"n": 1}, "on_disconnect": "cancel"}
    async with serving(tmp_path / "b", way="tcp", database_url=url, heartbeat_s=0.2) as b:
        async with AsyncExitStack() as of_a, AsyncExitStack() as client:
            a = await of_a.enter_async_context(two_nodes_beside(url, tmp_path, b))
            thread = await new_thread(a)
            await a.sdk.runs.create(thread, "slow", input={"n": 1}, durability="sync")
            await a.graphs.reached.wait()
            path = f"/threads/{thread}/runs/{ending}"
            response = await client.enter_async_context(b.http.stream("POST", path, json=asked))
            received = response.aiter_bytes()
            await anext(received)
            await of_a.aclose()
            await b.graphs.reached.wait()
            _, second = b.runs.active
            await anext(received)
        # The client has disconnected.
        with anyio.fail_after(60):
            await second.stopped.wait()
        assert second.cancel_action == "interrupt"
        assert len(b.runs.active) == 1


def assert_attempts(parts: list[Any], *attempts: int) -> None:
    """Check that a stream shows these attempts of a run, in order, and one successful end."""
    numbers = [int(part.id) for part in parts]
    assert numbers == sorted(numbers)
    assert [part.data["attempt"] for part in parts if part.event == "metadata"] == [*attempts]
    assert [part.data["status"] for part in parts if part.event == "end"] == ["success"]


async def test_runs_that_wait_and_runs_without_a_thread_go_on_too(url: str, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    async with serving(tmp_path / "b", way="tcp", database_url=url) as b:
        b.graphs.gate.set()
        async with two_nodes_beside(url, tmp_path, b) as a:
            thread = await new_thread(a)
            await a.sdk.runs.create(thread, "slow", input={"n": 1}, durability="sync")
            await a.graphs.reached.wait()
            waiting = await a.sdk.runs.create(thread, "instant", input={"n": 10})
            stateless = await a.sdk.runs.create(None, "slow", input={"n": 2})
            await eventually(lambda: len(a.runs.active) == 3)
            hand_over(a.runs.active)
            a.graphs.gate.set()
        response = await b.http.get(f"/runs/{stateless['run_id']}/join")
        assert response.json()["n"] == 103
        assert (await b.sdk.runs.join(thread, waiting["run_id"]))["n"] == 11
        listed = [run["status"] for run in await b.sdk.runs.list(thread)]
        assert listed == ["success", "success"]
        assert await b.database.read("SELECT run_id FROM run_request") == []


@asynccontextmanager
async def two_nodes_beside(url: str, folder: Path, b: ApiServer) -> AsyncIterator[ApiServer]:
    """Serve another node, which `b` knows."""
    (folder / "a").mkdir()
    async with serving(folder / "a", way="tcp", database_url=url) as a:
        await eventually(lambda: b.database.nodes.living, lambda living: len(living) == 2)
        await eventually(lambda: a.database.nodes.living, lambda living: len(living) == 2)
        yield a
