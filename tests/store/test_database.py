import shutil
import sqlite3
import sys
from asyncio import get_running_loop
from contextlib import closing, suppress
from pathlib import Path
from threading import Event

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from store.config import StoreConfig
from store.database import Database, Transaction
from store.errors import DatabaseCorrupt, SchemaMismatch, StoreLocked, StoreUnavailable
from store.sqlite_writer import COMMAND_SWITCH_S, DatabaseWriter
from store.unit_of_work import UnitOfWork, UnitTurns
from store.work_group import WORK_GROUP, working_for_command

CONFIG = StoreConfig()


def make_table(tx: Transaction) -> None:
    tx.run("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT")


def write(text: str, tx: Transaction) -> int:
    return int(
        tx.run("INSERT INTO note (text) VALUES (:text) RETURNING id", {"text": text})[0]["id"]
    )


def copies_in(home: Path) -> list[Path]:
    return list(home.glob("parley.db.corrupt-*"))


async def texts(database: Database) -> list[str]:
    return [row["text"] for row in await database.read("SELECT text FROM note ORDER BY id")]


async def test_written_rows_can_be_read_and_survive_a_restart(tmp_path: Path) -> None:
    async with Database.open(CONFIG, tmp_path) as database:
        await database.transaction(make_table)
        assert await database.transaction(lambda tx: write("hello", tx)) == 1
        assert await texts(database) == ["hello"]
    async with Database.open(CONFIG, tmp_path) as database:
        assert await texts(database) == ["hello"]


async def test_the_file_is_a_wal_journal_with_full_sync_and_foreign_keys(tmp_path: Path) -> None:
    async with Database.open(CONFIG, tmp_path) as database:
        pragmas = await database.transaction(
            lambda tx: {
                name: next(iter(tx.run(f"PRAGMA {name}")[0].values()))
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            }
        )
    assert pragmas == {
        "journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000,
    }  # fmt: skip


async def test_only_this_user_can_read_the_file(tmp_path: Path) -> None:
    async with Database.open(CONFIG, tmp_path / "home"):
        assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "home" / "parley.db").stat().st_mode & 0o777 == 0o600


async def test_readers_cannot_write(tmp_path: Path) -> None:
    async with Database.open(CONFIG, tmp_path) as database:
        with pytest.raises(StoreUnavailable, match="readonly"):
            await database.read("CREATE TABLE x (a INTEGER)")


async def test_a_unit_that_raises_undoes_only_itself(tmp_path: Path) -> None:
    async with Database.open(CONFIG, tmp_path) as database:
        await database.transaction(make_table)
        caught: list[Exception] = []

        def spoil(tx: Transaction) -> None:
            write("spoiled", tx)
            raise KeyError("mine")

        async def attempt(index: int) -> None:
            try:
                await database.transaction(
                    spoil if index % 3 == 0 else lambda tx: write(f"{index:03}", tx)
                )
            except KeyError as error:
                caught.append(error)

        async with anyio.create_task_group() as group:
            for index in range(90):
                group.start_soon(attempt, index)
        assert len(caught) == 30
        assert sorted(await texts(database)) == [f"{i:03}" for i in range(90) if i % 3]


async def test_a_unit_alone_costs_three_calls_of_sqlite(tmp_path: Path) -> None:
    """Each call waits for the GIL while the event loop is busy."""
    file = tmp_path / "notes.db"
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    statements: list[str] = []
    writer = DatabaseWriter(connection, file)
    await writer.submit(make_table)
    connection.set_trace_callback(statements.append)
    await writer.submit(lambda tx: tx.run("INSERT INTO note (text) VALUES (:a)", {"a": "x"}))
    assert statements == [
        "BEGIN IMMEDIATE",
        "INSERT INTO note (text) VALUES ('x')",
        "COMMIT",
    ]
    await writer.close(timeout_s=5)


