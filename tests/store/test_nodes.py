"""Nodes: which are alive, which were declared dead and cannot write, and work that only one node does at a time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import psycopg
import pytest

from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.errors import StoreLocked, StoreUnavailable
from store.inbox import InboxStore, NewInboxRow
from store.nodes import Node, preferred_node
from store.postgres.connection import connect, parse_url
from store.postgres.membership import FROZEN_S, MemberNode
from store.postgres.node_sessions import NODE, WORK, NodeState, list_nodes, sole_use
from store.process_description import ProcessDescription
from tests.eventually import eventually
from tests.fakes.postgres_proxy import PostgresProxy
from tests.ready_nodes import until_ready

MINE = ProcessDescription(version="1.0.0", configuration="ab12", name="mine")
KEY = ConversationKey(channel="slack", workspace="T", chat="C", topic="1")
END_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def message(number: int) -> NewInboxRow:
    return NewInboxRow(
        key=KEY, event_id=f"e{number}", message_id="", kind="chat", body="{}", received_at=1.0
    )


def numbers(database: Database) -> list[int]:
    return [node.number for node in database.nodes.living]


@contextmanager
def foreign_node(
    url: str, *, beats: bool
) -> Iterator[tuple[int, psycopg.Connection, psycopg.Connection]]:
    """Yield the number and the two connections of a node. Without `beats`, it is silent from now on."""
    with psycopg.connect(url, autocommit=True) as own, psycopg.connect(url) as work:
        inserted = own.execute(
            "INSERT INTO node (name, started_at) VALUES ('other', 1.0) RETURNING number"
        )
        number = inserted.fetchall()[0][0]
        work.execute("SELECT pg_advisory_lock_shared(%s::int, %s::int)", [WORK, number])
        own.execute("SELECT pg_advisory_lock(%s::int, %s::int)", [NODE, number])
        stopped = threading.Event()
        thread = threading.Thread(target=_beat, args=(own, stopped))
        if beats:
            thread.start()
        try:
            yield number, own, work
        finally:
            stopped.set()
            if beats:
                thread.join()


def _beat(connection: psycopg.Connection, stopped: threading.Event) -> None:
    while not stopped.wait(0.5):
        connection.execute("SELECT 1")


def is_ended(url: str, number: int) -> bool:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT ended_at FROM node WHERE number = %s", [number])
        return rows.fetchall()[0][0] is not None


def shortest_silence(url: str) -> float:
    """Return how long each node has been silent, seconds."""
    with closing(connect(parse_url(url))) as connection:
        return min(state.silent_s for state in list_nodes(connection))


def may_nodes_be_ended(url: str) -> bool:
    with foreign_node(url, beats=False), closing(connect(parse_url(url))) as connection:
        return all(state.may_be_ended for state in list_nodes(connection))


async def see_a_silent_node_ended(url: str) -> None:
    with foreign_node(url, beats=False) as (number, own, work):
        await eventually(lambda: is_ended(url, number), bool)
        own.close()
        work.close()


async def test_processes_that_share_a_database_know_each_other(url: str, tmp_path: Path) -> None:
    config = StoreConfig(url=url)
    async with Database.open(config, tmp_path / "one", MINE) as one:
        assert [node.name for node in one.nodes.living] == ["mine"]
        async with Database.open(config, tmp_path / "two", replace(MINE, name="other")) as two:
            assert [node.name for node in two.nodes.living] == ["mine", "other"]
            await eventually(lambda: numbers(one), lambda found: found == numbers(two))
            assert not any(node.takes_work for node in one.nodes.living)
            await one.nodes.mark_ready()
            await two.nodes.mark_ready()
            await until_ready(one, two)
            await two.nodes.leave()
            await eventually(lambda: not one.nodes.living[-1].takes_work, bool)
            assert preferred_node(one.nodes.living, "any", otherwise=0) == one.nodes.number
        await eventually(lambda: numbers(one), lambda found: found == [one.nodes.number])


async def test_a_silent_node_is_ended_with_its_connections(url: str, tmp_path: Path) -> None:
    with foreign_node(url, beats=False) as (number, own, work):
        async with Database.open(StoreConfig(url=url), tmp_path, MINE) as database:
            assert number in numbers(database)
            await eventually(lambda: numbers(database), lambda found: number not in found)
            for connection in (own, work):
                with pytest.raises(psycopg.OperationalError):
                    connection.execute("SELECT 1")
            assert is_ended(url, number)


async def test_a_node_whose_own_connection_is_gone_is_ended_with_the_others(
    url: str, tmp_path: Path
) -> None:
    async with Database.open(StoreConfig(url=url), tmp_path, MINE) as database:
        with foreign_node(url, beats=False) as (number, own, work):
            await eventually(lambda: numbers(database), lambda found: number in found)
            own.close()
            await eventually(lambda: is_ended(url, number), bool)
            with pytest.raises(psycopg.OperationalError):
                work.execute("SELECT 1")


async def test_the_end_of_a_neighbor_is_seen_before_the_next_look_at_all_nodes(url: str) -> None:
    # After its start, a server gives nodes time to come back.
    await eventually(lambda: may_nodes_be_ended(url), bool)
    with foreign_node(url, beats=False) as (number, own, work):
        member = MemberNode(parse_url(url), MINE, heartbeat_s=3600)
        await anyio.to_thread.run_sync(member.join)
        try:
            assert [node.number for node in member.living] == [number, member.number]
            own.close()
            await eventually(lambda: is_ended(url, number), bool)
            await eventually(lambda: len(member.living), lambda living: living == 1)
            with pytest.raises(psycopg.OperationalError):
                work.execute("SELECT 1")
        finally:
            await anyio.to_thread.run_sync(member.release)


async def test_a_node_that_works_is_not_ended(url: str, tmp_path: Path) -> None:
    with foreign_node(url, beats=True) as (number, _, work):
        async with Database.open(StoreConfig(url=url), tmp_path, MINE) as database:
            await see_a_silent_node_ended(url)  # judged by the same checks
            assert number in numbers(database)
            work.execute("SELECT 1")


async def test_an_ended_node_is_notified_and_cannot_write(url: str, tmp_path: Path) -> None:
    lost = threading.Event()
    async with Database.open(StoreConfig(url=url), tmp_path, MINE, lost.set) as database:
        await InboxStore(database).accept(message(1), cap=9)
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("UPDATE node SET ended_at = 1.0")
            other.execute(END_OTHERS)
            assert await anyio.to_thread.run_sync(lost.wait, 10)
            for number in range(2, 20):
                with pytest.raises(StoreUnavailable):
                    await InboxStore(database).accept(message(number), cap=99)
            assert other.execute("SELECT count(*) FROM inbox").fetchall() == [(1,)]
            assert "failed over to other nodes" in database.outage


async def test_a_node_that_fails_because_it_was_ended_is_notified(url: str, tmp_path: Path) -> None:
    """A node that was frozen while starting fails before its next heartbeat."""
    lost = threading.Event()

    async def fail() -> None:
        async with Database.open(StoreConfig(url=url), tmp_path, MINE, lost.set) as database:
            with psycopg.connect(url, autocommit=True) as other:
                other.execute("UPDATE node SET ended_at = 1.0")
                other.execute(END_OTHERS)
            await database.read("SELECT 1")

    with pytest.raises(StoreUnavailable):
        await fail()
    assert lost.is_set()


async def test_a_failure_that_no_other_node_caused_ends_no_node(url: str, tmp_path: Path) -> None:
    lost = threading.Event()

    async def fail() -> None:
        async with Database.open(StoreConfig(url=url), tmp_path, MINE, lost.set):
            with psycopg.connect(url, autocommit=True) as other:
                other.execute(END_OTHERS)
            raise StoreUnavailable("The connection broke.")

    with pytest.raises(StoreUnavailable, match="connection broke"):
        await fail()
    assert not lost.is_set()


async def test_nodes_stay_nodes_when_their_connections_break(url: str, tmp_path: Path) -> None:
    lost: list[str] = []
    with PostgresProxy(url) as first, PostgresProxy(url) as second:
        async with (
            Database.open(
                StoreConfig(url=first.url), tmp_path / "one", MINE, partial(lost.append, "one")
            ) as one,
            Database.open(
                StoreConfig(url=second.url), tmp_path / "two", MINE, partial(lost.append, "two")
            ) as two,
        ):
            await eventually(lambda: numbers(one), lambda found: found == numbers(two))
            # The server ends one session after the other. A node that checked in between would rightly declare the
            # other one dead.
            first.hold()
            second.hold()
            with psycopg.connect(url, autocommit=True) as other:
                other.execute(END_OTHERS)
            first.release()
            second.release()
            await eventually(lambda: one.is_owner and two.is_owner, bool)
            await see_a_silent_node_ended(url)  # judged by the same checks
            both = [one.nodes.number, two.nodes.number]
            await eventually(lambda: numbers(one) == numbers(two) == both)
            for number, database in enumerate((one, two)):
                await InboxStore(database).accept(message(number), cap=9)
    assert lost == []


async def test_nodes_stay_nodes_after_their_packets_were_dropped(url: str, tmp_path: Path) -> None:
    lost: list[str] = []
    with PostgresProxy(url) as first, PostgresProxy(url) as second:
        async with (
            Database.open(
                StoreConfig(url=first.url), tmp_path / "one", MINE, partial(lost.append, "one")
            ) as one,
            Database.open(
                StoreConfig(url=second.url), tmp_path / "two", MINE, partial(lost.append, "two")
            ) as two,
        ):
            await eventually(lambda: numbers(one), lambda found: found == numbers(two))
            first.hold()
            second.hold()
            await eventually(lambda: shortest_silence(url), lambda silent_s: silent_s > FROZEN_S)
            # The first one to come back must not consider the other one frozen.
            first.release()
            await eventually(lambda: one.is_owner)
            second.release()
            await eventually(lambda: two.is_owner)
            await see_a_silent_node_ended(url)  # judged by the same checks
            both = [one.nodes.number, two.nodes.number]
            await eventually(lambda: numbers(one) == numbers(two) == both)
    assert lost == []


async def test_one_node_at_a_time_has_a_name(url: str, tmp_path: Path) -> None:
    config = StoreConfig(url=url)
    inside: list[str] = []
    waits = {"one": anyio.Event(), "two": anyio.Event()}

    async def work(database: Database, name: str, hold: anyio.Event) -> None:
        async with database.nodes.exclusive("job", waits[name].set):
            inside.append(name)
            await hold.wait()
            inside.append(f"{name} ends")

    async with (
        Database.open(config, tmp_path / "one", MINE) as one,
        Database.open(config, tmp_path / "two", MINE) as two,
        anyio.create_task_group() as tasks,
    ):
        first, second = anyio.Event(), anyio.Event()
        tasks.start_soon(work, one, "one", first)
        await eventually(lambda: inside, lambda names: names == ["one"])
        tasks.start_soon(work, two, "two", second)
        await waits["two"].wait()  # it has tried
        assert inside == ["one"]
        first.set()
        await eventually(lambda: inside, lambda names: names == ["one", "one ends", "two"])
        second.set()


async def test_a_node_that_leaves_lets_another_one_have_its_names(url: str, tmp_path: Path) -> None:
    config = StoreConfig(url=url)
    inside: list[str] = []

    async def work(database: Database, name: str) -> None:
        while True:
            async with database.nodes.exclusive("job"):
                inside.append(name)
                await anyio.sleep_forever()

    async with (
        Database.open(config, tmp_path / "one", MINE) as one,
        Database.open(config, tmp_path / "two", MINE) as two,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(work, one, "one")
        await eventually(lambda: inside, lambda names: names == ["one"])
        tasks.start_soon(work, two, "two")
        await one.nodes.leave()
        await eventually(lambda: inside, lambda names: names == ["one", "two"])
        tasks.cancel_scope.cancel()


async def test_a_name_is_lost_with_the_connection_and_can_be_taken_again(
    url: str, tmp_path: Path
) -> None:
    times: list[int] = []

    async def work(database: Database) -> None:
        while True:
            async with database.nodes.exclusive("job"):
                times.append(len(times))
                await anyio.sleep_forever()

    async with (
        Database.open(StoreConfig(url=url), tmp_path, MINE) as database,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(work, database)
        await eventually(lambda: times, lambda found: found == [0])
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(END_OTHERS)
        await eventually(lambda: times, lambda found: found == [0, 1])
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("version", "configuration", "told"),
    [
        ("1.0.0", "ab12", None),
        ("1.1.0", "ab12", "It runs version 1.0.0, this process 1.1.0."),
        ("1.0.0", "cd34", "Its configuration file differs."),
        ("1.1.0", "", "It runs version 1.0.0, this process 1.1.0. Its configuration file differs."),
    ],
)
async def test_a_node_reports_differences_to_other_nodes(
    url: str, tmp_path: Path, version: str, configuration: str, told: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    config = StoreConfig(url=url)
    other = ProcessDescription(version=version, configuration=configuration, name="other")
    async with (
        Database.open(config, tmp_path / "one", MINE) as one,
        Database.open(config, tmp_path / "two", other) as two,
    ):
        await eventually(lambda: numbers(one), lambda found: found == numbers(two))
        said = [
            text for text in caplog.messages if text.startswith(f"Node {one.nodes.number} (mine): ")
        ]
        assert said == ([f"Node {one.nodes.number} (mine): {told}"] if told else [])


async def test_a_tool_that_needs_the_database_alone_waits_for_no_node(
    url: str, tmp_path: Path
) -> None:
    parameters: dict[str, str] = {"conninfo": url}

    def use() -> None:
        with sole_use(parameters):
            pass

    async def refused(action: Callable[[], object]) -> None:
        with pytest.raises(StoreLocked, match="Another Parley uses this PostgreSQL database"):
            await anyio.to_thread.run_sync(action)

    async with Database.open(StoreConfig(url=url), tmp_path, MINE):
        await refused(use)
    use()
    with sole_use(parameters), pytest.raises(StoreLocked):
        async with Database.open(StoreConfig(url=url), tmp_path, MINE):
            pass


async def test_a_sqlite_file_has_one_node(tmp_path: Path) -> None:
    async with Database.open(StoreConfig(), tmp_path, MINE) as database:
        assert list(database.nodes.living) == [Node(number=0, name="mine")]
        async with database.nodes.exclusive("job"):
            await database.nodes.mark_ready()
            await database.nodes.leave()


async def test_a_node_that_joins_is_not_taken_for_dead(url: str) -> None:
    ends = threading.Event()
    joining = 0  # the number of the attempt; 0 = none is joining now
    without_lock: list[NodeState] = []

    def look() -> None:
        # The same work as in every node's heartbeat, as often as possible.
        with closing(connect(parse_url(url))) as connection:
            while not ends.is_set():
                before = joining
                seen = [state for state in list_nodes(connection) if not state.pid]
                if before and before == joining:
                    without_lock.extend(seen)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for attempt in range(1, 31):
            member = MemberNode(parse_url(url), MINE)
            joining = attempt
            await anyio.to_thread.run_sync(member.join)
            joining = 0
            await anyio.to_thread.run_sync(member.release)
    finally:
        ends.set()
        looking.join()
    assert without_lock == []
