"""A connection to PostgreSQL breaks at COMMIT: the unit of work takes effect once, whether it was committed or not."""

import threading
from pathlib import Path

import anyio.to_thread
import psycopg
import pytest

from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.errors import OutcomeUnknown
from store.inbox import InboxRow, InboxStore, NewInboxRow
from tests.fakes.postgres import PostgresServer
from tests.fakes.postgres_proxy import PostgresProxy

KEY = ConversationKey(channel="slack", workspace="T", chat="C", topic="1")


def message(number: int) -> NewInboxRow:
    return NewInboxRow(
        key=KEY, event_id=f"e{number}", message_id="", kind="chat", body="{}", received_at=1.0
    )


@pytest.mark.parametrize("mode", ["lost", "unanswered"])
async def test_a_message_is_accepted_once_however_its_commit_ends(
    url: str, tmp_path: Path, mode: str
) -> None:
    with PostgresProxy(url) as proxy:
        async with Database.open(StoreConfig(url=proxy.url), tmp_path) as database:
            inbox = InboxStore(database)
            proxy.arm(mode)
            accepted = await inbox.accept(message(1), cap=9)
            assert proxy.cuts == 1
            assert isinstance(accepted, InboxRow)
            unfinished = await inbox.list_unfinished()
            assert [(row.id, row.seq) for row in unfinished] == [(accepted.id, 1)]


async def test_the_outcome_is_unknown_after_a_crash_of_the_server(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    if not server.control:
        pytest.skip("the server was not started by the tests")
    restarted = threading.Event()

    def crash() -> None:
        server.restart()
        restarted.set()

    with PostgresProxy(url) as proxy:
        async with Database.open(StoreConfig(url=proxy.url), tmp_path) as database:
            proxy.arm("unanswered", crash)
            with pytest.raises(OutcomeUnknown):
                await InboxStore(database).accept(message(1), cap=9)
            assert await anyio.to_thread.run_sync(restarted.wait, 60)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM inbox").fetchall() == [(1,)]
