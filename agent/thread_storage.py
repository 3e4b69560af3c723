"""Every thread's folders on disk, below `{home}/threads/{thread_id}`: `user-data`, and `acp-workspace`."""

import errno
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from agent.errors import ThreadIdInvalid
from agent.paths import ACP_WORKSPACE, OUTPUTS, UPLOADS, WORKSPACE, Mount

_THREAD_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFolders:
    """Where one thread's files are. Nothing here exists until `create` is called."""

    root: Path

    @property
    def user_data(self) -> Path:
        """Return the folder that holds the three below."""
        return self.root / "user-data"

    @property
    def workspace(self) -> Path:
        """Return where the agent works."""
        return self.user_data / "workspace"

    @property
    def uploads(self) -> Path:
        """Return where users' files arrive."""
        return self.user_data / "uploads"

    @property
    def outputs(self) -> Path:
        """Return where files for users are put."""
        return self.user_data / "outputs"

    @property
    def acp_workspace(self) -> Path:
        """Return where agents of other makers work; ours only reads there."""
        return self.root / "acp-workspace"

    def create(self) -> None:
        """Create the folders, for this user alone. Blocking: call it in a worker thread."""
        for folder in (self.workspace, self.uploads, self.outputs, self.acp_workspace):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def mounts(self) -> tuple[Mount, ...]:
        """Return the folders as the agent sees them."""
        return (
            Mount(virtual=WORKSPACE, host=self.workspace),
            Mount(virtual=UPLOADS, host=self.uploads),
            Mount(virtual=OUTPUTS, host=self.outputs),
            Mount(virtual=ACP_WORKSPACE, host=self.acp_workspace, read_only=True),
        )


class ThreadStorage:
    """The folders of all threads below one data folder."""

    def __init__(self, home: Path) -> None:
        # realpath touches the disk once, here, so that later comparisons with resolved paths hold.
        self._threads = home.resolve() / "threads"

    def folders(self, thread_id: str) -> ThreadFolders:
        """Return a thread's folders without creating them.

        Raises:
            ThreadIdInvalid: The id must not become a folder's name.
        """
        if _THREAD_ID.fullmatch(thread_id) is None:
            raise ThreadIdInvalid
        return ThreadFolders(root=self._threads / thread_id)

    def delete(self, thread_id: str) -> bool:
        """Remove a thread's folders with all that is in them; return whether there were any. Blocking.

        Raises:
            ThreadIdInvalid: As `of`.
            OSError: Something could not be removed.
        """
        root = self.folders(thread_id).root
        if not root.is_dir() or root.is_symlink():
            return False
        try:
            shutil.rmtree(root)
        except (OSError, RecursionError):
            _remove_hard(root)
        return True


def _remove_hard(folder: Path) -> None:
    """Remove what a command made hard to remove: folders closed to their owner, or nested without end.

    Raises:
        OSError: Something could not be removed.
    """
    for program in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):  # neither follows a link below
        subprocess.run([*program, "--", str(folder)], capture_output=True, check=False)  # noqa: S603 - no shell
    if folder.exists():
        raise OSError(errno.ENOTEMPTY, "a thread's folder could not be removed")
