"""PostgreSQL only: concurrent units of work, broken connections, and errors when it cannot be used."""

import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ExecStatus

from store.chat_owners import SharedOwners
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database, Transaction
from store.errors import SchemaMismatch, StoreUnavailable
from store.inbox import InboxRow, InboxStore, NewInboxRow, QueueFull
from store.inbox_accept import accept
from store.migrations import steps
from store.pairings import Pairing, PairingStore
from store.postgres.statements import translate
from store.threads import ThreadStore
from tests.eventually import eventually
from tests.fakes.postgres import PostgresServer
from tests.store.test_retention import OF_POSTGRES

GUIDE = Path(__file__).parents[2] / "docs/howto/use-postgresql.md"
GRANT_ROWS = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public"
KEY = ConversationKey(channel="slack", workspace="T", chat="C", topic="1")


def message(number: int, key: ConversationKey = KEY, *, text: str = "{}") -> NewInboxRow:
    return NewInboxRow(
        key=key, event_id=f"e{number}", message_id="", kind="chat", body=text, received_at=1.0
    )


async def refusal(url: str, home: Path) -> str:
    """Return the one-line error of a database that cannot be opened."""
    with pytest.raises(StoreUnavailable) as caught:
        async with Database.open(StoreConfig(url=url), home):
            pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_units_that_change_the_same_row_lose_nothing(url: str, tmp_path: Path) -> None:
    async with Database.open(StoreConfig(url=url), tmp_path) as database:
        threads = ThreadStore(database)
        await threads.create("t", {}, now=1.0)

        async def patch(number: int) -> None:
            await threads.patch("t", {f"k{number}": number}, now=2.0)

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(patch, number)
        assert (await threads.get("t")).metadata == {f"k{n}": n for n in range(40)}


async def test_messages_of_a_chat_are_numbered_in_the_order_of_the_calls(
    url: str, tmp_path: Path
) -> None:
    async with Database.open(StoreConfig(url=url), tmp_path) as database:
        inbox = InboxStore(database)
        accepted: list[tuple[int, int]] = []

        async def accept(number: int) -> None:
            row = await inbox.accept(message(number), cap=100)
            assert isinstance(row, InboxRow)
            accepted.append((number, row.seq))

        async with anyio.create_task_group() as group:
            for number in range(60):
                group.start_soon(accept, number)
        assert sorted(accepted) == [(number, number + 1) for number in range(60)]


async def test_the_cap_of_a_queue_holds_for_messages_at_once(url: str, tmp_path: Path) -> None:
    async with Database.open(StoreConfig(url=url), tmp_path) as database:
        results: list[object] = []

        owners = SharedOwners(database)

        async def accept_one(number: int) -> None:
            # Does not keep the order of submission, because the messages may come from several processes.
            unit = partial(accept, new=message(number), cap=5, owners=owners, open_from={})
            results.append(await database.transaction(unit))

        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(accept_one, number)
        assert sum(isinstance(one, InboxRow) for one in results) == 5
        assert sum(isinstance(one, QueueFull) for one in results) == 25


async def test_the_cap_of_open_pairings_holds_for_requests_at_once(
    url: str, tmp_path: Path
) -> None:
    async with Database.open(StoreConfig(url=url), tmp_path) as database:
        pairings = PairingStore(database, now=lambda: 1.0)
        results: list[Pairing | None] = []

        async def request(number: int) -> None:
            new = Pairing(
                code=f"CODE{number}", channel="slack", workspace="T", user_id=f"U{number}",
                user_name="", chat="C", created_at=1.0, approved_at=None,
            )  # fmt: skip
            results.append(await pairings.request(new, max_open=3))

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(request, number)
        assert sum(one is not None for one in results) == 3