async def test_a_group_with_much_to_store_does_not_keep_others_waiting(tmp_path: Path) -> None:
    done: list[str] = []
    first_runs, others_wait = Event(), Event()

    def block(tx: Transaction) -> None:
        first_runs.set()
        assert others_wait.wait(30)

    async def store(database: Database, group: str, text: str) -> None:
        def work(tx: Transaction) -> None:
            done.append(text)
            write(text, tx)

        WORK_GROUP.set(group)
        await database.transaction(work)

    async with Database.open(CONFIG, tmp_path) as database:
        await database.transaction(make_table)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(database.transaction, block)
            await anyio.to_thread.run_sync(first_runs.wait)
            for number in range(100):
                tasks.start_soon(store, database, "busy", f"{number:03}")
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(store, database, "other", "a")
            tasks.start_soon(store, database, "other", "b")
            await anyio.wait_all_tasks_blocked()
            others_wait.set()
        assert done[:5] == ["000", "a", "001", "b", "002"]
        assert len(await texts(database)) == 102


async def test_a_command_waits_for_one_unit_and_is_committed_at_once(tmp_path: Path) -> None:
    """This holds even if it arrives while many units of a busy channel are being committed."""
    file = tmp_path / "notes.db"
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    statements: list[str] = []
    writer = DatabaseWriter(connection, file)
    await writer.submit(make_table)
    connection.set_trace_callback(statements.append)
    runs, command_waits = Event(), Event()

    async def store(group: str, text: str) -> None:
        def work(tx: Transaction) -> None:
            if text == "busy 0":
                runs.set()
                assert command_waits.wait(30)
            write(text, tx)

        WORK_GROUP.set(group)
        await writer.submit(work)

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(store, "busy", f"busy {number}")
        await anyio.to_thread.run_sync(runs.wait)
        WORK_GROUP.set("other")
        with working_for_command():
            tasks.start_soon(store, str(WORK_GROUP.get()), "command")
        await anyio.wait_all_tasks_blocked()
        command_waits.set()
    [before] = [index for index, sql in enumerate(statements) if "'command'" in sql]
    assert statements[: before + 2] == [
        "BEGIN IMMEDIATE",
        "INSERT INTO note (text) VALUES ('busy 0') RETURNING id",
        "INSERT INTO note (text) VALUES ('command') RETURNING id",
        "COMMIT",
    ]
    await writer.close(timeout_s=5)


async def test_other_threads_give_the_interpreter_up_sooner_while_a_command_is_stored(
    tmp_path: Path,
) -> None:
    usual = sys.getswitchinterval()
    async with Database.open(CONFIG, tmp_path) as database:
        of_others = await database.transaction(lambda _: sys.getswitchinterval())
        with working_for_command():
            of_command = await database.transaction(lambda _: sys.getswitchinterval())
        assert of_others == usual
        assert of_command == pytest.approx(COMMAND_SWITCH_S, rel=0.1)
        assert sys.getswitchinterval() == usual


async def test_commands_have_every_other_turn_at_most() -> None:
    turns, order = UnitTurns(), list[str | None]()
    future = get_running_loop().create_future()
    for group in ["a", "b", "a/commands", "b/commands"]:
        for _ in range(3):
            turns.add(UnitOfWork(str, future, group=group))
    while turns:
        order.append(turns.take().group)
    assert order[:7] == ["a/commands", "a", "b/commands", "b", "a/commands", "a", "b/commands"]
    assert len(order) == 12


async def test_a_read_does_not_block_others_until_its_caller_runs_again(tmp_path: Path) -> None:
    """Callers with much other work resume late."""
    async with Database.open(StoreConfig(readers=1), tmp_path) as database:
        await database.transaction(make_table)
        late = database.read("SELECT text FROM note")
        with closing(late):
            late.send(None)  # it waits and does not run again
            with anyio.fail_after(20):
                assert await texts(database) == []


async def test_a_unit_that_hides_the_loss_of_the_transaction_fails(tmp_path: Path) -> None:
    def hide(tx: Transaction) -> None:
        with suppress(sqlite3.IntegrityError):
            tx.run("INSERT OR ROLLBACK INTO note VALUES (1, NULL)")

    async with Database.open(CONFIG, tmp_path) as database:
        await database.transaction(make_table)
        with pytest.raises(StoreUnavailable):
            await database.transaction(hide)
        await database.transaction(lambda tx: write("later", tx))


async def test_errors_of_sql_reach_the_caller_and_the_next_unit_works(tmp_path: Path) -> None:
    async with Database.open(CONFIG, tmp_path) as database:
        await database.transaction(make_table)
        await database.transaction(lambda tx: write("once", tx))
        with pytest.raises(sqlite3.IntegrityError):
            await database.transaction(lambda tx: write("once", tx))
        with pytest.raises(StoreUnavailable, match="no such table"):
            await database.transaction(lambda tx: tx.run("INSERT INTO nowhere VALUES (1)"))
        await database.transaction(lambda tx: write("again", tx))
        assert await texts(database) == ["once", "again"]


