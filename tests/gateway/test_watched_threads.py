"""Clients that watch a thread at one node see the runs of all nodes, in whatever order they start."""

from functools import partial
from operator import eq
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from gateway.runtime.thread_watchers import NoOtherNodes
from tests.eventually import eventually
from tests.gateway.langgraph_server import ApiServer, serving
from tests.gateway.test_langgraph_protocol import EVERYTHING, command, heard
from tests.gateway.test_langgraph_runs import HELLO, collect, new_thread
from tests.gateway.test_langgraph_websocket import connected
from tests.gateway.test_runs_elsewhere import follow, two_nodes, two_nodes_beside

SECOND_RUN = {"messages": [{"role": "user", "content": "again"}]}


def count_ends(parts: list[Any]) -> int:
    return sum(part.data.get("status") == "run_done" for part in parts if part.event == "metadata")


async def watching(at: ApiServer, thread: str) -> None:
    """Wait until a client is subscribed to a thread at a node, and the other nodes know of it."""
    await eventually(lambda: at.runs.watchers.has(thread))
    assert at.runs.watchers.other_nodes is not None
    await at.runs.watchers.other_nodes.watch(thread)


async def test_a_thread_is_watched_at_a_node_that_does_not_run_it(url: str, tmp_path: Path) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        seen: list[Any] = []
        async with anyio.create_task_group() as group:
            group.start_soon(follow, await b.sdk.threads.join_stream(thread), seen)
            await watching(b, thread)
            for number, node in enumerate((a, b, a), 1):
                run = await node.sdk.runs.create(thread, "agent", input=HELLO)
                await eventually(partial(count_ends, seen), partial(eq, number))
                await node.sdk.runs.join(thread, run["run_id"])
            group.cancel_scope.cancel()
        again = await a.sdk.runs.list(thread)
        in_order = [run["run_id"] for run in reversed(again)]
        assert list(dict.fromkeys(part.id.split(":")[0] for part in seen)) == in_order
        last = [part for part in seen if part.id.startswith(in_order[-1])][:-1]
        at_a = await collect(a.sdk.runs.join_stream(thread, in_order[-1]))
        assert [(part.event, part.data) for part in last] == [
            (part.event, part.data) for part in at_a[:-1]
        ]


async def test_a_websocket_hears_a_run_that_another_node_starts(url: str, tmp_path: Path) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = str(uuid4())
        async with connected(b, thread) as client:
            assert (await client.ask("subscription.subscribe", channels=EVERYTHING))["result"]
            begun = await command(a, thread, "run.start", assistant_id="agent", input=HELLO)
            events = await client.until("completed")
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        said = [event["params"]["data"] for event in events if event["method"] == "messages"]
        assert "".join(one["delta"]["text"] for one in said if "delta" in one) == "tok0 tok1 tok2 "
        assert all(begun["result"]["run_id"] in event["event_id"] for event in events)
        assert b.runs.active == []


async def test_a_websocket_hears_a_run_that_runs_elsewhere_already(
    url: str, tmp_path: Path
) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = str(uuid4())
        begun = await command(a, thread, "run.start", assistant_id="paced", input=HELLO)
        a.graphs.tokens.release()
        async with connected(b, thread) as client:
            await client.ask("subscription.subscribe", channels=EVERYTHING)
            for _ in range(5):
                a.graphs.tokens.release()
            events = await client.until("completed")
        assert all(begun["result"]["run_id"] in event["event_id"] for event in events)


async def test_a_websocket_commands_a_run_of_another_node(url: str, tmp_path: Path) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = str(uuid4())
        begun = await command(a, thread, "run.start", assistant_id="listening", input=HELLO)
        await a.graphs.reached.wait()
        async with connected(b, thread) as client:
            await client.ask("subscription.subscribe", channels=EVERYTHING)
            injected = await client.ask("input.inject", messages=SECOND_RUN["messages"])
            assert injected["result"] == {"run_id": begun["result"]["run_id"], "accepted": True}
            queued = await client.ask("run.start", assistant_id="instant", input={"n": 1})
            unknown = await client.ask("no.such.command")
            a.graphs.gate.set()
            await client.until("completed")
            assert unknown["error"] == "unknown_command"
            await b.sdk.runs.join(thread, queued["result"]["run_id"])
        assert b.runs.active == []
        values = (await b.sdk.threads.get_state(thread))["values"]
        assert [message["content"] for message in values["messages"]][-1] == "again"


