"""Builds the bubblewrap command line for a confined command. Starts nothing.

The command line depends on the user that runs the service:

- An ordinary user: bubblewrap creates a user namespace in which the command has no privileges and cannot create
  another namespace.
- root: no user namespace, because the kernel would still treat the command as root and not limit its number of
  processes. Instead, the command runs as a separate user per thread, which owns the thread's folders.
"""

import hashlib
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agent.paths import WORKSPACE, Mount, MountTable
from agent.sandbox.disk import DiskLimits
from agent.sandbox.process import ProcessSpec
from agent.sandbox.seccomp import seccomp_filter

BWRAP, SETPRIV, NICE = "/usr/bin/bwrap", "/usr/bin/setpriv", "/usr/bin/nice"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
INNER_ID = 1000
"""User id of commands in a user namespace."""

OPEN_FILES = 256
TEMPORARY_MB = 64  # size of /tmp and of /dev/shm
NICENESS = "10"  # commands get less CPU time than the service

_FIRST_UID, _UIDS = 1_879_048_192, 2**28 - 2  # an unused range, see systemd's UIDS-GIDS.md
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FILTER = "seccomp filter"
_ETC = (  # no secrets: certificates, but no keys
    *("alternatives", "ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/ca-trust"),
    *("pki/tls/certs", "crypto-policies", "fonts", "localtime", "mime.types", "magic"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "protocols", "services", "terminfo"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """Resource limits of one command.

    Attributes:
        memory_mb: Memory of all its processes together, and of each, MiB.
        cpu_s: CPU time of each process, seconds.
        processes: Concurrent processes and threads.
        file_mb: Size of a file that it writes, MiB.
    """

    memory_mb: int = 1024
    cpu_s: int = 300
    processes: int = 128
    file_mb: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class BubblewrapOptions:
    """Limits and environment of commands, and the path of bubblewrap."""

    limits: ProcessLimits = field(default_factory=ProcessLimits)
    disk: DiskLimits = field(default_factory=DiskLimits)
    environment: Mapping[str, str] = field(default_factory=dict)
    program: str = BWRAP


def sandbox_uid(thread_id: str) -> int | None:
    """Return the user and group id of a thread's commands; None = a user namespace is used.

    Only root can give folders to other users.
    """
    if os.geteuid() != 0:
        return None
    digest = hashlib.sha256(thread_id.encode()).digest()
    return _FIRST_UID + int.from_bytes(digest[:8], "big") % _UIDS


@contextmanager
def bubblewrap_process(
    command: str, table: MountTable, *, uid: int | None, options: BubblewrapOptions
) -> Iterator[ProcessSpec]:
    """Prepare a confined process. Leaving the block closes its descriptors. Blocking.

    Args:
        command: Shell text.
        table: The mounts that the command sees, besides system folders.
        uid: See `sandbox_uid`.
        options: Limits and environment.
    """
    with _opened(_own_files(uid)) as files:
        arguments = [
            *_namespaces(uid),
            *_system(),
            *_bind_mounts(table.mounts),
            *_placed(files),
            *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"),
        ]
        # Pass the contents by descriptor, because everyone on the machine and in the sandbox can read arguments.
        with _opened({"options": b"".join(os.fsencode(one) + b"\0" for one in arguments)}) as more:
            yield ProcessSpec(
                argv=[
                    *(NICE, "-n", NICENESS, options.program),
                    *("--args", str(more["options"]), "--"),
                    *_as_user(uid),
                    *("/bin/bash", "--norc", "--noprofile", "-c", _preamble(options.limits)),
                    *("sandbox", command),
                ],
                environment=_environment(options.environment),
                descriptors=(*files.values(), *more.values()),
            )


def _own_files(uid: int | None) -> dict[str, bytes]:
    """Return the generated files of /etc, and the system call filter."""
    number = INNER_ID if uid is None else uid
    contents = {
        "/etc/passwd": f"agent:x:{number}:{number}::{WORKSPACE}:/bin/bash\n".encode(),
        "/etc/group": f"agent:x:{number}:\n".encode(),
        "/etc/hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
    }
    filtered = seccomp_filter(platform.machine())
    return contents if filtered is None else {**contents, _FILTER: filtered}


def _placed(files: Mapping[str, int]) -> Iterable[str]:
    for path, descriptor in files.items():
        if path == _FILTER:
            yield from ("--seccomp", str(descriptor))
        else:
            yield from ("--perms", "0444", "--file", str(descriptor), path)


@contextmanager
def _opened(contents: Mapping[str, bytes]) -> Iterator[dict[str, int]]:
    """Store contents in memory files. Each can be read once from its descriptor."""
    files: dict[str, int] = {}
    try:
        for name, content in contents.items():
            files[name] = os.memfd_create("parley")
            os.write(files[name], content)
            os.lseek(files[name], 0, os.SEEK_SET)
        yield files
    finally:
        for descriptor in files.values():
            os.close(descriptor)


def _environment(configured: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a command: fixed and configured ones, but none of the service's."""
    fixed = {"PATH": PATH, "HOME": WORKSPACE, "LANG": "C.UTF-8", "TERM": "dumb", "TMPDIR": "/tmp"}  # noqa: S108 - the sandbox's own
    return {**fixed, "USER": "agent", **configured}


def _namespaces(uid: int | None) -> Iterable[str]:
    # Pass variables in the process environment, because everyone on the machine can read arguments.
    yield from ("--die-with-parent", "--new-session", "--hostname", "sandbox", "--cap-drop", "ALL")
    yield from ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts")
    yield "--unshare-cgroup-try"
    if uid is None:
        yield from ("--unshare-user", "--disable-userns")
        yield from ("--uid", str(INNER_ID), "--gid", str(INNER_ID))
    else:
        yield from ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")  # for setpriv, below


def _as_user(uid: int | None) -> Sequence[str]:
    """Switch to the user, which permanently drops the last capabilities."""
    if uid is None:
        return ()
    return (SETPRIV, "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--")


def _system() -> Iterable[str]:
    size = str(TEMPORARY_MB * 2**20)
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _SYSTEM:
        yield from _system_folder(Path("/", name))
    yield from ("--proc", "/proc", "--dev", "/dev")
    for path in ("/dev/shm", "/tmp"):  # noqa: S108 - the sandbox's own
        yield from ("--perms", "1777", "--size", size, "--tmpfs", path)


def _system_folder(path: Path) -> Sequence[str]:
    if path.is_symlink():
        return ("--symlink", str(path.readlink()), str(path))
    return ("--ro-bind", str(path), str(path)) if path.is_dir() else ()


def _bind_mounts(mounts: Iterable[Mount]) -> Iterable[str]:
    """Bind the mounts, outer ones first."""
    etc = [Mount(virtual=f"/etc/{name}", host=Path("/etc", name), read_only=True) for name in _ETC]
    made = {"/"}
    for folder in sorted((*etc, *mounts), key=lambda one: len(one.virtual)):
        yield from _parents(folder.virtual, made)
        bind = "--ro-bind-try" if folder.read_only else "--bind-try"
        yield from (bind, str(folder.host), folder.virtual)
        made.add(folder.virtual)


def _parents(path: str, made: set[str]) -> Iterable[str]:
    """Create the parents of a path for all users: those that bubblewrap creates are accessible only to root."""
    for parent in reversed(PurePosixPath(path).parents):
        if str(parent) not in made:
            made.add(str(parent))
            yield from ("--perms", "0755", "--dir", str(parent))


def _preamble(limits: ProcessLimits) -> str:
    """Return the script that sets its own limits, then executes the command.

    The memory limit is on data, not on address space: Go, V8 and the JVM reserve far more than they use. The process
    limit is set inside, where only the sandbox's processes count. Lower existing limits cannot be raised; the script
    hides these errors.
    """
    kib = 1024
    wanted = {
        "c": 0,
        "t": limits.cpu_s,
        "d": limits.memory_mb * kib,
        "v": 16 * limits.memory_mb * kib,
        "f": limits.file_mb * kib,
        "n": OPEN_FILES,
        "u": limits.processes,
    }
    lines = [f"ulimit -{flag} {value}" for flag, value in wanted.items()]
    lines.append("trap '' XFSZ")  # a write beyond the limit fails instead of killing the shell
    lines.append("echo 1000 > /proc/self/oom_score_adj")  # first to be killed when memory runs out
    return f'{{ {"; ".join(lines)}; }} 2>/dev/null; cd {WORKSPACE} && exec /bin/bash -c -- "$1"'
