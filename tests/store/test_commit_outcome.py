"""A connection to PostgreSQL breaks at COMMIT: the unit counts once, whether it was committed or not."""

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio.to_thread
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.errors import StoreUnavailable
from store.inbox import InboxRow, InboxStore, NewInboxRow
from tests.fakes.postgres import MISSING, PostgresServer

COMMIT, READY = b"COMMIT\0", b"Z\0\0\0\x05I"
"""The end of the message with the statement, and what the server sends when it was executed."""

KEY = ConversationKey(channel="slack", workspace="T", chat="C", topic="1")


class CuttingProxy:
    """Forwards connections to a server; once armed, cuts the next one that commits.

    Attributes:
        url: Of the database, through the proxy.
        cuts: How many connections were cut.
    """

    def __init__(self, url: str) -> None:
        target = conninfo_to_dict(url)
        self._target = (str(target["host"]), int(str(target["port"])))
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = f"postgresql://{target['user']}@127.0.0.1:{port}/{target['dbname']}"
        self.cuts = 0
        self._mode = ""
        self._before_the_cut: Callable[[], None] = lambda: None
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, mode: str, before_the_cut: Callable[[], None] = lambda: None) -> None:
        """Cut the next connection that commits: `lost` = COMMIT does not arrive, `unanswered` = its answer does not."""
        self._mode, self._before_the_cut = mode, before_the_cut

    def close(self) -> None:
        """Accept no connection any more."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self._target) as server:
            while True:
                readable, _, _ = select.select([client, server], [], [])
                for end in readable:
                    if not (data := end.recv(65536)):
                        return
                    if end is client and self._mode and data.endswith(COMMIT):
                        self._cut(server, data)
                        return
                    (server if end is client else client).sendall(data)

    def _cut(self, server: socket.socket, data: bytes) -> None:
        mode, self._mode = self._mode, ""
        self.cuts += 1
        if mode == "unanswered":
            server.sendall(data)
            while not server.recv(65536).endswith(READY):
                pass
        self._before_the_cut()


@pytest.fixture
def server(postgres: PostgresServer | None) -> PostgresServer:
    if postgres is None:
        pytest.skip(MISSING)
    return postgres


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    with server.database() as created:
        yield created


@contextmanager
def cutting(url: str) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()


def message(number: int) -> NewInboxRow:
    return NewInboxRow(
        key=KEY, event_id=f"e{number}", message_id="", kind="chat", body="{}", received_at=1.0
    )


@pytest.mark.parametrize("mode", ["lost", "unanswered"])
async def test_a_message_is_accepted_once_however_its_commit_ends(
    url: str, tmp_path: Path, mode: str
) -> None:
    with cutting(url) as proxy:
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

    with cutting(url) as proxy:
        async with Database.open(StoreConfig(url=proxy.url), tmp_path) as database:
            proxy.arm("unanswered", crash)
            with pytest.raises(StoreUnavailable):
                await InboxStore(database).accept(message(1), cap=9)
            assert await anyio.to_thread.run_sync(restarted.wait, 60)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM inbox").fetchall() == [(1,)]