async def test_a_unit_that_loses_the_whole_transaction_fails_every_caller_of_the_batch(
    tmp_path: Path,
) -> None:
    async with Database.open(CONFIG, tmp_path) as database:
        await database.transaction(make_table)
        outcomes: list[str] = []

        async def attempt(index: int) -> None:
            try:
                await database.transaction(
                    (lambda tx: tx.run("INSERT OR ROLLBACK INTO note VALUES (1, NULL)"))
                    if index == 5
                    else (lambda tx: write(str(index), tx))
                )
            except (StoreUnavailable, sqlite3.IntegrityError):
                outcomes.append("failed")
            else:
                outcomes.append("kept")

        async with anyio.create_task_group() as group:
            for index in range(10):
                group.start_soon(attempt, index)
        assert len(await texts(database)) == outcomes.count("kept")
        assert len(outcomes) == 10
        await database.transaction(lambda tx: write("later", tx))
        assert (await texts(database))[-1] == "later"


async def test_a_canceled_caller_does_not_break_the_batch(tmp_path: Path) -> None:
    async with Database.open(CONFIG, tmp_path) as database:
        await database.transaction(make_table)
        kept: list[int] = []

        async def keep(index: int) -> None:
            kept.append(await database.transaction(lambda tx: write(f"kept {index}", tx)))

        async with anyio.create_task_group() as group:
            for index in range(50):
                group.start_soon(keep, index)
            with anyio.CancelScope() as scope:
                scope.cancel()
                await database.transaction(lambda tx: write("canceled", tx))
        assert len(kept) == 50
        assert len([text for text in await texts(database) if text.startswith("kept")]) == 50


async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    code = (
        "import fcntl, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "os.write(fd, str(os.getpid()).encode())\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    async with await anyio.open_process(
        [sys.executable, "-c", code, str(tmp_path / "parley.lock")]
    ) as child:
        assert child.stdout is not None
        assert (await child.stdout.receive()).startswith(b"h")
        with pytest.raises(StoreLocked, match=f"pid {child.pid}.*PARLEY_HOME"):
            async with Database.open(CONFIG, tmp_path):
                pass
        child.kill()
    async with Database.open(CONFIG, tmp_path) as database:
        assert await database.read("SELECT 1 AS one") == [{"one": 1}]


async def test_a_second_opening_in_this_process_is_refused_too(tmp_path: Path) -> None:
    async with Database.open(CONFIG, tmp_path):
        with pytest.raises(StoreLocked):
            async with Database.open(CONFIG, tmp_path):
                pass


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    async with Database.open(CONFIG, tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "parley.db")) as connection, connection:
        connection.execute("INSERT INTO parley_schema VALUES (9999, 0)")
    with pytest.raises(SchemaMismatch, match="9999"):
        async with Database.open(CONFIG, tmp_path):
            pass


@pytest.mark.parametrize("damage", ["not a database", "a damaged page"])
async def test_a_damaged_file_is_kept_and_refused(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "parley.db"
    if damage == "not a database":
        file.write_bytes(b"this is not SQLite" * 1000)
    else:
        async with Database.open(CONFIG, tmp_path) as database:
            await database.transaction(make_table)
            for index in range(50):
                await database.transaction(lambda tx, index=index: write(f"{index}" * 400, tx))  # type: ignore[misc]
        content = bytearray(file.read_bytes())
        content[-40_000:-20_000] = b"\xa5" * 20_000
        file.write_bytes(content)
    before = file.read_bytes()
    with pytest.raises(DatabaseCorrupt) as caught:
        async with Database.open(CONFIG, tmp_path):
            pass
    copies = copies_in(tmp_path)
    assert [copy.read_bytes() for copy in copies] == [before]
    assert file.read_bytes() == before
    assert str(file) in str(caught.value)
    assert str(copies[0]) in str(caught.value)
    assert "backup" in str(caught.value)


async def test_a_restart_loop_keeps_one_copy_of_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "parley.db").write_bytes(b"junk" * 500)
    for _ in range(3):
        with pytest.raises(DatabaseCorrupt):
            async with Database.open(CONFIG, tmp_path):
                pass
    assert len(copies_in(tmp_path)) == 1


