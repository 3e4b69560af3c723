"""Opens a thread's files to whatever user works on them inside a container. Blocking."""

import contextlib
import os
import stat

from agent.thread_storage import ThreadFolders

_ALL = 0o777
MAX_ENTRIES = 200_000
"""Most files and folders of one thread that are opened at a time."""


def open_permissions(folders: ThreadFolders) -> None:
    """Let every user change what is in the thread's folders, and nobody but us come to them on this machine.

    A container's user has a number of its own. What it makes is open to us in the same way, by its umask. A
    file with several names is left as it is: it may have a name elsewhere.
    """
    folders.root.chmod(0o700)
    folders.user_data.chmod(0o711)
    folders.acp_workspace.chmod(0o755)  # is only read there
    left = MAX_ENTRIES
    for folder in (folders.workspace, folders.uploads, folders.outputs):
        _open(folder.stat().st_mode, str(folder))
        for _, names, others, here in os.fwalk(folder, follow_symlinks=False):
            for name in (*names, *others):
                left -= 1
                if left < 0:
                    return
                _open_entry(name, here)


def _open_entry(name: str, here: int) -> None:
    with contextlib.suppress(OSError):  # gone meanwhile, or another's
        status = os.stat(name, dir_fd=here, follow_symlinks=False)
        is_file = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if not is_file and not stat.S_ISDIR(status.st_mode):
            return
        wanted = 0o777 if stat.S_ISDIR(status.st_mode) else 0o666
        if stat.S_IMODE(status.st_mode) & wanted == wanted:
            return
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=here)
        try:
            os.fchmod(fd, stat.S_IMODE(status.st_mode) | wanted)
        finally:
            os.close(fd)


def _open(mode: int, folder: str) -> None:
    if stat.S_IMODE(mode) & _ALL != _ALL:
        os.chmod(folder, _ALL)  # noqa: PTH101 - its parent is closed to everybody else
