"""Measures the memory, sockets and deleted files that a command's processes hold. Reads /proc; blocking."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MIB = 2**20
_KIB = 1024
_SOCKET_BYTES_FILES = ("/proc/sys/net/core/wmem_default", "/proc/sys/net/core/rmem_default")
_SOCKET_BYTES = 212_992  # Linux's default


def process_tree(pid: int) -> Iterable[int]:
    """Yield a process and its descendants."""
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        yield one
        for task in _names(Path(f"/proc/{one}/task")):
            children = _text(Path(f"/proc/{one}/task/{task}/children"))
            waiting.extend(int(child) for child in children.split())


def process_tree_memory(pid: int) -> int:
    """Return the memory of a process and its descendants, bytes. Includes page tables, and counts shared pages once."""
    pids = list(process_tree(pid))
    # The quick figure counts shared pages several times. It is never too small, so it usually suffices.
    rough = sum(_fields(Path(f"/proc/{one}/status"), "VmRSS:", "VmPTE:") for one in pids)
    if len(pids) == 1 or rough < 64 * _MIB:
        return rough
    return sum(
        _fields(Path(f"/proc/{one}/smaps_rollup"), "Pss:")
        + _fields(Path(f"/proc/{one}/status"), "VmPTE:")
        for one in pids
    )


def socket_memory(pid: int) -> int:
    """Return the maximum kernel memory in the sockets of a process and its descendants, bytes.

    Commands cannot enlarge the buffers (`agent/sandbox/seccomp.py`). Only TCP buffers grow, and the kernel reports
    their content.
    """
    each = max(
        (int(text) for name in _SOCKET_BYTES_FILES if (text := _text(Path(name)))),
        default=_SOCKET_BYTES,
    )
    sockets: set[str] = set()
    networks: dict[str, int] = {}
    for one in process_tree(pid):
        with suppress(OSError):  # it has ended
            networks[str(Path(f"/proc/{one}/ns/net").readlink())] = one
        for folder in _descriptor_folders(one):
            for name in _names(folder):
                with suppress(OSError):  # closed
                    target = str((folder / name).readlink())
                    if target.startswith("socket:"):
                        sockets.add(target)
    with suppress(OSError):
        networks.pop(str(Path("/proc/self/ns/net").readlink()), None)
    return len(sockets) * each + sum(map(_tcp_bytes, networks.values()))


def _tcp_bytes(pid: int) -> int:
    """Return the bytes in the TCP queues of a process's network namespace."""
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in _text(Path(f"/proc/{pid}/net/{name}")).splitlines()[1:]
    ]
    return sum(int(queue, 16) for fields in lines for queue in fields[4].split(":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedFiles:
    """Deleted files that processes still hold.

    Attributes:
        size: Total bytes of the files with a known size.
        unmeasured: Maximum number of other such files.
    """

    size: int
    unmeasured: int


def deleted_files(pid: int, folder: Path) -> DeletedFiles:
    """Return the deleted files on a folder's disk that processes hold: open, mapped, or in transit through a socket."""
    disk = folder.stat().st_dev
    sizes: dict[int, int] = {}
    mapped: set[int] = set()
    passed = 0
    for one in process_tree(pid):
        maps = _deleted_maps(one)
        for path in _held_files(one, maps):
            with suppress(OSError):  # closed, or the process has ended
                status = path.stat()
                if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == disk:
                    sizes[status.st_ino] = status.st_blocks * 512
        mapped |= _inodes_on(disk, maps)
        passed += _passed_descriptors(one)
    return DeletedFiles(size=sum(sizes.values()), unmeasured=len(mapped - sizes.keys()) + passed)


def _deleted_maps(pid: int) -> list[list[str]]:
    """Return the fields of the lines in /proc/PID/maps that name deleted files."""
    lines = _text(Path(f"/proc/{pid}/maps")).splitlines()
    return [line.split(maxsplit=5) for line in lines if line.endswith("(deleted)")]


def _held_files(pid: int, maps: Iterable[list[str]]) -> Iterator[Path]:
    yield Path(f"/proc/{pid}/exe")
    for folder in _descriptor_folders(pid):
        for name in _names(folder):
            yield folder / name
    folder = Path(f"/proc/{pid}/map_files")  # only root may follow these links
    for fields in maps:
        first, _, last = fields[0].partition("-")
        yield folder / f"{int(first, 16):x}-{int(last, 16):x}"


def _inodes_on(disk: int, maps: Iterable[list[str]]) -> set[int]:
    """Return the inodes of a disk's mapped files."""
    wanted = f"{os.major(disk):02x}:{os.minor(disk):02x}"
    return {int(fields[4]) for fields in maps if fields[3] == wanted}


def _passed_descriptors(pid: int) -> int:
    """Return how many descriptors are in transit in a process's sockets. They are not listed anywhere else."""
    return sum(
        int(line.split()[1])
        for folder in _descriptor_folders(pid, "fdinfo")
        for name in _names(folder)
        for line in _text(folder / name).splitlines()
        if line.startswith("scm_fds:")
    )


def _descriptor_folders(pid: int, kind: str = "fd") -> list[Path]:
    """Return the descriptor folders of a process. Each thread may have its own descriptor table."""
    tasks = Path(f"/proc/{pid}/task")
    return [tasks / task / kind for task in _names(tasks)]


def _fields(file: Path, *names: str) -> int:
    """Return the sum of fields given in kB as bytes; 0 if the process is gone."""
    return sum(
        int(line.split()[1]) * _KIB for line in _text(file).splitlines() if line.startswith(names)
    )


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except OSError:
        return []
