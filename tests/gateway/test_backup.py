"""`parley backup`, `restore` and `upgrade-check`: restores give the same data, and damaged archives are rejected."""

import gzip
import hashlib
import io
import json
import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.backup.archive import MANIFEST, extract_archive
from gateway.backup.create import write_backup
from gateway.backup.restore import restore_backup
from gateway.backup.trial_upgrade import copy_for_trial, try_upgrade
from gateway.checks.folders import find_file_problems
from gateway.command_errors import CommandFailed
from gateway.compose import open_app
from gateway.config import Config, load_config
from gateway.version import get_version
from store import migrations
from store.checkpoints import open_checkpointer
from store.config import StoreConfig
from store.database import Database
from store.errors import DatabaseCorrupt, SchemaMismatch, StoreLocked, StoreUnavailable
from store.migrations import steps
from tests.fakes.disk import full_disk
from tests.fakes.migrated import place_database
from tests.gateway.test_cli import one_line, parley
from tests.ports import free_port

SECRET_OUTSIDE = "sk-only-in-the-env-file-0123456789"


def config_of(folder: Path, text: str = "{}") -> Config:
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(text)
    return load_config(str(folder / "config.yaml"), {"PARLEY_HOME": str(folder / "home")})


async def fill(config: Config) -> None:
    """Make a data folder with databases and all kinds of files."""
    async with Database.open(config.database, config.home), open_checkpointer(config.home):
        pass
    home = config.home
    thread = home / "threads" / "t1" / "user-data"
    (thread / "workspace" / "empty").mkdir(parents=True)
    (home / "USER.md").write_text("# 你好")
    (home / "credentials.key").write_bytes(b"k" * 32)
    (home / "admin_token").write_text("a-token")
    (home / "parley.log").write_text("not data")
    (home / "parley.db.corrupt-20260101T000000Z").write_text("not data")
    (thread / "outputs").mkdir()
    (thread / "outputs" / "a.bin").write_bytes(os.urandom(300_000))
    (thread / "outputs" / "run.sh").write_text("true")
    (thread / "outputs" / "run.sh").chmod(0o755)
    (thread / "workspace" / "python").symlink_to("/usr/bin/python3")
    (thread / "workspace" / "up").symlink_to("../../..")
    (thread / "workspace" / "nowhere").symlink_to("missing")
    (thread / "workspace" / os.fsdecode(b"latin-\xe9")).write_text("name of another encoding")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def tree(home: Path) -> dict[str, object]:
    """Return what a data folder contains, except databases and the lock."""
    found: dict[str, object] = {}
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home).as_posix()
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_dir():
            found[name] = "folder"
        elif not name.startswith(("parley.", "checkpoints.db")):
            found[name] = (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mode)
    return found


async def in_thread(work: Callable[[], Any]) -> Any:  # noqa: ANN401 - any result
    return await anyio.to_thread.run_sync(work)


async def backup_of(config: Config, file: Path) -> Path:
    await fill(config)
    await in_thread(lambda: write_backup(config, file))
    return file


async def test_a_restored_backup_equals_the_original(tmp_path: Path) -> None:
    source, target = config_of(tmp_path / "a"), config_of(tmp_path / "b")
    file = await backup_of(source, tmp_path / "backup.tar.gz")
    assert file.stat().st_mode & 0o777 == 0o600
    manifest, aside = await in_thread(lambda: restore_backup(target, file, replace=False))
    assert aside is None
    assert manifest.skipped == ()
    assert manifest.schema == len(steps("sqlite"))
    assert tree(target.home) == tree(source.home)
    assert not (target.home / "parley.log").exists()
    assert (target.home / "parley.db").stat().st_mode & 0o777 == 0o600
    async with Database.open(target.database, target.home) as database:
        assert (await database.read("SELECT max(version) AS v FROM parley_schema"))[0]["v"]
    assert names(tmp_path) == ["a", "b", "backup.tar.gz"]