async def test_a_folder_that_cannot_be_made_says_what_where_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    home = tmp_path / "file" / "home"
    with pytest.raises(StoreUnavailable, match="PARLEY_HOME") as caught:
        async with Database.open(CONFIG, home):
            pass
    assert str(home) in str(caught.value)


async def test_another_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="must be sqlite:///FILE or postgresql://"):
        async with Database.open(StoreConfig(url="mysql://localhost/parley"), tmp_path):
            pass


async def test_a_closed_database_says_so(tmp_path: Path) -> None:
    async with Database.open(CONFIG, tmp_path) as database:
        await database.transaction(make_table)
    with pytest.raises(StoreUnavailable, match="closed"):
        await database.transaction(lambda tx: write("late", tx))
    with pytest.raises(StoreUnavailable, match="closed"):
        await texts(database)


async def test_work_submitted_before_the_close_is_committed(tmp_path: Path) -> None:
    async with anyio.create_task_group() as group, Database.open(CONFIG, tmp_path) as database:
        await database.transaction(make_table)
        for index in range(200):
            group.start_soon(database.transaction, lambda tx, i=index: write(str(i), tx))
        await anyio.lowlevel.checkpoint()
    async with Database.open(CONFIG, tmp_path) as database:
        assert len(await texts(database)) == 200


async def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    async with Database.open(CONFIG, tmp_path) as database:
        await database.transaction(make_table)
        pages = await database.transaction(lambda tx: tx.run("PRAGMA page_count")[0]["page_count"])
        await database.transaction(lambda tx: tx.run(f"PRAGMA max_page_count = {pages + 5}"))
        kept: list[str] = []
        refused: list[str] = []

        async def attempt(text: str) -> None:
            try:
                await database.transaction(lambda tx: write(text, tx))
            except StoreUnavailable:
                refused.append(text)
            else:
                kept.append(text)

        async with anyio.create_task_group() as group:
            for index in range(40):
                group.start_soon(attempt, f"{index:02}" * 1000)
        assert refused
        assert sorted(await texts(database)) == sorted(kept)
        await database.transaction(lambda tx: tx.run("PRAGMA max_page_count = 100000"))
        await database.transaction(lambda tx: write("room again", tx))
        assert (await texts(database))[-1] == "room again"


@pytest.mark.parametrize("what", ["deleted", "replaced", "folder deleted"])
async def test_nothing_is_committed_into_a_file_that_lost_its_name(
    tmp_path: Path, what: str
) -> None:
    home = tmp_path / "home"
    async with Database.open(CONFIG, home) as database:
        await database.transaction(make_table)
        assert database.free_bytes() > 0
        if what == "folder deleted":
            shutil.rmtree(home)
        else:
            (home / "parley.db").unlink()
        if what == "replaced":
            (home / "parley.db").touch()
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="deleted or replaced"):
                await database.transaction(lambda tx: write("into the void", tx))
            assert "deleted or replaced" in database.outage
        with pytest.raises(StoreUnavailable, match="deleted or replaced"):
            await database.check_writable()


async def test_an_outage_lasts_until_something_is_written_again(tmp_path: Path) -> None:
    async with Database.open(CONFIG, tmp_path) as database:
        await database.transaction(make_table)
        await database.check_writable()
        assert database.outage == ""
        pages = await database.transaction(lambda tx: tx.run("PRAGMA page_count")[0]["page_count"])
        await database.transaction(lambda tx: tx.run(f"PRAGMA max_page_count = {pages}"))
        with pytest.raises(StoreUnavailable, match="full"):
            await database.transaction(lambda tx: write("x" * 100_000, tx))
        assert "full" in database.outage
        await texts(database)  # being able to read it proves nothing
        await database.transaction(lambda tx: tx.run("SELECT 1"))
        assert "full" in database.outage
        await database.transaction(lambda tx: tx.run("PRAGMA max_page_count = 1000000"))
        await database.check_writable()
        assert database.outage == ""


async def test_a_read_that_fails_is_an_outage_until_one_succeeds(tmp_path: Path) -> None:
    async with Database.open(CONFIG, tmp_path) as database:
        with pytest.raises(StoreUnavailable):
            await database.read("SELECT * FROM nothing")
        assert "could not be read" in database.outage
        await database.read("SELECT 1")
        assert database.outage == ""
