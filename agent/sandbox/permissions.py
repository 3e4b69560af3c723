"""Makes a thread's files accessible to the unknown user inside a container. Blocking."""

import contextlib
import os
import stat

from agent.thread_storage import ThreadFolders

_ALL = 0o777
MAX_ENTRIES = 200_000
"""Maximum number of a thread's files and folders to change per call."""


def open_permissions(folders: ThreadFolders) -> None:
    """Give every user write access to the thread's files. On this machine, only the service can reach their folder.

    The container's user has a different id. Its umask makes the files it creates accessible to the service. Files with
    several hard links stay unchanged, because they may also have a name outside the folder.
    """
    folders.root.chmod(0o700)
    folders.user_data.chmod(0o711)
    folders.acp_workspace.chmod(0o755)  # read only
    left = MAX_ENTRIES
    for folder in (folders.workspace, folders.uploads, folders.outputs):
        if stat.S_IMODE(folder.stat().st_mode) & _ALL != _ALL:
            folder.chmod(_ALL)  # only the service can enter its parent
        for _, names, others, descriptor in os.fwalk(folder, follow_symlinks=False):
            for name in (*names, *others):
                left -= 1
                if left < 0:
                    return
                _open_entry(name, descriptor)


def _open_entry(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):  # removed in the meantime, or owned by another user
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        is_file = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if not is_file and not stat.S_ISDIR(status.st_mode):
            return
        wanted = 0o777 if stat.S_ISDIR(status.st_mode) else 0o666
        if stat.S_IMODE(status.st_mode) & wanted == wanted:
            return
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
        try:
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode) | wanted)
        finally:
            os.close(descriptor)
