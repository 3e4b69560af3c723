"""`parley migrate`: moves a stopped installation from SQLite to PostgreSQL, or creates PostgreSQL's tables."""

import argparse
import json
import sys
import time
from pathlib import Path

import anyio

from gateway.command_errors import CommandFailed
from gateway.config import Config, load_config
from store.config import StoreConfig
from store.database import Database, migrate_schema
from store.errors import FilesUnavailable
from store.files.importing import MEMORY, import_files
from store.postgres.transfer import TableChecksum, TransferProgress, transfer


def run(arguments: argparse.Namespace) -> int:
    """Copy all rows and compare both sides. Continues an interrupted copy."""
    config = load_config(arguments.config)
    if arguments.files:
        return _import_files(config, Path(arguments.files))
    databases = [_database(text, config) for text in arguments.databases]
    if arguments.schema:
        return _migrate_schema(databases)
    if [one.is_sqlite for one in databases] != [True, False]:
        raise CommandFailed(
            "name a SQLite source and a PostgreSQL target:"
            " `parley migrate sqlite postgresql://USER:PASSWORD@HOST/DATABASE`"
        )
    source, target = databases
    started_at = time.monotonic()
    checksums = transfer(source, target, config.home, _ProgressDisplay(), restart=arguments.force)
    seconds = time.monotonic() - started_at
    if arguments.json:
        _write_json(checksums, seconds)
    else:
        _write_report(checksums, seconds)
    return 0


def _import_files(config: Config, source: Path) -> int:
    if not config.storage.is_bucket:
        raise CommandFailed(
            "--files stores files in a bucket: set storage.url to s3://BUCKET/PREFIX"
        )
    if not source.is_dir():
        raise CommandFailed(f"{source} is not a folder")
    memory = config.agent.memory.storage_path or MEMORY

    async def work() -> int:
        async with Database.open(config.database, config.home) as database:
            return await import_files(config.storage, config.home, database, source, memory)

    try:
        threads = anyio.run(work)
    except FilesUnavailable as error:
        raise CommandFailed(f"storage.url: {error}") from None
    except OSError as error:
        raise CommandFailed(f"{error.filename or source}: {error.strerror}") from None
    sys.stdout.write(
        f"Stored the files of {threads} threads, memory, skills, agents and keys in the bucket.\n"
    )
    return 0


def _migrate_schema(databases: list[StoreConfig]) -> int:
    if len(databases) != 1 or not databases[0].is_postgres:
        raise CommandFailed(
            "--schema takes one database: postgresql://OWNER:PASSWORD@HOST/DATABASE"
        )
    version = migrate_schema(databases[0])
    sys.stdout.write(f"The tables now have schema {version}.\n")
    return 0


def _database(text: str, config: Config) -> StoreConfig:
    """Return the database of an argument: `sqlite`, `postgresql`, a URL, or `$NAME` of a variable that contains one."""
    if text.startswith("$"):
        value = config.environment.get(text[1:])
        if not value:
            raise CommandFailed(f"the environment variable {text[1:]} is not set")
        text = value
    if text == "sqlite":
        return config.database if config.database.is_sqlite else StoreConfig()
    if text == "postgresql":
        text = config.database.url
    database = StoreConfig(url=text)
    if not database.is_sqlite and not database.is_postgres:
        raise CommandFailed(
            "a database is sqlite, sqlite:///FILE, postgresql://USER:PASSWORD@HOST/DATABASE, or $NAME of a variable"
        )
    return database


class _ProgressDisplay:
    """Shows progress on standard error: in a terminal one line that is overwritten, otherwise one line per table."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()

    def __call__(self, progress: TransferProgress) -> None:
        verb = "Copied" if progress.step == "copy" else "Verified"
        line = f"{verb} {progress.rows} of {progress.total} rows of {progress.table}"
        is_last = progress.rows >= progress.total
        if self._is_terminal:
            end = "\n" if is_last else ""
            sys.stderr.write(f"\r\x1b[K{line}{end}")
        elif is_last:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _write_json(checksums: dict[str, TableChecksum], seconds: float) -> None:
    tables = {
        table: {"rows": checksum.rows, "checksum": str(checksum)}
        for table, checksum in checksums.items()
    }
    result = {"tables": tables, "seconds": round(seconds, 3)}
    sys.stdout.write(f"{json.dumps(result, indent=2)}\n")


def _write_report(checksums: dict[str, TableChecksum], seconds: float) -> None:
    rows = sum(checksum.rows for checksum in checksums.values())
    sys.stdout.write(
        f"Moved {rows} rows of {len(checksums)} tables in {seconds:.1f} s; both sides have the same checksums.\n"
        "Set `database.url` in the configuration to the PostgreSQL URL, then start Parley."
        " The SQLite files were not changed: delete them when you no longer need them.\n"
    )
