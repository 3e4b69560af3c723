"""How a confined command is started: what bubblewrap is told. Nothing here starts it.

Two ways, by who runs the service:

- an ordinary user: bubblewrap makes a user namespace, in which the command has no rights and can make no further one;
- root: no user namespace, since in one the command would still be root to the kernel, which counts no processes
  of root. It runs as a user of its own instead, another one for each thread, to whom the thread's folders are given.
"""

import hashlib
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agent.paths import WORKSPACE, MountTable
from agent.paths import Mount as Folder
from agent.sandbox.disk import DiskLimits
from agent.sandbox.process import ProcessSpec
from agent.sandbox.seccomp import seccomp_filter

BWRAP, SETPRIV, NICE = "/usr/bin/bwrap", "/usr/bin/setpriv", "/usr/bin/nice"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
INNER_ID = 1000
"""The user that commands see themselves as, where there is a user namespace."""

OPEN_FILES = 256
TEMPORARY_MB = 64  # of /tmp, and of /dev/shm
NICENESS = "10"  # commands wait for the service, not the service for commands

_FIRST_OWNER, _OWNERS = 1_879_048_192, 2**28 - 2  # systemd's UIDS-GIDS.md: nobody uses these
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FILTER = "the filter of system calls"
_ETC = (  # nothing with secrets: certificates, not keys
    *("alternatives", "ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/ca-trust"),
    *("pki/tls/certs", "crypto-policies", "fonts", "localtime", "mime.types", "magic"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "protocols", "services", "terminfo"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """What one command may use.

    Attributes:
        memory_mb: Memory of all its processes together, and of each; MiB.
        cpu_s: Processor time of each process, seconds.
        processes: Processes and threads at once.
        file_mb: Size of a file that it writes; MiB.
    """

    memory_mb: int = 1024
    cpu_s: int = 300
    processes: int = 128
    file_mb: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class BubblewrapOptions:
    """What commands may use, the variables that they get, and the program that confines them."""

    limits: ProcessLimits = field(default_factory=ProcessLimits)
    disk: DiskLimits = field(default_factory=DiskLimits)
    environment: Mapping[str, str] = field(default_factory=dict)
    program: str = BWRAP


def sandbox_uid(thread_id: str) -> int | None:
    """Return the user and group id that a thread's commands run as; None = the service's own.

    Only root can give folders to others, and only to ids that exist in its user namespace.
    """
    if os.geteuid() != 0:
        return None
    digest = hashlib.sha256(thread_id.encode()).digest()
    return _FIRST_OWNER + int.from_bytes(digest[:8], "big") % _OWNERS


@contextmanager
def bubblewrap_process(
    command: str,
    table: MountTable,
    *,
    owner: int | None,
    rules: BubblewrapOptions,
) -> Iterator[ProcessSpec]:
    """Hold ready what starts a command. Blocking.

    Args:
        command: Shell text.
        table: What is seen besides the system's folders.
        owner: As `sandbox_uid`.
        rules: What it may use.
    """
    with _opened(_own_files(owner)) as files:
        options = [
            *_namespaces(owner),
            *_system(),
            *_folders(table.mounts),
            *_placed(files),
            *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"),
        ]
        # By descriptor: what is an argument can be read by everybody on the machine, and in the sandbox.
        with _opened({"options": b"".join(os.fsencode(one) + b"\0" for one in options)}) as more:
            yield ProcessSpec(
                argv=[
                    *(NICE, "-n", NICENESS, rules.program),
                    *("--args", str(more["options"]), "--"),
                    *_as_owner(owner),
                    *("/bin/bash", "--norc", "--noprofile", "-c", _preamble(rules.limits)),
                    *("sandbox", command),
                ],
                environment=_environment(rules.environment),
                descriptors=(*files.values(), *more.values()),
            )


def _own_files(owner: int | None) -> dict[str, bytes]:
    """Return the contents of the small files of /etc, and the filter of system calls."""
    number = INNER_ID if owner is None else owner
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
    """Hold contents in memory, each readable once from its descriptor."""
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
    """Return the variables of a command: a few fixed ones and the configured ones, nothing of the service."""
    fixed = {"PATH": PATH, "HOME": WORKSPACE, "LANG": "C.UTF-8", "TERM": "dumb", "TMPDIR": "/tmp"}  # noqa: S108 - the sandbox's own
    return {**fixed, "USER": "agent", **configured}


def _namespaces(owner: int | None) -> Iterable[str]:
    # Variables come from the process' own environment: as arguments everybody on the machine could read them.
    yield from ("--die-with-parent", "--new-session", "--hostname", "sandbox", "--cap-drop", "ALL")
    yield from ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts")
    yield "--unshare-cgroup-try"
    if owner is None:
        yield from ("--unshare-user", "--disable-userns")
        yield from ("--uid", str(INNER_ID), "--gid", str(INNER_ID))
    else:
        yield from ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")  # for setpriv, below


def _as_owner(owner: int | None) -> Sequence[str]:
    """Become the owner; with that the last capabilities are gone, and nothing can bring them back."""
    if owner is None:
        return ()
    return (SETPRIV, "--reuid", str(owner), "--regid", str(owner), "--clear-groups", "--")


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


def _folders(mappings: Iterable[Folder]) -> Iterable[str]:
    """Bind the folders, outer ones first."""
    etc = [Folder(virtual=f"/etc/{name}", host=Path("/etc", name), read_only=True) for name in _ETC]
    made = {"/"}
    for folder in sorted((*etc, *mappings), key=lambda one: len(one.virtual)):
        yield from _parents(folder.virtual, made)
        bind = "--ro-bind-try" if folder.read_only else "--bind-try"
        yield from (bind, str(folder.host), folder.virtual)
        made.add(folder.virtual)


def _parents(path: str, made: set[str]) -> Iterable[str]:
    """Make the folders above a path that everybody can pass: by itself bubblewrap makes them for root alone."""
    for parent in reversed(PurePosixPath(path).parents):
        if str(parent) not in made:
            made.add(str(parent))
            yield from ("--perms", "0755", "--dir", str(parent))


def _preamble(limits: ProcessLimits) -> str:
    """Return the script that limits itself, then becomes the command.

    The limit on data (not on address space) stops what really uses memory: Go, V8 and the JVM reserve far more than
    they use. Processes are limited in here, where only those of the sandbox count. A limit that is already lower
    cannot be raised: those errors are not shown.
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
    lines.append("trap '' XFSZ")  # a write beyond the limit fails, and does not end the shell
    lines.append("echo 1000 > /proc/self/oom_score_adj")  # when memory ends, this goes first
    return f'{{ {"; ".join(lines)}; }} 2>/dev/null; cd {WORKSPACE} && exec /bin/bash -c -- "$1"'