async def test_units_that_wait_for_each_other_run_again(url: str, tmp_path: Path) -> None:
    async with Database.open(StoreConfig(url=url), tmp_path) as database:
        threads = ThreadStore(database)
        for name in ("a", "b"):
            await threads.create(name, {}, now=1.0)
        both = threading.Barrier(2)
        runs: list[str] = []

        def work(tx: Transaction, first: str, second: str) -> None:
            runs.append(first)
            touch = "UPDATE thread SET updated_at = updated_at + 1 WHERE thread_id = :id"
            tx.run(touch, {"id": first})
            if len(runs) <= 2:
                both.wait(5)
            tx.run(touch, {"id": second})

        async with anyio.create_task_group() as group:
            group.start_soon(database.transaction, lambda tx: work(tx, "a", "b"))
            group.start_soon(database.transaction, lambda tx: work(tx, "b", "a"))
        assert len(runs) > 2
        assert [(await threads.get(name)).updated_at for name in ("a", "b")] == [3.0, 3.0]


async def test_a_row_that_another_unit_inserted_first_is_found_on_a_second_look(
    url: str, tmp_path: Path
) -> None:
    async with Database.open(StoreConfig(url=url), tmp_path) as database:
        looked = threading.Barrier(2)
        results: list[str] = []

        def work(tx: Transaction) -> None:
            found = tx.run("SELECT 1 FROM thread WHERE thread_id = 't'")
            if not looked.broken and not found:
                looked.wait(5)
            if found:
                results.append("found")
                return
            tx.run(
                "INSERT INTO thread (thread_id, created_at, updated_at, state_updated_at) VALUES ('t', 1, 1, 1)"
            )
            results.append("inserted")

        async with anyio.create_task_group() as group:
            group.start_soon(database.transaction, work)
            group.start_soon(database.transaction, work)
        assert sorted(results) == ["found", "inserted"]


async def test_text_with_nul_is_stored_without_it(url: str, tmp_path: Path) -> None:
    async with Database.open(StoreConfig(url=url), tmp_path) as database:
        row = await InboxStore(database).accept(message(1, text="a\0b"), cap=9)
        assert isinstance(row, InboxRow)
        assert [one.body for one in await InboxStore(database).list_unfinished()] == ["a\ufffdb"]
        thread = await ThreadStore(database).create("t", {"a\0": "b\0", "c": "\\u0000"}, now=1.0)
        assert thread.metadata == {"a\0": "b\0", "c": "\\u0000"}


async def is_writable(database: Database) -> bool:
    try:
        await database.check_writable()
    except StoreUnavailable:
        return False
    return True


