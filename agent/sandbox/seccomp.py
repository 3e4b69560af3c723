"""Seccomp filter for confined commands, as a BPF program. Pure.

It denies system calls that ordinary programs do not use and in which most kernel vulnerabilities were found. It
complements the namespaces and does not replace them. Numbers: `asm/unistd_64.h` and `asm-generic/unistd.h` of Linux 6.
"""

import struct
from collections.abc import Iterable

_DENIED: dict[str, tuple[int, int | None]] = {  # x86_64, aarch64
    # other processes, tracing
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    "perf_event_open": (298, 241), "bpf": (321, 280), "userfaultfd": (323, 282),
    # namespaces, mounts
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "fanotify_init": (300, 262),
    # control of the whole machine
    "reboot": (169, 142), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "swapon": (167, 224), "swapoff": (168, 225),
    "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "acct": (163, 89), "syslog": (103, 116),
    "vhangup": (153, 58), "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
    "uselib": (134, None),
    # objects without files; no other limit bounds their number
    "link": (86, None), "linkat": (265, 37),
    # kernel keys, which namespaces do not separate
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # memory outside all process limits
    "shmget": (29, 194), "msgget": (68, 186), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip
_CLONE, _CLONE3, _SOCKET, _IOCTL = (56, 220), (435, 435), (41, 198), (16, 29)
_SETSOCKOPT = (54, 208)
_SOL_SOCKET, _BUFFER_SIZES = 1, (7, 8)  # SO_SNDBUF, SO_RCVBUF

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # linux/audit.h
_X32 = 0x40000000  # x32 calls have their own numbers
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
# AF_UNIX, AF_INET, AF_INET6, AF_NETLINK; not AF_VSOCK, which reaches the host
_FAMILIES = (1, 2, 10, 16)
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # inject input into a terminal

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32  # offsets in struct seccomp_data


def seccomp_filter(machine: str) -> bytes | None:
    """Return the filter for an architecture (`platform.machine()`), or None if its numbers are unknown."""
    if machine not in _ARCHITECTURES:
        return None
    column, architecture = _ARCHITECTURES[machine]
    denied = [numbers[column] for numbers in _DENIED.values()]
    lines = [
        _line(_LOAD, _ARCHITECTURE),
        *_fail_unless(_JEQ, architecture, _ENOSYS),
        _line(_LOAD, _NUMBER),
        *(_fail_if(_JGE, _X32, _ENOSYS) if machine == "x86_64" else ()),
        # The C library then falls back to clone, whose flags can be checked.
        *_fail_if(_JEQ, _CLONE3[column], _ENOSYS),
        *(
            line
            for number in denied
            if number is not None
            for line in _fail_if(_JEQ, number, _EPERM)
        ),
        *_check_argument(_CLONE[column], _FIRST, _fail_if(_JSET, _NEW_NAMESPACES, _EPERM)),
        *_check_argument(_SOCKET[column], _FIRST, _allow_only(_FAMILIES, _EAFNOSUPPORT)),
        *_check_argument(
            _IOCTL[column],
            _SECOND,
            [*_fail_if(_JEQ, _TIOCSTI, _EPERM), *_fail_if(_JEQ, _TIOCLINUX, _EPERM)],
        ),
        *_check_argument(_SETSOCKOPT[column], _SECOND, _ignore_buffer_sizes()),
        _line(_RETURN, _ALLOW),
    ]
    return b"".join(lines)


def _line(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """Return one instruction. Jumps count skipped instructions."""
    return struct.pack("=HBBI", code, then, otherwise, value)


def _fail_if(test: int, value: int, error: int) -> list[bytes]:
    """Fail the call if the loaded value passes a test."""
    return [_line(test, value, 0, 1), _line(_RETURN, _ERRNO | error)]


def _fail_unless(test: int, value: int, error: int) -> list[bytes]:
    return [_line(test, value, 1, 0), _line(_RETURN, _ERRNO | error)]


def _ignore_buffer_sizes() -> list[bytes]:
    """Pretend to set the size of a socket's buffers. The buffers are kernel memory, which no limit bounds."""
    tests = [line for option in _BUFFER_SIZES for line in _fail_if(_JEQ, option, 0)]
    return [_line(_JEQ, _SOL_SOCKET, 0, 1 + len(tests)), _line(_LOAD, _THIRD), *tests]


def _allow_only(values: Iterable[int], error: int) -> list[bytes]:
    """Allow the call for some loaded values, and fail it for all others."""
    allowed = [line for value in values for line in _allowing(value)]
    return [*allowed, _line(_RETURN, _ERRNO | error)]


def _allowing(value: int) -> list[bytes]:
    return [_line(_JEQ, value, 0, 1), _line(_RETURN, _ALLOW)]


def _check_argument(number: int, offset: int, tests: list[bytes]) -> list[bytes]:
    """Apply tests to an argument of one call, then load the call number again."""
    body = [_line(_LOAD, offset), *tests, _line(_LOAD, _NUMBER)]
    return [_line(_JEQ, number, 0, len(body)), *body]
