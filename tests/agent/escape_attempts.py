"""Attacks of a hostile program inside a sandbox. `test_escape.py` runs this program there, and it prints each result.

An attack that raises an error was blocked. A returned value must not contain anything from outside.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

Attempt = Callable[[], object]

ATTEMPTS: dict[str, Attempt] = {}
TOLD: dict[str, str] = {}
"""Values from the test: paths, ports and pids outside the sandbox."""

WORKSPACE = Path("/mnt/user-data/workspace")
SKILL = Path("/mnt/skills/public/charts/SKILL.md")
LIBC = ctypes.CDLL(None, use_errno=True)
ARM = os.uname().machine == "aarch64"


def attempt(work: Attempt) -> Attempt:
    ATTEMPTS[work.__name__] = work
    return work


def call(*numbers: int) -> int:
    """Make a system call; `numbers` are its number here and its arguments."""
    ctypes.set_errno(0)
    result: int = LIBC.syscall(*[ctypes.c_long(number) for number in numbers])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def number(x86: int, arm: int) -> int:
    return arm if ARM else x86


def written(path: str | Path) -> str:
    with open(path, "ab") as file:  # noqa: PTH123 - devices and the like too
        file.write(b"x")
    return f"wrote {path}"


def reading(path: str) -> None:
    """Add attempts to read something outside the sandbox."""
    name = "read_" + path.strip("/").replace("/", "_")
    ATTEMPTS[name] = lambda: Path(path).read_bytes()[:2000].decode("utf-8", "replace")


def writing(path: str) -> None:
    name = "write_" + path.strip("/").replace("/", "_")
    ATTEMPTS[name or "write_root"] = lambda: written(path)


for secret_file in (
    *("/etc/shadow", "/etc/sudoers", "/root/.bashrc"),
    *("/proc/1/mem", "/proc/kcore", "/proc/kmsg", "/dev/mem", "/dev/vda", "/dev/kmsg", "/dev/tty"),
    *("/sys/kernel/notes", "/run/docker.sock", "/var/log/dpkg.log", "/usr/../etc/shadow"),
):
    reading(secret_file)
for fixed_file in (
    *("/usr/bin/planted", "/etc/passwd", "/etc/ld.so.preload", "/planted", "/dev/planted"),
    *("/mnt/planted", "/mnt/user-data/planted", "/mnt/acp-workspace/planted", "/mnt/docs/a.txt"),
    *("/mnt/skills/planted", "/mnt/skills/public/charts/SKILL.md", "/proc/sysrq-trigger"),
    *("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/1/oom_score_adj"),
    *("/proc/sys/user/max_user_namespaces", "/usr/lib/planted", "/bin/bash"),
):
    writing(fixed_file)


@attempt
def secret_by_host_path() -> object:
    return Path(TOLD["secret"]).read_text()


@attempt
def data_folder_by_host_path() -> object:
    return listed(TOLD["home"])


@attempt
def other_thread_by_host_path() -> object:
    return listed(TOLD["other"])


@attempt
def other_thread_by_parents() -> object:
    return listed("/mnt/user-data/../../threads")


@attempt
def secret_by_symlink() -> object:
    link = WORKSPACE / "link"
    link.symlink_to(TOLD["secret"])
    return link.read_text()


@attempt
def secret_by_root_of_the_first_process() -> object:
    return Path("/proc/1/root" + TOLD["secret"]).read_text()


@attempt
def secret_by_folder_of_the_first_process() -> object:
    return listed("/proc/1/cwd/" + TOLD["home"])


@attempt
def secret_by_own_root() -> object:
    return Path("/proc/self/root" + TOLD["secret"]).read_text()


@attempt
def files_of_the_first_process() -> object:
    kept = {str(Path(f"/proc/1/fd/{name}").readlink()) for name in listed("/proc/1/fd")}
    return [name for name in kept if name[0] == "/" and name != "/dev/null"] or refuse()


@attempt
def inherited_files() -> object:
    kept = [str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in range(3, 64) if is_open(fd)]
    return [name for name in kept if not name.startswith("/mnt/user-data")] or refuse()


@attempt
def variables_of_the_service() -> object:
    told = [str(os.environ)]
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            told.append(file.read_text())
    return TOLD["marker"] in "".join(told) or refuse()


@attempt
def arguments_of_the_service() -> object:
    lines = [file.read_text() for file in Path("/proc").glob("[0-9]*/cmdline")]
    return any(TOLD["home"] in line or "pytest" in line for line in lines) or refuse()


@attempt
def skill_by_hard_link() -> object:
    os.link(SKILL, WORKSPACE / "hard")
    return written(WORKSPACE / "hard")


@attempt
def program_by_hard_link() -> object:
    os.link("/usr/bin/env", WORKSPACE / "env")
    return "linked"


@attempt
def skill_by_rename() -> object:
    (WORKSPACE / "mine").write_text("mine")
    (WORKSPACE / "mine").replace(SKILL)
    return "replaced"


@attempt
def skill_by_removal() -> object:
    SKILL.unlink()
    return "removed"


@attempt
def skill_by_permissions() -> object:
    SKILL.chmod(0o777)
    return "changed"


@attempt
def skill_by_symlink() -> object:
    link = WORKSPACE / "skill"
    link.symlink_to(SKILL)
    return written(link)


@attempt
def skill_by_truncation() -> object:
    os.truncate(SKILL, 0)
    return "emptied"


@attempt
def folder_given_away() -> object:
    os.chown(WORKSPACE, 0, 0)
    return "given to root"


@attempt
def character_device() -> object:
    os.mknod(WORKSPACE / "mem", 0o666 | stat.S_IFCHR, os.makedev(1, 1))
    return "made"


@attempt
def block_device() -> object:
    os.mknod(WORKSPACE / "disk", 0o666 | stat.S_IFBLK, os.makedev(254, 0))
    return "made"


@attempt
def become_root() -> object:
    os.setuid(0)
    return "root"


@attempt
def root_group() -> object:
    os.setgroups([0])
    return "in root's group"


@attempt
def rights_by_a_setuid_program() -> object:
    # Neither a copy with the setuid bit nor the system's program may gain a privilege.
    copy = WORKSPACE / "own-env"
    shutil.copy("/usr/bin/env", copy)
    copy.chmod(0o4755)
    status = os.popen(f"{copy} cat /proc/self/status").read()  # noqa: S605 - fixed
    fixed = "NoNewPrivs:\t1" in status and "CapEff:\t0000000000000000" in status
    return refuse() if fixed else f"its status: {status}"


@attempt
def capabilities() -> object:
    lines = dict(line.split(":\t", 1) for line in status_lines())
    return [int(lines[name], 16) for name in ("CapPrm", "CapEff", "CapAmb")] != [
        0,
        0,
        0,
    ] or refuse()


@attempt
def system_calls_unfiltered() -> object:
    return "Seccomp:\t2" not in status_lines() or refuse()


def syscalls() -> None:
    """Add attempts to make filtered system calls, by their number on x86_64 and on aarch64."""
    table: dict[str, tuple[int, int, tuple[int, ...]]] = {
        "unshare_user": (272, 97, (0x10000000,)),
        "unshare_mounts": (272, 97, (0x20000,)),
        "clone_user": (56, 220, (0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)),
        "clone3": (435, 435, (0, 0)),
        "chroot_usr": (161, 51, (0,)),
        "pivot_root": (155, 41, (0, 0)),
        "mount": (165, 40, (0, 0, 0, 4096, 0)),
        "umount": (166, 39, (0, 2)),
        "open_tree": (428, 428, (-100, 0, 1)),
        "fsopen": (430, 430, (0, 0)),
        "mount_setattr": (442, 442, (-100, 0, 0, 0, 0)),
        "setns": (308, 268, (0, 0)),
        "open_by_handle_at": (304, 265, (-100, 0, 0)),
        "ptrace_attach": (101, 117, (16, 1, 0, 0)),
        "process_vm_readv": (310, 270, (1, 0, 0, 0, 0, 0)),
        "bpf": (321, 280, (0, 0, 0)),
        "perf_event_open": (298, 241, (0, 0, -1, -1, 0)),
        "userfaultfd": (323, 282, (0,)),
        "io_uring": (425, 425, (8, 0)),
        "add_key": (248, 217, (0, 0, 0, 0, -3)),
        "keyctl": (250, 219, (0, -3, 0)),
        "memfd": (319, 279, (0, 0)),
        "shared_memory": (29, 194, (0, 1 << 20, 0o1600)),
        "message_queue": (68, 186, (0, 0o1600)),
        "init_module": (175, 105, (0, 0, 0)),
        "kexec": (246, 104, (0, 0, 0, 0)),
        "reboot": (169, 142, (0, 0, 0, 0)),
        "set_clock": (227, 112, (0, 0)),
        "sethostname": (170, 161, (0, 0)),
        "swapon": (167, 224, (0, 0)),
        "kernel_log": (103, 116, (3, 0, 0)),
    }
    for name, (x86, arm, arguments) in table.items():
        ATTEMPTS[f"call_{name}"] = partial(filtered, number(x86, arm), *arguments)


def filtered(*numbers: int) -> object:
    """Make a system call that the filter refuses. Any other error would mean that the call reached the kernel."""
    try:
        call(*numbers)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOSYS):
            raise
        return f"reached the kernel: {error}"
    return "worked"


syscalls()


@attempt
def keystrokes_for_a_terminal() -> object:
    _, inner = os.openpty()
    return fcntl.ioctl(inner, 0x5412, b"x") or "typed"  # TIOCSTI


def connections() -> None:
    """Add attempts to connect to something."""
    inet, inet6 = socket.AF_INET, socket.AF_INET6
    stream, packet = socket.SOCK_STREAM, socket.SOCK_DGRAM
    table: dict[str, tuple[int, int, Callable[[], object]]] = {
        "service_of_the_machine": (inet, stream, lambda: ("127.0.0.1", int(TOLD["port"]))),
        "service_by_ipv6": (inet6, stream, lambda: ("::1", int(TOLD["port"]))),
        "address_of_the_machine": (inet, stream, lambda: (TOLD["address"], int(TOLD["port"]))),
        "internet": (inet, stream, lambda: ("192.0.2.1", 80)),
        "metadata": (inet, stream, lambda: ("169.254.169.254", 80)),
        "nameserver": (inet, packet, lambda: ("192.0.2.1", 53)),
        "broadcast": (inet, packet, lambda: ("255.255.255.255", 9)),
        "abstract_socket": (socket.AF_UNIX, stream, lambda: "\0" + TOLD["abstract"]),
        "socket_file": (socket.AF_UNIX, stream, lambda: TOLD["socket"]),
        "docker_socket": (socket.AF_UNIX, stream, lambda: "/var/run/docker.sock"),
        "hypervisor": (40, stream, lambda: (2, 22)),
        "kernel_crypto": (38, socket.SOCK_SEQPACKET, lambda: ("hash", "sha256")),
        "raw_frames": (17, socket.SOCK_RAW, lambda: ("lo", 0)),
        "raw_ping": (inet, socket.SOCK_RAW, lambda: ("127.0.0.1", 0)),
    }
    for name, (family, kind, address) in table.items():
        ATTEMPTS[f"connect_{name}"] = partial(connected, family, kind, address)


def connected(family: int, kind: int, address: Callable[[], Any]) -> object:
    with socket.socket(family, kind) as door:
        door.settimeout(2)
        door.connect(address())
        if kind == socket.SOCK_DGRAM:
            door.send(b"x")
        return f"reached {address()}"


connections()


@attempt
def names_of_hosts() -> object:
    return socket.getaddrinfo("example.com", 80)


@attempt
def other_interfaces() -> object:
    return [name for _, name in socket.if_nameindex() if name != "lo"] or refuse()


@attempt
def kill_a_process_of_the_machine() -> object:
    os.kill(int(TOLD["pid"]), signal.SIGTERM)
    return "killed"


@attempt
def kill_the_first_process() -> object:
    os.kill(1, signal.SIGKILL)
    time.sleep(0.05)
    return refuse()  # this process still runs, so the signal was ignored


@attempt
def see_processes_of_the_machine() -> object:
    return [name for name in listed("/proc") if name == TOLD["pid"]] or refuse()


@attempt
def raise_own_limits() -> object:
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard * 2))
    return "raised"


@attempt
def enlarge_socket_buffers() -> object:
    for end in socket.socketpair():
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            before = end.getsockopt(socket.SOL_SOCKET, option)
            end.setsockopt(socket.SOL_SOCKET, option, before + 65_536)
            if end.getsockopt(socket.SOL_SOCKET, option) != before:
                return "enlarged"
    return refuse()


@attempt
def become_more_important() -> object:
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    return "first"


@attempt
def be_spared_when_memory_ends() -> object:
    return written_text("/proc/self/oom_score_adj", "-1000")


@attempt
def fork_bomb() -> object:
    children = []
    try:
        for _ in range(int(TOLD["processes"]) + 20):
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return f"{len(children)} processes"


@attempt
def thread_bomb() -> object:
    over = threading.Event()
    threads = []
    try:
        for _ in range(int(TOLD["processes"]) + 20):
            thread = threading.Thread(target=over.wait, daemon=True)
            thread.start()
            threads.append(thread)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    return f"{len(threads)} threads"


@attempt
def memory() -> object:
    return len(bytearray(2 * int(TOLD["memory_mb"]) * 2**20))


@attempt
def large_file() -> object:
    fill(WORKSPACE / "large", int(TOLD["file_mb"]) + 1)
    return "written"


@attempt
def large_file_with_holes() -> object:
    (WORKSPACE / "holes").write_bytes(b"")
    os.truncate(WORKSPACE / "holes", 10**12)
    return "made"


@attempt
def fill_temporary_folder() -> object:
    return many(Path("/tmp"))  # noqa: S108 - the sandbox's own


@attempt
def fill_shared_memory() -> object:
    return many(Path("/dev/shm"))  # noqa: S108 - the sandbox's own


@attempt
def many_open_files() -> object:
    files: list[int] = []
    try:
        while len(files) < 2000:
            files += [os.dup(0)]
    finally:
        for file in files:
            os.close(file)
    return f"{len(files)} files"


def many(folder: Path) -> str:
    """Create more files in a folder than it may hold."""
    size = int(TOLD["file_mb"])
    files = [folder / f"part-{at}" for at in range(80 // size + 1)]
    try:
        for file in files:
            fill(file, size)
    finally:
        for file in files:
            file.unlink(missing_ok=True)
    return "80 MB"


def fill(file: Path, size_mb: int) -> None:
    with file.open("wb", buffering=0) as out:
        piece = bytes(2**20)
        for _ in range(size_mb):
            if out.write(piece) < len(piece):
                raise OSError(errno.ENOSPC, "cut short")


def listed(path: str) -> list[str]:
    return [entry.name for entry in Path(path).iterdir()]


def written_text(path: str, text: str) -> str:
    Path(path).write_text(text)
    return f"wrote {path}"


def status_lines() -> list[str]:
    return Path("/proc/self/status").read_text().splitlines()


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def refuse() -> object:
    raise PermissionError(errno.EPERM, "nothing was gained")


def outcome(work: Attempt) -> str:
    try:
        loot = work()
    except (OSError, MemoryError, RuntimeError, ValueError, struct.error) as error:
        return f"refused: {type(error).__name__}: {error}"[:200]
    return f"ESCAPED: {loot}"[:400]


def main() -> None:
    TOLD.update(json.loads(Path(sys.argv[1]).read_text()))
    json.dump({name: outcome(work) for name, work in ATTEMPTS.items()}, sys.stdout)


if __name__ == "__main__":
    main()
