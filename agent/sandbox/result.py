"""What a command left: its output as the model reads it."""

from dataclasses import dataclass

NO_OUTPUT = "(no output)"
KEPT_BYTES = 1_000_000
"""Most of one stream that is kept while a command runs: half from its beginning, half from its end."""


class OutputBuffer:
    r"""Keeps both ends of a stream of any length.

    >>> tape = OutputBuffer(kept_bytes=8)
    >>> for piece in (b"abc", b"defghi", b"jkl"):
    ...     tape.add(piece)
    >>> tape.text()
    'abcd\n... [4 bytes left out]\nijkl'
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._half = kept_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, piece: bytes) -> None:
        """Take the next piece of the stream."""
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:] if room < len(piece) else b""
        # Cut only when it is twice too long: otherwise each small piece would move the whole tail.
        if len(self._tail) > 2 * self._half:
            self._cut()

    def text(self) -> str:
        """Return what was kept; bytes that are no UTF-8 become replacement characters."""
        self._cut()
        if self._dropped:
            note = f"\n... [{self._dropped} bytes left out]\n"
            return _decoded(self._head) + note + _decoded(self._tail)
        return _decoded(self._head + self._tail)

    def _cut(self) -> None:
        over = len(self._tail) - self._half
        if over > 0:
            del self._tail[:over]
            self._dropped += over


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended.

    Attributes:
        stdout: What it wrote there.
        stderr: What it wrote there.
        code: Its exit code; 128 + n when signal n ended it, as shells count.
        note: A sentence when it was stopped from outside: the deadline, a limit.
    """

    stdout: str
    stderr: str = ""
    code: int = 0
    note: str = ""

    def text(self) -> str:
        r"""Put it together for the model.

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
        text = "".join(parts)
        return (text if self.stdout else text.removeprefix("\n")) or NO_OUTPUT


def exit_code(returncode: int) -> int:
    """Turn a process' return code into a shell's: negative ones are signals.

    >>> exit_code(-9), exit_code(3)
    (137, 3)
    """
    return 128 - returncode if returncode < 0 else returncode


def _decoded(content: bytes | bytearray) -> str:
    return content.decode("utf-8", "replace").replace("\0", "\ufffd")