async def test_the_event_stream_hears_a_run_that_another_node_starts(
    url: str, tmp_path: Path
) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = str(uuid4())
        found: list[Any] = []

        async def listen() -> None:
            found.extend(await heard(b, thread, "completed"))

        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            await watching(b, thread)
            await command(a, thread, "run.start", assistant_id="agent", input=HELLO)
        assert [event["seq"] for event in found] == list(range(1, len(found) + 1))


async def test_the_event_stream_and_the_replies_of_commands_number_events_alike(
    url: str, tmp_path: Path
) -> None:
    """The node to which a client is connected numbers them."""
    async with two_nodes(url, tmp_path) as (a, b):
        thread = str(uuid4())
        await command(a, thread, "run.start", assistant_id="agent", input=HELLO)
        assert await heard(a, thread, "completed")
        begun = await command(a, thread, "run.start", assistant_id="listening", input=HELLO)
        await a.graphs.reached.wait()
        injected = await command(b, thread, "input.inject", messages=SECOND_RUN["messages"])
        assert injected["result"]["accepted"]
        assert injected["meta"]["applied_through_seq"] == 0
        a.graphs.gate.set()
        events = await heard(b, thread, "completed")
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert all(begun["result"]["run_id"] in event["event_id"] for event in events)


@pytest.mark.parametrize("goes_on", [False, True])
async def test_watchers_of_an_ended_nodes_run_see_one_end(
    url: str, tmp_path: Path, goes_on: bool
) -> None:
    (tmp_path / "b").mkdir()
    async with serving(tmp_path / "b", way="tcp", database_url=url) as b:
        b.graphs.gate.set()
        seen: list[Any] = []
        headers = {} if goes_on else {"X-Parley-On-Node-Loss": "interrupt"}
        async with anyio.create_task_group() as group:
            async with two_nodes_beside(url, tmp_path, b) as a:
                thread = await new_thread(a)
                group.start_soon(follow, await b.sdk.threads.join_stream(thread), seen)
                await watching(b, thread)
                run = await a.sdk.runs.create(thread, "slow", input={"n": 1}, headers=headers)
                await a.graphs.reached.wait()
                await eventually(lambda: seen)
            await eventually(lambda: count_ends(seen) == 1, within_s=60)
            await b.sdk.runs.wait(thread, "instant", input={"n": 1})
            await eventually(lambda: count_ends(seen) == 2)
            group.cancel_scope.cancel()
        first = (await b.sdk.runs.get(thread, run["run_id"]))["status"]
        assert first == ("success" if goes_on else "interrupted")
        begun = [part.data["attempt"] for part in seen if "attempt" in part.data]
        assert begun == ([1, 2, 1] if goes_on else [1, 1])
        assert [part.event for part in seen].count("gap") == int(goes_on)


async def test_a_client_goes_on_at_another_node_after_the_run_has_ended(
    url: str, tmp_path: Path
) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        first = await a.sdk.runs.create(thread, "agent", input=HELLO)
        await a.sdk.runs.join(thread, first["run_id"])
        at_a = await collect(a.sdk.runs.join_stream(thread, first["run_id"]))
        seen: list[Any] = []
        async with anyio.create_task_group() as group:
            where = f"{first['run_id']}:2"
            stream = await b.sdk.threads.join_stream(thread, last_event_id=where)
            group.start_soon(follow, stream, seen)
            await eventually(lambda: count_ends(seen) == 1)
            await watching(b, thread)
            second = await a.sdk.runs.create(thread, "agent", input=SECOND_RUN)
            await eventually(lambda: count_ends(seen) == 2)
            group.cancel_scope.cancel()
        ids = [part.id for part in seen if part.id.startswith(first["run_id"])]
        assert ids == [f"{first['run_id']}:{part.id}" for part in at_a[2:]]
        assert seen[-1].id.startswith(second["run_id"])


async def test_a_run_whose_announcement_was_lost_is_found(url: str, tmp_path: Path) -> None:
    async with two_nodes(url, tmp_path) as (a, b):
        thread = await new_thread(a)
        seen: list[Any] = []
        async with anyio.create_task_group() as group:
            group.start_soon(follow, await b.sdk.threads.join_stream(thread), seen)
            await watching(b, thread)
            other_nodes, a.runs.watchers.other_nodes = a.runs.watchers.other_nodes, NoOtherNodes()
            await a.sdk.runs.wait(thread, "agent", input=HELLO)
            a.runs.watchers.other_nodes = other_nodes
            await eventually(lambda: count_ends(seen) == 1)
            group.cancel_scope.cancel()