async def test_calls_fail_while_the_server_is_gone_and_work_when_it_is_back(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    if not server.control:
        pytest.skip("the server was not started by the tests")
    async with Database.open(StoreConfig(url=url), tmp_path) as database:
        inbox = InboxStore(database)
        await inbox.accept(message(1), cap=9)
        await anyio.to_thread.run_sync(server.stop)
        try:
            for number in range(20):
                with pytest.raises(StoreUnavailable):
                    await inbox.accept(message(100 + number), cap=9)
            assert database.outage
        finally:
            await anyio.to_thread.run_sync(server.start)
        await eventually(lambda: is_writable(database))
        assert not database.outage
        await inbox.accept(message(2), cap=9)
        assert [row.event_id for row in await inbox.list_unfinished()] == ["e1", "e2"]


async def test_the_primary_of_several_hosts_is_used_even_after_a_failover(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    if not server.control:
        pytest.skip("the server was not started by the tests")
    with server.replica() as replica:
        replica_host = replica.url.split("@")[1].split("/")[0]
        config = StoreConfig(url=url.replace("@", f"@{replica_host},"))
        async with Database.open(config, tmp_path) as database:
            inbox = InboxStore(database)
            await inbox.accept(message(1), cap=9)
            await eventually(lambda: _event_ids(replica.url_of(url)), lambda ids: ids == ["e1"])
            await anyio.to_thread.run_sync(server.stop)
            try:
                with pytest.raises(StoreUnavailable):
                    await inbox.accept(message(2), cap=9)
                await anyio.to_thread.run_sync(replica.promote)
                await eventually(lambda: _accepts(inbox, message(2)), lambda accepted: accepted)
                assert [row.event_id for row in await inbox.list_unfinished()] == ["e1", "e2"]
            finally:
                await anyio.to_thread.run_sync(server.start)


async def _event_ids(url: str) -> list[str]:
    """Return the events of the messages in a database."""
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT event_id FROM inbox ORDER BY id")]


async def _accepts(inbox: InboxStore, new: NewInboxRow) -> bool:
    """Return whether a message could be stored or was already stored."""
    try:
        await inbox.accept(new, cap=9)
    except StoreUnavailable:
        return False
    return True


async def test_connections_that_were_closed_are_replaced_without_an_error(
    url: str, tmp_path: Path
) -> None:
    async with Database.open(StoreConfig(url=url), tmp_path) as database:
        inbox = InboxStore(database)
        for number in range(20):
            await inbox.accept(message(number), cap=99)
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        for number in range(20, 40):
            await inbox.accept(message(number), cap=99)
        assert len(await inbox.list_unfinished()) == 40


async def test_a_newer_schema_is_refused(url: str, tmp_path: Path) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO parley_schema VALUES (9999, 0)")
    with pytest.raises(SchemaMismatch, match="schema 9999"):
        async with Database.open(StoreConfig(url=url), tmp_path):
            pass


async def test_processes_that_start_at_once_create_the_tables_once(
    server: PostgresServer, tmp_path: Path
) -> None:
    with server.database(migrated=False) as url:
        results: list[str] = []

        async def start(number: int) -> None:
            async with Database.open(StoreConfig(url=url), tmp_path / str(number)) as database:
                rows = await database.read("SELECT version FROM parley_schema")
                assert [row["version"] for row in rows] == list(
                    range(1, len(steps("postgres")) + 1)
                )
                results.append("opened")

        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(start, number)
        assert results == ["opened"] * 3


async def test_missing_rights_of_a_role_are_reported(
    server: PostgresServer, tmp_path: Path
) -> None:
    with server.database(migrated=False) as url:
        name = f"weak_{tmp_path.name}".replace("-", "_")
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'".encode())
            host = f"{owner.info.host}:{owner.info.port}/{owner.info.dbname}"
        try:
            said = await refusal(f"postgresql://{name}:x@{host}", tmp_path)
        finally:
            with psycopg.connect(url, autocommit=True) as owner:
                owner.execute(f"DROP ROLE {name}".encode())
    assert said.startswith(f"The PostgreSQL role {name} may not create Parley's tables")
    assert f"GRANT CREATE, USAGE ON SCHEMA public TO {name}" in said


def least_privileges(runner: str, url: str) -> list[str]:
    """Return the guide's statements that create a role for Parley, with the test's role and database."""
    blocks = re.findall(r"^```sql\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S)
    (block,) = (found for found in blocks if "parley_runner" in found)
    info = conninfo_to_dict(url)
    block = block.replace("parley_runner", runner)
    block = block.replace("ROLE parley ", f"ROLE {info['user']} ")
    block = block.replace("DATABASE parley ", f"DATABASE {info['dbname']} ")
    return [statement for statement in block.split(";") if statement.strip()]


async def test_a_role_that_may_only_read_and_write_rows_is_enough_once_the_tables_exist(
    url: str, tmp_path: Path
) -> None:
    name = f"runner_{tmp_path.name}".replace("-", "_")
    create, *grants = least_privileges(name, url)
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(create.encode())
        host = f"{owner.info.host}:{owner.info.port}/{owner.info.dbname}"
    try:
        runner = f"postgresql://{name}:another%20long%20password@{host}"
        said = await refusal(runner, tmp_path)
        assert said.startswith(f"The PostgreSQL role {name} may not use Parley's tables")
        assert said.endswith(f"{GRANT_ROWS} TO {name}")
        with psycopg.connect(url, autocommit=True) as owner:
            for grant in grants:
                owner.execute(grant.encode())
        config = StoreConfig(url=runner)
        async with Database.open(config, tmp_path) as database:
            assert isinstance(await InboxStore(database).accept(message(1), cap=9), InboxRow)
            await ThreadStore(database).create("t", {"a": 1}, now=1.0)
    finally:
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute(f"DROP OWNED BY {name}".encode())
            owner.execute(f"DROP ROLE {name}".encode())


async def test_a_server_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = await refusal(f"postgresql://parley:secret@127.0.0.1:{port}/parley", tmp_path)
    assert said.startswith("PostgreSQL cannot be used: ")
    assert f"port {port} failed: Connection refused" in said
    assert "secret" not in said


async def test_a_database_that_does_not_exist_is_named(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    said = await refusal(url.replace("/parley_", "/absent_"), tmp_path)
    assert "does not exist" in said


@pytest.mark.parametrize(
    "url", ["postgresql://user:p@ss/word@host/name", "postgresql://host:port/name"]
)
async def test_a_wrong_url_is_reported(url: str, tmp_path: Path) -> None:
    said = await refusal(url, tmp_path)
    assert said.startswith("database.url is not a valid PostgreSQL URL") or "cannot be used" in said


@contextmanager
def old_server() -> Iterator[int]:
    """Yield the port of a server that claims to be PostgreSQL 14."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)  # the start-up packet
            connection.sendall(
                b"R" + struct.pack("!ii", 8, 0)
                + _status(b"server_version", b"14.9") + _status(b"client_encoding", b"UTF8")
                + _status(b"in_hot_standby", b"off")
                + _status(b"default_transaction_read_only", b"off")
                + b"Z" + struct.pack("!ic", 5, b"I")
            )  # fmt: skip
            connection.recv(4096)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(5)


def _status(name: bytes, value: bytes) -> bytes:
    return b"S" + struct.pack("!i", 6 + len(name) + len(value)) + name + b"\0" + value + b"\0"


async def test_an_old_server_is_refused(tmp_path: Path) -> None:
    with old_server() as port:
        url = f"postgresql://parley@127.0.0.1:{port}/parley?sslmode=disable&gssencmode=disable"
        said = await refusal(url, tmp_path)
    assert said == "The PostgreSQL server has version 14; Parley needs 15 or newer."


def test_a_missing_driver_is_reported(tmp_path: Path) -> None:
    program = f"""
import sys, pathlib, anyio
sys.modules["psycopg"] = None
from store.config import StoreConfig
from store.database import Database
async def main():
    async with Database.open(StoreConfig(url="postgresql://localhost/parley"), pathlib.Path({str(tmp_path)!r})):
        pass
try:
    anyio.run(main)
except Exception as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert "its driver cannot be loaded" in done.stdout
    assert done.stdout.strip().endswith("install psycopg[binary].")


def test_postgres_understands_every_statement_of_the_store(url: str) -> None:
    refused: dict[str, str] = {}
    with psycopg.connect(url, autocommit=True) as connection:
        for module, name, sql in OF_POSTGRES:
            result = connection.pgconn.prepare(b"", translate(sql)[0].encode())
            if result.status != ExecStatus.COMMAND_OK:
                refused[f"{module}.{name}"] = result.error_message.decode()
    assert refused == {}


def test_both_engines_have_the_same_versions() -> None:
    assert len(steps("postgres")) == len(steps("sqlite"))


def test_parameters_are_not_looked_for_in_casts_and_texts() -> None:
    assert translate("SELECT a::text, ':' || :b, json_each(:c)") == (
        "SELECT a::text, ':' || $1, parley_json_each($2)",
        ("b", "c"),
    )


def test_a_postgres_url_names_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="use pg_dump"):
        StoreConfig(url="postgresql://db/parley").file(tmp_path)
