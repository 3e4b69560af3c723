"""Result of a command, formatted for the model, and the bounded buffer that collects its output."""

from collections.abc import Callable
from dataclasses import dataclass

NO_OUTPUT = "(no output)"
KEPT_BYTES = 4_000_000
"""Bytes kept of each output stream: half from its start, half from its end."""

TAIL_BYTES = 100_000
"""Bytes kept of the unread output of a background command."""


class OutputBuffer:
    r"""Keeps the start and the end of a stream of any length.

    >>> buffer = OutputBuffer(kept_bytes=8)
    >>> for piece in (b"abc", b"defghi", b"jkl"):
    ...     buffer.append(piece)
    >>> buffer.text()
    'abcd\n... [4 bytes left out]\nijkl'
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept = kept_bytes
        self._half = kept_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def append(self, piece: bytes) -> None:
        """Add the next piece of the stream."""
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:] if room < len(piece) else b""
        # Trim only at twice the size. Otherwise each small piece would copy the whole tail.
        if len(self._tail) > 2 * self._half:
            self._trim()

    def note(self) -> str:
        """Return a sentence about omitted output, or ""."""
        self._trim()
        size = f"{self._kept // 1_000_000} MB"
        return (
            f"The command printed more than {size}; the middle was dropped."
            if self._dropped
            else ""
        )

    def text(self) -> str:
        """Return the kept text. Bytes that are not UTF-8 become replacement characters."""
        self._trim()
        if self._dropped:
            note = f"\n... [{self._dropped} bytes left out]\n"
            return _decode(self._head) + note + _decode(self._tail)
        return _decode(self._head + self._tail)

    def _trim(self) -> None:
        excess = len(self._tail) - self._half
        if excess > 0:
            del self._tail[:excess]
            self._dropped += excess


class OutputTail:
    r"""Keeps the end of a stream that is read while it grows. `mask` replaces text that must not be shown.

    >>> tail = OutputTail(kept_bytes=4)
    >>> tail.append(b"abcdef")
    >>> tail.take()
    '[2 earlier bytes left out]\ncdef'
    >>> tail.append(b"g")
    >>> tail.take(), tail.take()
    ('g', '')
    """

    def __init__(self, kept_bytes: int = TAIL_BYTES) -> None:
        self._kept = kept_bytes
        self._unread = bytearray()
        self._dropped = 0
        self.mask: Callable[[str], str] = str

    def append(self, piece: bytes) -> None:
        """Add the next piece of the stream."""
        self._unread += piece
        excess = len(self._unread) - self._kept
        if excess > 0:
            del self._unread[:excess]
            self._dropped += excess

    def take(self) -> str:
        """Return the output since the last call."""
        note = f"[{self._dropped} earlier bytes left out]\n" if self._dropped else ""
        text = self.mask(note + _decode(self._unread))
        self._unread, self._dropped = bytearray(), 0
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """Output and exit code of a command.

    Attributes:
        stdout: Standard output.
        stderr: Standard error.
        code: Exit code; 128 + n if signal n ended it, as in shells.
        note: A sentence if the deadline or a limit stopped it.
        omission: A sentence if part of its output was dropped.
    """

    stdout: str
    stderr: str = ""
    code: int = 0
    note: str = ""
    omission: str = ""

    def text(self) -> str:
        r"""Format it for the model.

        >>> CommandResult(stdout="a\n", stderr="b\n", code=1).text()
        'a\n\nStd Error:\nb\n\nExit Code: 1'
        >>> CommandResult(stdout="").text()
        '(no output)'
        """
        parts = [self.stdout] if self.stdout else []
        if self.stderr:
            parts.append(f"\nStd Error:\n{self.stderr}")
        if self.code != 0:
            parts.append(f"\nExit Code: {self.code}")
        if self.note:
            parts.append(f"\n{self.note}")
        if self.omission:
            parts.append(f"\n{self.omission}")
        text = "".join(parts)
        return (text if self.stdout else text.removeprefix("\n")) or NO_OUTPUT


def exit_code(returncode: int) -> int:
    """Convert a process return code into a shell exit code: negative ones are signals.

    >>> exit_code(-9), exit_code(3)
    (137, 3)
    """
    return 128 - returncode if returncode < 0 else returncode


def _decode(content: bytes | bytearray) -> str:
    return content.decode("utf-8", "replace").replace("\0", "\ufffd")
