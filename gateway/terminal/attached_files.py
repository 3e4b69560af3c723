"""Files that a person attaches in the terminal: which lines name them, and the list that waits for the next message."""

import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import anyio
from anyio import to_thread

from bots.terminal.adapter import MAX_FILE_BYTES

ATTACH_COMMAND = "/attach"
MAX_FILES = 10
"""The agent takes no more with one message."""

_KB, _MB = 1000, 1_000_000
CHUNK_BYTES = 256 * 1024
_ATTACH_LINE = re.compile(rf"\s*{ATTACH_COMMAND}(?:\s+(.*))?", re.DOTALL)


class AttachedFiles:
    """The files that go with the next message."""

    def __init__(self) -> None:
        self._paths: list[Path] = []

    def __len__(self) -> int:
        return len(self._paths)

    async def add(self, line: str) -> str | None:
        """Attach the files that a line names: `/attach FILE ...`, or nothing but the absolute paths of files.

        The second form is what a terminal types when a file is dragged into it.

        Returns:
            What to tell the person; None: the line is an ordinary message.
        """
        return await to_thread.run_sync(self._add, line)

    def take(self) -> list[Path]:
        """Return the files, and start over."""
        paths, self._paths = self._paths, []
        return paths

    def _add(self, line: str) -> str | None:
        command = _ATTACH_LINE.fullmatch(line)
        words = _words(line if command is None else command[1] or "")
        if command is None:
            paths = [path for word in words if (path := _dragged_file(word))]
            if not paths or len(paths) != len(words):
                return None
        elif not words:
            return f"({ATTACH_COMMAND} FILE sends a file with the next message)"
        else:
            paths = [Path(word).expanduser() for word in words]
        return "\n".join(map(self._attach, paths))

    def _attach(self, path: Path) -> str:
        if not path.is_file():
            return f"(there is no file {path})"
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            return f"({path.name} is larger than {MAX_FILE_BYTES // _MB} MB)"
        if len(self._paths) == MAX_FILES:
            return f"({path.name} is not attached: a message takes {MAX_FILES} files)"
        self._paths.append(path)
        return f"(attached {path.name}, {_shown_size(size)}; Enter sends it, Ctrl-C drops it)"


async def read_chunks(path: Path) -> AsyncIterator[bytes]:
    """Yield a file's bytes. Raises OSError."""
    async with await anyio.open_file(path, "rb") as file:
        while chunk := await file.read(CHUNK_BYTES):
            yield chunk


def _words(line: str) -> list[str]:
    r"""Return the words of a line as a shell would; none if it is not one line of complete quotes.

    >>> _words("'/tmp/a b' /tmp/c\\ d"), _words("it's")
    (['/tmp/a b', '/tmp/c d'], [])
    """
    try:
        return [] if "\n" in line.strip() else shlex.split(line)
    except ValueError:
        return []


def _dragged_file(word: str) -> Path | None:
    path = Path(unquote(urlsplit(word).path) if word.startswith("file://") else word)
    try:
        return path if path.is_absolute() and path.is_file() else None
    except (OSError, ValueError):
        return None


def _shown_size(size: int) -> str:
    """Return a size for people.

    >>> _shown_size(512), _shown_size(20_480), _shown_size(3_500_000)
    ('512 bytes', '20 kB', '3.5 MB')
    """
    if size < _KB:
        return f"{size} bytes"
    return f"{size // _KB} kB" if size < _MB else f"{size / _MB:.1f} MB"
