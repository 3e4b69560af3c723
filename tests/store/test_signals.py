"""Signals: on both engines, and on PostgreSQL also between two processes and over broken connections."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import psycopg
import pytest

from store.config import StoreConfig
from store.database import Database
from store.postgres.connection import connect, parse_url
from store.postgres.signals import PostgresSignals
from store.signals import MAX_PAYLOAD_BYTES
from tests.eventually import eventually
from tests.fakes.postgres import MISSING, PostgresServer


async def take(payloads: AsyncIterator[str], count: int) -> list[str]:
    """Return the next `count` payloads."""
    with anyio.fail_after(60):
        return [await anext(payloads) for _ in range(count)]


async def test_subscribers_of_a_topic_receive_its_signals_in_order(database: Database) -> None:
    signals = database.signals
    with signals.subscribe("a") as one, signals.subscribe("a") as two, signals.subscribe("b") as b:
        for number in range(200):
            signals.publish("a", str(number))
        signals.publish("b", "\u4f60 \U0001f600 \"'\\")
        expected = [str(number) for number in range(200)]
        assert await take(one, 200) == expected
        assert await take(two, 200) == expected
        assert await take(b, 1) == ["\u4f60 \U0001f600 \"'\\"]


async def test_a_signal_published_after_subscribing_is_received(database: Database) -> None:
    """This holds whatever the connection is subscribing to or sending at that moment."""
    signals = database.signals
    with ExitStack() as stack:
        for number in range(60):
            payloads = stack.enter_context(signals.subscribe(f"first:{number}"))
            signals.publish(f"first:{number}")
            await take(payloads, 1)
            others = []
            # The connection is busy with the first signals while the last ones are added.
            for other in range(8):
                others.append(stack.enter_context(signals.subscribe(f"{number}:{other}")))
                signals.publish(f"{number}:{other}")
            for payloads in others:
                await take(payloads, 1)


async def test_signals_without_a_subscriber_are_lost(database: Database) -> None:
    signals = database.signals
    with signals.subscribe("a") as payloads:
        signals.publish("a", "one")
        assert await take(payloads, 1) == ["one"]
    with signals.subscribe("other") as payloads:
        signals.publish("a", "between")
        signals.publish("other")
        assert await take(payloads, 1) == [""]
    with signals.subscribe("a") as payloads:
        signals.publish("a", "two")
        assert await take(payloads, 1) == ["two"]


async def test_a_payload_of_the_largest_size_arrives_and_a_larger_one_is_refused(
    database: Database,
) -> None:
    signals = database.signals
    with signals.subscribe("a") as payloads:
        largest = "\u4f60" * (MAX_PAYLOAD_BYTES // 3)
        signals.publish("a", largest)
        assert await take(payloads, 1) == [largest]
        with pytest.raises(ValueError, match="at most"):
            signals.publish("a", largest + "\u4f60")


@pytest.mark.parametrize("topic", ["", "A", 'a"; DROP', "a" * 51, "a b"])
async def test_a_wrong_topic_is_refused(database: Database, topic: str) -> None:
    with pytest.raises(ValueError, match="not a topic"):
        database.signals.publish(topic, "")
    with pytest.raises(ValueError, match="not a topic"), database.signals.subscribe(topic):
        pass


async def test_subscriptions_end_with_the_database(
    store_config: StoreConfig, tmp_path: Path
) -> None:
    async with Database.open(store_config, tmp_path) as database:
        subscription = database.signals.subscribe("a")
        payloads = subscription.__enter__()
        database.signals.publish("a", "last")
        assert await take(payloads, 1) == ["last"]
    with anyio.fail_after(30):
        assert [payload async for payload in payloads] == []
    subscription.__exit__(None, None, None)


@pytest.fixture
def url(postgres: PostgresServer | None) -> Iterator[str]:
    if postgres is None:
        pytest.skip(MISSING)
    with postgres.database(migrated=False) as created:
        yield created


def connected(url: str) -> PostgresSignals:
    """Return the signals of a process. Only tests have two in one process."""
    return PostgresSignals(lambda: connect(parse_url(url)))


async def test_signals_reach_another_process(url: str) -> None:
    here, there = connected(url), connected(url)
    try:
        with there.subscribe("ask") as questions, here.subscribe("answer") as answers:
            # Signals are lost until the other one listens.
            async with anyio.create_task_group() as group:

                async def answer() -> None:
                    async for question in questions:
                        there.publish("answer", f"{question}!")

                async def ask() -> None:
                    while True:
                        here.publish("ask", "?")
                        await anyio.sleep(0.05)

                group.start_soon(answer)
                group.start_soon(ask)
                assert await take(answers, 1) == ["?!"]
                group.cancel_scope.cancel()
    finally:
        here.close()
        there.close()


async def test_signals_go_on_after_the_connection_broke(url: str) -> None:
    signals = connected(url)
    try:
        with signals.subscribe("a") as payloads:
            signals.publish("a", "before")
            assert await take(payloads, 1) == ["before"]
            with psycopg.connect(url, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            assert await take(payloads, 1) == [""]  # some may have been lost
            signals.publish("a", "after")
            assert await take(payloads, 1) == ["after"]
    finally:
        signals.close()


async def test_a_burst_takes_few_statements(url: str) -> None:
    signals = connected(url)
    try:
        with signals.subscribe("a") as payloads, psycopg.connect(url, autocommit=True) as other:
            signals.publish("a", "first")
            await take(payloads, 1)
            before = _commits(other)
            for number in range(2_000):
                signals.publish("a", str(number))
            await take(payloads, 2_000)
            signals.close()  # the server updates the count at the latest when the session ends
            made = await eventually(lambda: _commits(other) - before, within_s=60)
            assert made < 200
    finally:
        signals.close()


def _commits(connection: psycopg.Connection) -> int:
    rows = connection.execute(
        "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    )
    return int(rows.fetchall()[0][0])
