"""Restores a data folder from a backup. Blocking."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.backup.archive import CHECKPOINTS, HOME, JOURNAL, Manifest, extract_archive
from gateway.backup.layout import BEFORE_RESTORE
from gateway.command_errors import CommandFailed
from gateway.config import Config
from store import checkpoints
from store.data_folder import LOCK_FILE, RESTORE_MARK, STAGING, lock_folder, remove_unpacked
from store.migrations import SchemaName, missing_steps
from store.snapshot import check_database, schema_of

_DATABASES: Mapping[str, SchemaName] = {JOURNAL: "sqlite", CHECKPOINTS: "checkpoints"}


def restore_backup(config: Config, file: Path, *, replace: bool) -> tuple[Manifest, Path | None]:
    """Unpack and check a backup, then replace the data folder with it.

    Args:
        config: Names the data folder and the journal's file.
        file: An archive that `write_backup` wrote.
        replace: Whether existing data may be moved aside.

    Returns:
        The archive's manifest, and the folder with the previous data, if there were any.

    Raises:
        CommandFailed: The archive cannot be used, or data exist and `replace` is false. Nothing was changed.
        StoreError: A service is running, or the databases in the archive are damaged or too new. Nothing was changed.
    """
    home = config.home
    with lock_folder(home):
        remove_unpacked(home)
        existing = list(_existing_data(config))
        if existing and not replace:
            raise CommandFailed(
                f"{existing[0]} exists: --force moves the data that are there to a folder"
                f" {home}/{BEFORE_RESTORE}..."
            )
        with tempfile.TemporaryDirectory(prefix=STAGING, dir=home) as name:
            staging = Path(name)
            manifest = extract_archive(file, staging, wanted=lambda _: True)
            check_databases(staging)
            # While this mark exists, no service starts. It would create an empty journal next to the restored files.
            (home / RESTORE_MARK).touch(mode=0o600)
            os.sync()
            try:
                aside = _move_aside(config, existing) if existing else None
                _move_in(config, staging)
            except OSError as error:
                raise CommandFailed(
                    f"{error.filename or home}: cannot be replaced ({error.strerror}); restore again with --force"
                ) from error
        os.sync()
        (home / RESTORE_MARK).unlink()
    return manifest, aside


def check_databases(staging: Path) -> None:
    """Check the databases of an unpacked backup.

    Raises:
        CommandFailed: There is no journal.
        DatabaseCorrupt: One of them is damaged.
        SchemaMismatch: Another version of Parley wrote them.
    """
    if not (staging / JOURNAL).is_file():
        raise CommandFailed("the backup contains no journal")
    for name, schema in _DATABASES.items():
        database = staging / name
        if database.is_file():
            check_database(database, name=Path(name))
            missing_steps(schema, schema_of(database, name=Path(name)))


def _existing_data(config: Config) -> Iterator[Path]:
    for path in sorted(config.home.iterdir()):
        if path.name not in (LOCK_FILE, RESTORE_MARK) and not path.name.startswith(BEFORE_RESTORE):
            yield path
    journal = config.database.file(config.home)
    if not journal.is_relative_to(config.home):
        yield from sorted(journal.parent.glob(f"{journal.name}*"))


def _move_aside(config: Config, existing: list[Path]) -> Path:
    """Move data into a new subfolder of the data folder and return its path. Earlier ones are kept. Raises OSError."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = Path(tempfile.mkdtemp(prefix=f"{BEFORE_RESTORE}{stamp}-", dir=config.home))
    for path in existing:
        shutil.move(path, aside / path.name)
    return aside


def _move_in(config: Config, staging: Path) -> None:
    """Move an unpacked backup into place: files, then checkpoints, the journal last. Raises OSError."""
    files = staging / HOME
    for path in sorted(files.iterdir()) if files.is_dir() else ():
        path.rename(config.home / path.name)
    if (saved := staging / CHECKPOINTS).is_file():
        saved.rename(config.home / checkpoints.FILE)
    journal = config.database.file(config.home)
    journal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.move(staging / JOURNAL, journal)
