"""Calls between nodes: to the node itself on both engines, and from one node to another on PostgreSQL."""

import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
import psycopg
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from store.config import StoreConfig
from store.database import Database
from store.errors import StoreUnavailable
from store.node_calls import NodeCalls, open_node_calls
from store.postgres.node_sessions import NODE, WORK
from tests.eventually import WITHIN_S, eventually

ROOT = Path(__file__).parents[2]
QUEUED = 400
"""Number of signals of almost a page each. No node may keep them in the server's queue."""

MAX_QUEUED_PAGES = 1_048_576
"""Signals that fill the server's queue (8 GB)."""

ANSWERING_NODE = """
import asyncio, logging, sys
from pathlib import Path
from store.config import StoreConfig
from store.database import Database
from store.node_calls import open_node_calls

logging.basicConfig(stream=sys.stdout)

async def echo(body: str) -> str:
    return body

async def main() -> None:
    async with Database.open(StoreConfig(url=sys.argv[1]), Path(sys.argv[2])) as database:
        async with open_node_calls(database) as calls:
            calls.serve("echo", echo)
            print(database.nodes.number, flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""


async def echo(body: str) -> str:
    return f"{body}!"


async def broken(body: str) -> str:
    raise ValueError(body)


@asynccontextmanager
async def nodes(url: str, folder: Path, *names: str) -> AsyncIterator[list[NodeCalls]]:
    """Yield the calls of nodes that know each other."""
    async with AsyncExitStack() as stack:
        opened = []
        for name in names:
            (folder / name).mkdir()
            opening = Database.open(StoreConfig(url=url), folder / name)
            database = await stack.enter_async_context(opening)
            opened.append(await stack.enter_async_context(open_node_calls(database)))
            opened[-1].serve("echo", echo)
        for calls in opened:
            await eventually(
                lambda calls=calls: calls.others,  # type: ignore[misc]  # bound at once
                lambda others: len(others) == len(names) - 1,
            )
            for node in calls.others:
                await until_heard(calls, node)
        yield opened


async def until_heard(calls: NodeCalls, node: int) -> None:
    """Wait until a node receives signals. It is known before its connection listens, so early signals may be lost."""
    while True:
        with suppress(StoreUnavailable):
            await calls.call(node, "echo", "", within_s=0.5)
            return


async def test_a_node_calls_itself(database: Database) -> None:
    async with open_node_calls(database) as calls:
        calls.serve("echo", echo)
        calls.serve("broken", broken)
        assert await calls.call(calls.node, "echo", "你好") == "你好!"
        with pytest.raises(StoreUnavailable, match="'broken' failed"):
            await calls.call(calls.node, "broken", "")
        with pytest.raises(StoreUnavailable, match="does not serve"):
            await calls.call(calls.node, "other", "")
        with pytest.raises(StoreUnavailable, match="is not running"):
            await calls.call(4_711, "echo", "")


@pytest.mark.parametrize("size", [1, 7_000, 9_000, 3_000_000])
async def test_bodies_of_any_length_reach_another_node_and_come_back(
    url: str, tmp_path: Path, size: int
) -> None:
    async with nodes(url, tmp_path, "a", "b") as (a, b):
        b.serve("echo", echo)
        body = '"\\\u4f60' * size
        assert await a.call(b.node, "echo", body, within_s=60) == body + "!"


async def test_calls_go_both_ways_at_once_and_errors_are_told(url: str, tmp_path: Path) -> None:
    async with nodes(url, tmp_path, "a", "b") as (a, b):
        for node in (a, b):
            node.serve("echo", echo)
            node.serve("broken", broken)
        answers: dict[str, str] = {}

        async def ask(here: NodeCalls, there: NodeCalls, number: int) -> None:
            name = f"{here.node} {number}"
            answers[name] = await here.call(there.node, "echo", name, within_s=60)

        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(ask, a, b, number)
                group.start_soon(ask, b, a, number)
        assert answers == {name: f"{name}!" for name in answers}
        assert len(answers) == 100
        with pytest.raises(StoreUnavailable, match=f"Node {b.node}: 'broken' failed"):
            await a.call(b.node, "broken", "", within_s=60)


MALFORMED = [
    "not JSON",
    "[]",
    "7",
    "{}",
    '{"note": "n"}',
    '{"from": "one", "note": "n", "body": ""}',
    '{"from": 1, "note": "n", "body": 5}',
    '{"from": 1, "note": "strict", "body": "no number"}',
    '{"id": "x", "method": "echo"}',
    '{"from": 1, "id": [], "method": "echo", "body": ""}',
    '{"from": 1, "id": "x", "method": "echo", "stored": {}}',
    '{"from": 1, "id": "x", "method": "echo", "stored": "unknown"}',
    '{"id": "nobody waits", "error": "", "body": ""}',
    '{"id": "x", "body": ""}',
]


async def test_unreadable_signals_are_dropped(url: str, tmp_path: Path) -> None:
    async with nodes(url, tmp_path, "a", "b") as (a, b):
        b.serve("echo", echo)
        numbers: list[int] = []
        b.receive("strict", lambda _node, body: numbers.append(int(body)))
        for payload in MALFORMED:
            a.database.signals.publish(f"node:{b.node}", payload)
        assert await a.call(b.node, "echo", "still there", within_s=60) == "still there!"


async def test_a_call_that_is_not_answered_in_time_fails(url: str, tmp_path: Path) -> None:
    async with nodes(url, tmp_path, "a", "b") as (a, b):

        async def wait(body: str) -> str:
            await anyio.sleep_forever()
            return body

        b.serve("wait", wait)
        with pytest.raises(StoreUnavailable, match="did not answer 'wait' within"):
            await a.call(b.node, "wait", "", within_s=0.3)


async def test_a_call_to_a_node_that_ends_meanwhile_fails_at_once(url: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        (a,) = await stack.enter_async_context(nodes(url, tmp_path, "a"))
        asked = anyio.Event()

        async def wait(body: str) -> str:
            asked.set()
            await anyio.sleep_forever()
            return body

        async def ask(node: int) -> None:
            with pytest.raises(StoreUnavailable, match="is not running"):
                await a.call(node, "wait", "", within_s=300)

        async with anyio.create_task_group() as group:
            (tmp_path / "b").mkdir()
            async with (
                Database.open(StoreConfig(url=url), tmp_path / "b") as database,
                open_node_calls(database) as b,
            ):
                b.serve("wait", wait)
                b.serve("echo", echo)
                await eventually(lambda: a.others, bool)
                await until_heard(a, b.node)
                group.start_soon(ask, b.node)
                with anyio.fail_after(60):
                    await asked.wait()


async def test_notes_arrive_in_their_order(url: str, tmp_path: Path) -> None:
    async with nodes(url, tmp_path, "a", "b") as (a, b):
        received: list[tuple[int, str]] = []
        b.receive("note", lambda sender, body: received.append((sender, body)))
        for number in range(300):
            a.tell(b.node, "note", str(number))
        await eventually(lambda: received, lambda notes: len(notes) == 300, within_s=60)
        assert received == [(a.node, str(number)) for number in range(300)]


async def test_old_messages_are_deleted(url: str, tmp_path: Path) -> None:
    async with nodes(url, tmp_path, "a", "b") as (a, b):
        b.serve("echo", echo)
        await a.call(b.node, "echo", "x" * 10_000, within_s=60)
        with psycopg.connect(url, autocommit=True) as other:

            def count() -> int:
                rows = other.execute("SELECT count(*) FROM node_message").fetchall()
                return int(rows[0][0])

            assert count() == 2
            await a.delete_old(keep_s=3_600)
            assert count() == 2
            await a.delete_old(keep_s=-1)
            assert count() == 0


@asynccontextmanager
async def answering_node(url: str, folder: Path) -> AsyncIterator[Process]:
    """Run a node in another process, and kill it at the end, because a frozen process would never exit."""
    program = [sys.executable, "-c", ANSWERING_NODE, url, str(folder)]
    async with await anyio.open_process(program, cwd=ROOT) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()


async def test_a_frozen_node_is_cut_off_from_signals(url: str, tmp_path: Path) -> None:
    """It keeps nothing in the server's signal queue, and answers no call when it wakes up."""
    (tmp_path / "other").mkdir()
    async with (
        nodes(url, tmp_path, "one") as [one],
        answering_node(url, tmp_path / "other") as other,
    ):
        assert other.stdout is not None
        lines = BufferedByteReceiveStream(other.stdout)
        number = int(await lines.receive_until(b"\n", 1000))
        await eventually(lambda: one.others, lambda others: others == {number})
        await until_heard(one, number)
        assert sessions_of_others(url, one.node) > 0
        other.send_signal(signal.SIGSTOP)
        with pytest.raises(StoreUnavailable, match="is not running"):
            await one.call(number, "echo", "frozen", within_s=WITHIN_S)
        await eventually(lambda: sessions_of_others(url, one.node) == 0)
        with one.database.signals.subscribe("many") as payloads:
            for sent in range(QUEUED):
                await hear(one, "many", f"{sent:07000}", payloads)
        await eventually(lambda: queue_use(url) < QUEUED / 2 / MAX_QUEUED_PAGES)
        with one.database.signals.subscribe(f"node:{one.node}") as answers:
            other.send_signal(signal.SIGCONT)
            await lines.receive_until(b"Signals between processes are lost", 10_000)
            call = {"id": "late", "from": one.node, "method": "echo", "body": ""}
            one.database.signals.publish(f"node:{number}", json.dumps(call))
            # It connects once more, briefly, and learns that other nodes declared it dead.
            await eventually(lambda: sessions_of_others(url, one.node) == 0)
            other.kill()
            await other.wait()
            assert await hear(one, f"node:{one.node}", "", answers) == ""


async def hear(calls: NodeCalls, topic: str, payload: str, payloads: AsyncIterator[str]) -> str:
    """Publish signals until one arrives, and return that one, because signals may be lost."""
    while True:
        calls.database.signals.publish(topic, payload)
        with anyio.move_on_after(5.0):
            return await anext(payloads)


def sessions_of_others(url: str, node: int) -> int:
    """Return how many sessions of a database belong neither to a node nor to this connection."""
    with psycopg.connect(url) as connection:
        [[count]] = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid IN (%s, %s) "
            "AND objid = %s)",
            [NODE, WORK, node],
        ).fetchall()
    return int(count)


def queue_use(url: str) -> float:
    """Return how full the queue of unread signals is; 1 = full."""
    with psycopg.connect(url) as connection:
        [[used]] = connection.execute("SELECT pg_notification_queue_usage()").fetchall()
    return float(used)