async def test_a_journal_elsewhere_goes_where_the_configuration_says(tmp_path: Path) -> None:
    source = config_of(tmp_path / "a", f"database: {{url: 'sqlite:///{tmp_path}/own/j.db'}}")
    target = config_of(tmp_path / "b", "database: {url: 'sqlite:///below/k.db'}")
    file = await backup_of(source, tmp_path / "backup.tar.gz")
    await in_thread(lambda: restore_backup(target, file, replace=False))
    assert (target.home / "below" / "k.db").is_file()
    again = tmp_path / "again.tar.gz"
    manifest = await in_thread(lambda: write_backup(target, again))
    names = [entry["path"] for entry in manifest.entries]
    assert [name for name in names if name.endswith(".db")] == [
        "databases/parley.db",
        "databases/checkpoints.db",
    ]
    source.home.rename(tmp_path / "gone")
    with pytest.raises(CommandFailed, match=r"j\.db exists"):
        await in_thread(lambda: restore_backup(source, file, replace=False))


async def test_holes_in_files_do_not_hold_up_a_backup(tmp_path: Path) -> None:
    """Holes take no disk space, so a conversation's limit allows a thousand sparse files of 200 MB."""
    config = config_of(tmp_path / "a")
    await fill(config)
    workspace = config.home / "threads" / "t1" / "user-data" / "workspace"
    for name, size in (("large", 40 * 2**30), ("small", 3_000_000)):
        with (workspace / name).open("wb") as file:
            file.write(b"begin")
            file.truncate(size)
    manifest = await in_thread(lambda: write_backup(config, tmp_path / "backup.tar.gz"))
    assert manifest.skipped == ("threads/t1/user-data/workspace/large (its holes are too large)",)
    target = config_of(tmp_path / "b")
    await in_thread(lambda: restore_backup(target, tmp_path / "backup.tar.gz", replace=False))
    small = target.home / "threads" / "t1" / "user-data" / "workspace" / "small"
    assert small.read_bytes() == b"begin" + b"\0" * 2_999_995


async def test_files_that_cannot_be_restored_are_skipped_and_named(tmp_path: Path) -> None:
    config = config_of(tmp_path / "a")
    await fill(config)
    workspace = config.home / "threads" / "t1" / "user-data" / "workspace"
    os.mkfifo(workspace / "pipe")
    deep = workspace
    for _ in range(150):
        deep /= "d"
        deep.mkdir()
    manifest = await in_thread(lambda: write_backup(config, tmp_path / "backup.tar.gz"))
    pipe, too_deep = sorted(manifest.skipped, key=len)
    assert pipe.startswith("threads/t1/user-data/workspace/pipe (")
    assert too_deep.endswith("/d (the path is too long)")


