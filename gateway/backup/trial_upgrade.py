"""Tries an upgrade on copies of the databases. Blocking."""

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from gateway.backup.archive import CHECKPOINTS, JOURNAL, extract_archive
from gateway.backup.restore import check_databases
from gateway.command_errors import CommandFailed
from store import checkpoints
from store.migrations import missing_steps
from store.snapshot import check_database, copy_database, schema_of
from store.sqlite_file import connect


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeTrial:
    """The result of trying an upgrade.

    Attributes:
        before: Version of the journal's schema before the upgrade.
        after: Version of the journal's schema after the upgrade.
        migrations: Numbers of the migrations.
        duration_s: How long the migrations took on the copy, seconds.
        journal_bytes: Size of the journal. The migrations may need as much free space.
    """

    before: int
    after: int
    migrations: tuple[int, ...]
    duration_s: float
    journal_bytes: int


def copy_for_trial(home: Path, journal: Path, scratch: Path) -> None:
    """Copy the databases of a data folder, laid out as in an unpacked backup. The folder may be in use.

    Raises:
        CommandFailed: There is no journal.
        StoreError: A database is damaged or cannot be read.
    """
    if not journal.is_file():
        raise CommandFailed(f"{journal} does not exist: there is nothing to upgrade")
    (scratch / JOURNAL).parent.mkdir()
    copy_database(journal, scratch / JOURNAL)
    if (saved := home / checkpoints.FILE).is_file():
        copy_database(saved, scratch / CHECKPOINTS)


def extract_for_trial(archive: Path, scratch: Path) -> None:
    """Unpack the databases of a backup. Check the whole archive. Raises CommandFailed."""
    extract_archive(archive, scratch, wanted=lambda name: name in (JOURNAL, CHECKPOINTS))


def try_upgrade(scratch: Path) -> UpgradeTrial:
    """Migrate copied databases and check the result.

    Raises:
        CommandFailed: There is no journal.
        StoreError: It is damaged, or of a newer Parley, or a migration fails.
    """
    check_databases(scratch)
    journal = scratch / JOURNAL
    before, size = schema_of(journal), journal.stat().st_size
    missing = tuple(missing_steps("sqlite", before))
    started = time.monotonic()
    with closing(connect(journal, busy_timeout_ms=0)):
        pass
    duration = time.monotonic() - started
    check_database(journal)
    after = schema_of(journal)
    return UpgradeTrial(
        before=before,
        after=after,
        migrations=missing,
        duration_s=duration,
        journal_bytes=size,
    )
