"""Decides which parts of the data folder a backup omits. Pure."""

from store import checkpoints
from store.data_folder import LOCK_FILE, RESTORE_MARK, STAGING

BEFORE_RESTORE = "before-restore-"
"""Prefix of folders into which a restore moves the replaced data."""

LOG = "parley.log"
_COMPANIONS = ("", "-wal", "-shm", "-journal")


def is_left_out(path: str, journal: str, copies: str = "") -> bool:
    """Return whether to leave out a path of the data folder, because it is not data or is saved in another way.

    Args:
        path: Relative to the data folder.
        journal: The journal's path, also relative. SQLite itself copies databases.
        copies: Path of the local copies of files in a bucket; "" = none.

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
