"""Files attached in the terminal: recognizes lines that name files, and keeps the list for the next message."""

import re
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import anyio
from anyio import to_thread

from bots.terminal.adapter import MAX_FILE_BYTES

ATTACH_COMMAND = "/attach"
MAX_FILES = 10
"""Maximum number of files that the agent accepts with one message."""

_KB, _MB = 1000, 1_000_000
CHUNK_BYTES = 256 * 1024
_WORD = re.compile(r"""(?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\])+(?=\s|\Z)""", re.DOTALL)
"""Matches a word like a shell."""

_PATH = re.compile(r"[/\\]|^~|\w\.\w{1,5}$")
"""Prefixes of a word that is meant as a file."""

_ATTACH_LINE = re.compile(rf"\s*{ATTACH_COMMAND}(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AttachedLine:
    """A line that names files.

    Attributes:
        told: The reply to the person.
        message: The words after the files, which are sent with them at once; "" = the files wait for the next message.
    """

    told: str
    message: str = ""


class AttachedFiles:
    """The files to send with the next message."""

    def __init__(self) -> None:
        self._paths: list[Path] = []

    def __len__(self) -> int:
        return len(self._paths)

    async def add(self, line: str) -> AttachedLine | None:
        """Attach the files that a line names: `/attach FILE ... WORDS`, or only the absolute paths of files.

        Terminals type the second form when a file is dragged into them. None = the line is an ordinary message.
        """
        return await to_thread.run_sync(self._add, line)

    def take(self) -> list[Path]:
        """Return the files and clear the list."""
        paths, self._paths = self._paths, []
        return paths

    def _add(self, line: str) -> AttachedLine | None:
        command = _ATTACH_LINE.fullmatch(line)
        if command is not None:
            return self._add_command(command[1] or "")
        words = _words(line)
        paths = [path for word in words if (path := _dragged_file(word))]
        if not paths or len(paths) != len(words):
            return None
        return AttachedLine("\n".join(told for told, _ in map(self._attach, paths)))

    def _add_command(self, argument: str) -> AttachedLine:
        paths, rest = _leading_files(argument)
        if not argument.strip():
            return AttachedLine(f"({ATTACH_COMMAND} FILE sends a file with the next message)")
        results = list(map(self._attach, paths))
        told = [text for text, _ in results]
        first = _first_word(rest)
        if first and (not paths or _PATH.search(first)):
            return AttachedLine("\n".join([*told, f"(there is no file {first})"]))
        is_attached = all(ok for _, ok in results)
        return AttachedLine("\n".join(told), rest if is_attached else "")

    def _attach(self, path: Path) -> tuple[str, bool]:
        """Attach a file. Return a message for the person, and whether the file is attached."""
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            return f"({path.name} is larger than {MAX_FILE_BYTES // _MB} MB)", False
        if len(self._paths) == MAX_FILES:
            return f"({path.name} is not attached: a message takes {MAX_FILES} files)", False
        self._paths.append(path)
        size_text = _shown_size(size)
        return f"(attached {path.name}, {size_text}; Enter sends it, Ctrl-C drops it)", True


async def read_chunks(path: Path) -> AsyncIterator[bytes]:
    """Yield a file's bytes. Raises OSError."""
    async with await anyio.open_file(path, "rb") as file:
        while chunk := await file.read(CHUNK_BYTES):
            yield chunk


def _leading_files(argument: str) -> tuple[list[Path], str]:
    """Return the files at the beginning of a text, and the text after them."""
    paths: list[Path] = []
    rest = argument.strip()
    while (word := _WORD.match(rest)) is not None:
        path = Path(shlex.split(word[0])[0]).expanduser()
        try:
            is_file = path.is_file()
        except (OSError, ValueError):
            is_file = False
        if not is_file:
            break
        paths.append(path)
        rest = rest[word.end() :].lstrip()
    return paths, rest


def _first_word(text: str) -> str:
    """Return the first word of a text, without quotes.

    >>> _first_word("'/tmp/a b' c"), _first_word("what's this"), _first_word("")
    ('/tmp/a b', "what's", '')
    """
    word = _WORD.match(text)
    return shlex.split(word[0])[0] if word else text.partition(" ")[0]


def _words(line: str) -> list[str]:
    r"""Return the words of a line like a shell. Empty if it is not a single line with complete quotes.

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