@contextmanager
def ordinary_user(folder: Path) -> Iterator[None]:
    """Act as an ordinary user who owns a folder, because root may read everything."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.lchown(path, 65534, 65534)
    get_version()  # cached now, because that user may be unable to read the checkout
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_folders_that_cannot_be_read_are_skipped_and_named() -> None:
    # Not in pytest's folders, which only root can read.
    with tempfile.TemporaryDirectory() as folder:
        source, target = config_of(Path(folder, "a")), config_of(Path(folder, "b"))
        anyio.run(fill, source)
        workspace = source.home / "threads" / "t1" / "user-data" / "workspace"
        private = workspace / "private"
        private.mkdir()
        (private / "a.txt").write_text("for nobody")
        (workspace / "link").symlink_to("private")
        private.chmod(0)
        file = Path(folder, "backup.tar.gz")
        try:
            with ordinary_user(Path(folder)):
                manifest = write_backup(source, file)
        finally:
            private.chmod(0o700)
        assert manifest.skipped == ("threads/t1/user-data/workspace/private (Permission denied)",)
        restore_backup(target, file, replace=False)
        restored = target.home / workspace.relative_to(source.home)
        assert names(restored) == sorted({*names(workspace)} - {"private"})


async def test_a_pipe_among_the_services_own_files_is_an_error(tmp_path: Path) -> None:
    config = config_of(tmp_path / "a")
    await fill(config)
    os.mkfifo(config.home / "memory")
    with pytest.raises(CommandFailed, match="cannot be written"):
        await in_thread(lambda: write_backup(config, tmp_path / "backup.tar.gz"))
    assert names(tmp_path) == ["a"]


async def test_a_backup_replaces_no_file_and_needs_data(tmp_path: Path) -> None:
    config = config_of(tmp_path / "a")
    with pytest.raises(CommandFailed, match="nothing to back up"):
        await in_thread(lambda: write_backup(config, tmp_path / "backup.tar.gz"))
    file = await backup_of(config, tmp_path / "backup.tar.gz")
    for to, reason in (
        (file, "exists"),
        (config.home / "x.tar.gz", "outside of the data folder"),
        (tmp_path / "none" / "x.tar.gz", "folder does not exist"),
    ):
        with pytest.raises(CommandFailed, match=reason):
            await in_thread(partial(write_backup, config, to))


async def test_a_full_disk_is_reported_with_its_folder(tmp_path: Path) -> None:
    source, target = config_of(tmp_path / "a"), config_of(tmp_path / "b")
    file = await backup_of(source, tmp_path / "backup.tar.gz")
    with full_disk(20_000), pytest.raises(StoreUnavailable, match=rf"into {tmp_path}\b"):
        await in_thread(lambda: write_backup(source, tmp_path / "another.tar.gz"))
    target.home.mkdir()
    with full_disk(20_000), pytest.raises(CommandFailed, match=rf"into {target.home}\b"):
        await in_thread(lambda: restore_backup(target, file, replace=False))
    assert names(target.home) == ["parley.lock"]
    assert names(tmp_path) == ["a", "b", "backup.tar.gz"]


async def test_existing_data_are_kept_aside_and_only_on_request(tmp_path: Path) -> None:
    source, target = config_of(tmp_path / "a"), config_of(tmp_path / "b")
    file = await backup_of(source, tmp_path / "backup.tar.gz")
    target.home.mkdir()
    (target.home / "USER.md").write_text("mine")
    (target.home / "parley.db-wal").write_text("of another database")
    with pytest.raises(CommandFailed, match="--force"):
        await in_thread(lambda: restore_backup(target, file, replace=False))
    assert (target.home / "USER.md").read_text() == "mine"
    _, aside = await in_thread(lambda: restore_backup(target, file, replace=True))
    assert (aside / "USER.md").read_text() == "mine"
    assert (aside / "parley.db-wal").exists()
    assert not (target.home / "parley.db-wal").exists()
    assert (target.home / "USER.md").read_text() == "# 你好"
    second = tmp_path / "second.tar.gz"
    manifest = await in_thread(lambda: write_backup(target, second))
    assert not any("before-restore" in entry["path"] for entry in manifest.entries)


async def test_a_restore_that_did_not_come_to_its_end_keeps_the_service_from_starting(
    tmp_path: Path,
) -> None:
    """Otherwise, it would start with an empty journal next to restored files, and nobody would notice."""
    source, target = config_of(tmp_path / "a"), config_of(tmp_path / "b")
    await fill(source)
    (source.home / "sub").write_text("a file in the place of the other machine's journal")
    file = tmp_path / "backup.tar.gz"
    await in_thread(lambda: write_backup(source, file))
    elsewhere = replace(target, database=StoreConfig(url="sqlite:///sub/parley.db"))
    with pytest.raises(CommandFailed, match="restore again with --force"):
        await in_thread(lambda: restore_backup(elsewhere, file, replace=False))
    assert (target.home / "USER.md").exists()
    assert not (target.home / "parley.db").exists()
    with pytest.raises(StoreUnavailable, match="a restore was interrupted"):
        async with open_app(target):
            pass
    assert any("a restore was interrupted" in line for line in find_file_problems(target))
    await in_thread(lambda: restore_backup(target, file, replace=True))
    assert list(find_file_problems(target)) == []
    async with open_app(target):
        pass


async def test_a_running_service_is_not_replaced(tmp_path: Path) -> None:
    config = config_of(tmp_path / "a")
    file = await backup_of(config, tmp_path / "backup.tar.gz")
    async with Database.open(config.database, config.home):
        with pytest.raises(StoreLocked):
            await in_thread(lambda: restore_backup(config, file, replace=True))
    assert not list(config.home.glob("before-restore-*"))


# --- archives that were damaged or made by others ----------------------------------------------------------------


def members(file: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(file) as tar:
        files = {info.name: tar.extractfile(info) for info in tar if info.isreg()}
        return [(info, (files.get(info.name) or io.BytesIO()).read()) for info in tar]


def rewrite(file: Path, parts: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    with tarfile.open(file, "w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as tar:
        for info, data in parts:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def with_manifest(
    parts: list[tuple[tarfile.TarInfo, bytes]], change: Callable[[dict[str, Any]], None]
) -> list[tuple[tarfile.TarInfo, bytes]]:
    *rest, (info, data) = parts
    known = json.loads(data)
    change(known)
    return [*rest, (info, json.dumps(known).encode())]


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, target: str = "") -> Any:  # noqa: ANN401
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, data


def declared(name: str, data: bytes) -> dict[str, object]:
    digest = hashlib.sha256(data).hexdigest()
    return {"path": name, "type": "file", "mode": 0o644, "size": len(data), "sha256": digest}


def insert(parts: Any, *added: Any, entries: list[dict[str, object]]) -> Any:  # noqa: ANN401
    """Add members that the manifest knows."""
    *rest, last = parts
    return with_manifest([*rest, *added, last], lambda known: known["entries"].extend(entries))


def damages(outside: Path) -> dict[str, Callable[[Any], Any]]:
    evil = [declared("../evil", b"x")]
    link: dict[str, object] = {"path": "home/link", "type": "link", "target": str(outside)}
    return {
        "no manifest": lambda parts: parts[:-1],
        "a file is missing": lambda parts: parts[1:],
        "a file is added": lambda parts: [member("home/evil"), *parts],
        "after the manifest": lambda parts: [*parts, member("home/evil")],
        "another content": lambda parts: [(parts[0][0], parts[0][1][:-1] + b"!"), *parts[1:]],
        "upwards": lambda parts: insert(parts, member("../evil", b"x"), entries=evil),
        "absolute": lambda parts: insert(
            parts,
            member(f"{outside}/evil", b"x"),
            entries=[declared(f"{outside}/evil", b"x")],
        ),
        "through a link": lambda parts: insert(
            parts,
            member("home/link", kind=tarfile.SYMTYPE, target=str(outside)),
            member("home/link/evil", b"x"),
            entries=[link, declared("home/link/evil", b"x")],
        ),
        "a link behind a link": lambda parts: insert(
            parts,
            member("home/link", kind=tarfile.SYMTYPE, target=str(outside)),
            member("home/link/evil", kind=tarfile.SYMTYPE, target="/"),
            entries=[link, {"path": "home/link/evil", "type": "link", "target": "/"}],
        ),
        "twice": lambda parts: insert(
            parts,
            member("home/USER.md", b"x"),
            entries=[declared("home/USER.md", b"x")],
        ),
        "a device": lambda parts: [member("home/null", kind=tarfile.CHRTYPE), *parts],
        "a hard link": lambda parts: [
            member("home/passwd", kind=tarfile.LNKTYPE, target="/etc/passwd"),
            *parts,
        ],
        "a newer format": lambda parts: with_manifest(parts, lambda known: known.update(format=2)),
        "no number": lambda parts: with_manifest(parts, lambda known: known.update(format="x")),
        "a manifest without files": lambda parts: with_manifest(
            parts, lambda known: known.pop("entries")
        ),
    }


@pytest.mark.parametrize("kind", sorted(damages(Path())))
async def test_a_changed_archive_is_refused_and_nothing_is_written(
    tmp_path: Path, kind: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    source, target = config_of(tmp_path / "a"), config_of(tmp_path / "b")
    file = await backup_of(source, tmp_path / "backup.tar.gz")
    rewrite(file, damages(outside)[kind](members(file)))
    with pytest.raises(CommandFailed) as caught:
        await in_thread(lambda: restore_backup(target, file, replace=False))
    assert "Traceback" not in str(caught.value)
    assert names(target.home) == ["parley.lock"]
    assert list(outside.iterdir()) == []
    assert not (tmp_path / "b" / "evil").exists()


async def test_a_broken_database_in_a_whole_archive_is_refused(tmp_path: Path) -> None:
    source, target = config_of(tmp_path / "a"), config_of(tmp_path / "b")
    file = await backup_of(source, tmp_path / "backup.tar.gz")
    (info, data), *rest = members(file)
    data = data[:4096] + b"\xff" * 4096 + data[8192:]

    def change(known: dict[str, Any]) -> None:
        known["entries"][0] |= declared(info.name, data) | {"mode": info.mode}

    rewrite(file, with_manifest([(info, data), *rest], change))
    with pytest.raises(DatabaseCorrupt, match=r"databases/parley\.db is damaged"):
        await in_thread(lambda: restore_backup(target, file, replace=False))
    assert names(target.home) == ["parley.lock"]


async def test_a_backup_of_a_newer_parley_is_refused(tmp_path: Path) -> None:
    source, target = config_of(tmp_path / "a"), config_of(tmp_path / "b")
    await fill(source)
    with closing(sqlite3.connect(source.home / "parley.db")) as journal, journal:
        journal.execute("INSERT INTO parley_schema VALUES (9000, 0)")
    file = tmp_path / "backup.tar.gz"
    await in_thread(lambda: write_backup(source, file))
    with pytest.raises(SchemaMismatch, match="newer version"):
        await in_thread(lambda: restore_backup(target, file, replace=False))
    code, _, errors = parley(tmp_path / "a", "upgrade-check", str(file))
    assert code == 1
    assert "newer version" in one_line(errors)


@pytest.fixture(scope="module")
def small_archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a complete backup, uncompressed."""
    folder = tmp_path_factory.mktemp("small")
    config = config_of(folder)
    config.home.mkdir()
    with closing(sqlite3.connect(config.home / "parley.db")) as journal:
        journal.execute("PRAGMA user_version = 1")
    (config.home / "USER.md").write_text("x" * 700)
    (config.home / "link").symlink_to("USER.md")
    (config.home / "threads").mkdir()
    write_backup(config, folder / "backup.tar.gz")
    return gzip.decompress((folder / "backup.tar.gz").read_bytes())


