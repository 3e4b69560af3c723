"""What a backup leaves out of the data folder. Pure."""

from store import checkpoints
from store.data_folder import LOCK_FILE, RESTORE_MARK, STAGING

BEFORE_RESTORE = "before-restore-"
"""Folders into which a restore moves what it replaces."""

LOG = "parley.log"
_COMPANIONS = ("", "-wal", "-shm", "-journal")


def is_left_out(path: str, journal: str, copies: str = "") -> bool:
    """Return whether something in the data folder is no part of the data, or saved in another way.

    Args:
        path: Relative to the data folder.
        journal: The journal's path, likewise: databases are copied by SQLite.
        copies: Path of the copies of files that are in a bucket; "" for none.

    >>> [path for path in ("USER.md", "parley.db-wal", "parley.log.1") if not is_left_out(path, "parley.db")]
    ['USER.md']
    """
    if path in (LOCK_FILE, RESTORE_MARK, copies) or path.startswith((LOG, BEFORE_RESTORE, STAGING)):
        return True
    for database in (journal, checkpoints.FILE):
        if path.startswith(f"{database}.corrupt-") or path in {
            f"{database}{end}" for end in _COMPANIONS
        }:
            return True
    return False
