"""Finds calls that block the event loop: files, SQLite, DNS lookups, processes, locks, sleeps.

Python raises an audit event when such a call begins, so nothing is patched and no time is measured. Not detected: reads
and writes of files that another thread opened, `os.stat`, and, before Python 3.13, sleeps.
"""

import asyncio
import atexit
import inspect
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
PACKAGES = tuple(f"{ROOT}/{name}/" for name in ("agent", "bots", "bus", "gateway", "store"))
_TESTS = f"{ROOT}/tests/"

_EVENTS = frozenset(
    {
        "fcntl.flock", "fcntl.lockf", "open", "os.chmod", "os.chown", "os.link", "os.listdir", "os.mkdir",
        "os.remove", "os.rename", "os.rmdir", "os.scandir", "os.symlink", "os.truncate", "os.utime", "os.system",
        "shutil.rmtree", "shutil.copyfile", "shutil.move", "socket.getaddrinfo", "socket.gethostbyname",
        "sqlite3.connect", "subprocess.Popen", "tempfile.mkstemp", "tempfile.mkdtemp", "time.sleep",
    }
)  # fmt: skip

_MEMORY = ("/proc/", "/sys/", "/dev/")
"""File systems of the kernel: nothing is read from a disk."""

_PASSES = {
    "logging/__init__.py": "log lines go to a pipe or the service's log file",
    "<frozen importlib": "imports: which ones are still missing depends on what ran before",
    "linecache.py": "reads the source code for a logged traceback",
    "asyncio/base_events.py:subprocess_exec": "asyncio starts processes in the event loop",
    "/coverage/": "measures the tests",
}

ALLOWED = {
    "gateway/config.py:read_admin_token": "a command that finds the service; it serves no clients",
    "store/data_folder.py:running_address": "a command that finds the service; it serves no clients",
    "gateway/terminal/interactive.py:_on_enter": "a person sent a line at the terminal: writes the history file",
    "gateway/config_reload.py:_content_hash": "at startup: hashes the configuration; later, in a thread",
    "gateway/version.py:get_version": "at startup",
    "store/data_folder.py:read_or_create_key": "at startup: reads a key in the data folder",
    "store/data_folder.py:_read_written": "at startup: reads a key in the data folder",
    "store/data_folder.py:record_address": "at startup: before the first request is answered",
}
"""Functions that may block the event loop, and why: no client is served yet, or it happens once."""

Place = str
"""`agent/prompt.py:load`: our function that makes the call, or a library's."""


@cache
def report_file() -> Path:
    """Return the file in which this test session records places that block."""
    folder = Path(tempfile.mkdtemp(prefix="parley-blocking-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / "places.txt"


class BlockingReport:
    """Reads the places recorded in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0

    def read_new(self) -> set[str]:
        """Return the places recorded since the last call that are not allowed: "place event"."""
        if not self._file.exists() or self._file.stat().st_size == self._read:
            return set()
        with self._file.open() as file:
            file.seek(self._read)
            lines = file.read().splitlines()
            self._read = file.tell()
        return {line for line in lines if line.split()[0] not in ALLOWED}


def watch_event_loop(report: Path, *, with_libraries: bool) -> None:
    """Append each place that blocks an event loop of this process, once, to a file. Cannot be undone.

    `with_libraries`: also record calls that libraries make without any of our functions on the stack. In the test
    process, those come from the fakes.
    """
    descriptor = os.open(report, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    seen: set[str] = set()
    events, running_loop = _EVENTS, asyncio._get_running_loop  # globals are gone at shutdown

    def look(event: str, arguments: tuple[object, ...]) -> None:
        if event not in events or running_loop() is None:
            return
        path = arguments[0] if arguments else None
        if path.startswith(_MEMORY) if isinstance(path, str) else event == "open":
            return
        place = _place(sys._getframe(1), with_libraries=with_libraries)
        if place is None:
            return
        line = f"{place} {event}"
        if line not in seen:
            seen.add(line)
            os.write(descriptor, f"{line}\n".encode())

    sys.addaudithook(look)


def _place(frame: FrameType | None, *, with_libraries: bool) -> Place | None:
    """Return the function that blocks. Return None for a test, or if the function is allowed to block."""
    ours: Place | None = None
    library: Place | None = None
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if any(passes in f"{file}:{code.co_name}" for passes in _PASSES):
            return None
        if file.startswith(_TESTS) and not file.endswith("/fork_server.py"):
            return None
        if file.startswith(PACKAGES) and code.co_name != "<module>":
            ours = ours or f"{file.removeprefix(f'{ROOT}/')}:{code.co_name}"
        elif "/site-packages/" in file:
            library = library or f"{file.partition('/site-packages/')[2]}:{code.co_name}"
        if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR) and ours:
            break
        frame = frame.f_back
    return ours or (library if with_libraries else None)