EXAMPLES = int(os.environ.get("PARLEY_FUZZ_EXAMPLES", "40"))


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_damaged_bytes_are_refused_in_one_way(
    small_archive: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    damaged = bytearray(small_archive)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(damaged) - 1))
        piece = data.draw(st.binary(min_size=1, max_size=8))
        if data.draw(st.booleans()):
            damaged[start : start + len(piece)] = piece
        else:
            del damaged[start:]
            damaged += piece
    (folder / "x.tar.gz").write_bytes(gzip.compress(bytes(damaged), 1))
    inner = folder / "inner"
    inner.mkdir()
    try:
        extract_archive(folder / "x.tar.gz", inner, wanted=lambda _: True)
    except CommandFailed:
        pass
    else:  # the changed bytes are not file contents: padding, times, owners
        assert (inner / "home" / "USER.md").read_text() == "x" * 700
        assert (inner / "home" / "link").readlink() == Path("USER.md")
    assert sorted(path.name for path in folder.iterdir()) == ["inner", "x.tar.gz"]


# --- the commands ------------------------------------------------------------------------------------------------


async def test_a_backup_names_the_folder_of_shared_files(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    await fill(config_of(tmp_path, f"storage: {{url: {shared.as_uri()}}}"))
    code, out, errors = await in_thread(lambda: parley(tmp_path, "backup", "b.tar.gz"))
    assert (code, errors) == (0, "")
    assert f"Not included: {shared}\n" in out


async def test_a_backup_leaves_copies_of_a_bucket_out_and_names_the_bucket(tmp_path: Path) -> None:
    config = config_of(tmp_path, "storage: {url: 's3://bucket/parley'}")
    await fill(config)
    copies = config.files / "threads" / "t1" / "user-data" / "outputs"
    copies.mkdir(parents=True)
    (copies / "a.txt").write_text("in the bucket")
    code, out, errors = await in_thread(lambda: parley(tmp_path, "backup", "b.tar.gz"))
    assert (code, errors) == (0, "")
    assert "Not included: the files and keys in s3://bucket/parley." in out
    assert not [info.name for info, _ in members(tmp_path / "b.tar.gz") if "files" in info.name]


async def test_the_commands_say_what_they_did_and_what_is_not_included(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    (tmp_path / ".env").write_text(f"OPENAI_API_KEY={SECRET_OUTSIDE}\n")
    await fill(config)
    code, out, errors = await in_thread(lambda: parley(tmp_path, "backup", "b.tar.gz"))
    assert (code, errors) == (0, "")
    assert f"schema {len(steps('sqlite'))}." in out
    assert "protect it" in out
    assert f"Not included: {tmp_path}/config.yaml\nNot included: {tmp_path}/.env\n" in out
    for info, data in members(tmp_path / "b.tar.gz"):
        assert SECRET_OUTSIDE.encode() not in data, info.name
    code, _, errors = await in_thread(lambda: parley(tmp_path, "backup", "b.tar.gz"))
    assert code == 1
    assert "exists" in one_line(errors)
    code, _, errors = await in_thread(lambda: parley(tmp_path, "restore", "b.tar.gz"))
    assert code == 1
    assert "--force" in one_line(errors)
    code, out, errors = await in_thread(lambda: parley(tmp_path, "restore", "b.tar.gz", "--force"))
    assert (code, errors) == (0, "")
    assert "The previous data are in" in out
    code, out, errors = await in_thread(lambda: parley(tmp_path, "upgrade-check", "b.tar.gz"))
    assert (code, errors) == (0, "")
    assert "The first start changes nothing." in out


@pytest.fixture
def add_step(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], object]:
    """Return a function that adds a step 2 to the SQLite schema."""
    folder = tmp_path_factory.mktemp("steps")
    (folder / "0001_sqlite.sql").write_text(steps("sqlite")[0])
    monkeypatch.setattr(migrations, "FOLDER", folder)
    return (folder / "0002_sqlite.sql").write_text


async def test_an_upgrade_is_tried_on_a_copy(
    tmp_path: Path, add_step: Callable[[str], object]
) -> None:
    home = place_database(tmp_path / "home")
    add_step("ALTER TABLE item ADD COLUMN color TEXT;")
    before = (home / "parley.db").read_bytes()
    copy = tmp_path / "copy"
    copy.mkdir()
    copy_for_trial(home, home / "parley.db", copy)
    trial = await in_thread(lambda: try_upgrade(copy))
    assert (trial.before, trial.after, trial.migrations) == (1, 2, (2,))
    assert (home / "parley.db").read_bytes() == before
    code, out, errors = await in_thread(lambda: parley(tmp_path, "upgrade-check"))
    assert (code, errors) == (0, "")
    assert f"schema 1; Parley {get_version()} uses schema 1.\nThe first start changes" in out


async def test_data_that_cannot_be_upgraded_fail_the_check(
    tmp_path: Path, add_step: Callable[[str], object]
) -> None:
    code, _, errors = await in_thread(lambda: parley(tmp_path, "upgrade-check"))
    assert code == 1
    assert "does not exist" in one_line(errors)
    home = place_database(tmp_path / "home")
    add_step("CREATE TABLE item (n INTEGER);")
    copy = tmp_path / "copy"
    copy.mkdir()
    copy_for_trial(home, home / "parley.db", copy)
    with pytest.raises(StoreUnavailable, match="item already exists"):
        await in_thread(lambda: try_upgrade(copy))


def write_earlier_database(file: Path) -> None:
    """Write a journal with an earlier schema."""
    with closing(sqlite3.connect(file)) as journal, journal:
        journal.execute("CREATE TABLE schema_version (version INTEGER, applied_at INTEGER)")
        journal.execute("INSERT INTO schema_version VALUES (25, 0)")


async def test_data_of_an_earlier_version_are_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    write_earlier_database(home / "parley.db")
    serve = ["serve", "--port", str(free_port())]
    for arguments in (["upgrade-check"], ["backup", "b.tar.gz"], ["doctor"], ["check"], serve):
        code, out, errors = await in_thread(partial(parley, tmp_path, *arguments))
        assert code == 1, arguments
        assert "parley.db was written by an earlier version of Parley" in out + errors, arguments
    assert names(tmp_path) == ["home"]


async def test_a_backup_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    source, target = config_of(tmp_path / "a"), config_of(tmp_path / "b")
    await fill(source)
    file = tmp_path / "backup.tar.gz"
    await in_thread(lambda: write_backup(source, file))
    earlier = tmp_path / "earlier.db"
    write_earlier_database(earlier)
    data = earlier.read_bytes()
    (info, _), *rest = members(file)
    info.size = len(data)

    def change(known: dict[str, Any]) -> None:
        known["entries"][0] |= declared(info.name, data) | {"mode": info.mode}

    rewrite(file, with_manifest([(info, data), *rest], change))
    with pytest.raises(SchemaMismatch, match=r"databases/parley\.db was written by an earlier"):
        await in_thread(lambda: restore_backup(target, file, replace=False))
    assert names(target.home) == ["parley.lock"]


def test_the_manifest_is_the_last_member(tmp_path: Path, small_archive: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(small_archive)) as tar:
        assert tar.getnames()[-1] == MANIFEST
