"""The terminal chat: prompt, live answers, files, and the commands to exit."""

import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TextIO, assert_never
from unicodedata import east_asian_width

import anyio

from bots.terminal.session import TerminalFile, TerminalIndicator, TerminalMessage
from bus.platform import Disposition
from gateway.config import Config
from gateway.terminal.remote_client import TerminalClient
from gateway.terminal.session_events import SessionEvent, SessionHeartbeat, SessionIdle
from gateway.terminal.stdin import read_lines

PROMPT = "you> "
EXIT_COMMANDS = frozenset({"/quit", "/exit"})
GREETING = "Type a message. /help lists the commands, /quit exits.\n"

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters, which untrusted text could use to control the terminal. Newlines and tabs are kept."""


def strip_control_characters(text: str) -> str:
    r"""Return text without control characters.

    >>> strip_control_characters("a\x1b[2Jb\r\n\tc")
    'a[2Jb\n\tc'
    """
    return _CONTROL.sub("", text).encode("utf-8", "replace").decode()


def count_rows(text: str, columns: int) -> int:
    r"""Return how many terminal rows a text occupies.

    >>> count_rows("abc", 10), count_rows("a\nb", 10), count_rows("x" * 25, 10), count_rows("你好", 3)
    (1, 2, 3, 2)
    """
    return sum(max(1, -(-_display_width(line) // columns)) for line in text.split("\n"))


def _display_width(line: str) -> int:
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in line.expandtabs())


class ChatScreen:
    """Prints messages and updates them in place.

    Args:
        live: Show messages while they are written; otherwise only finished ones.
    """

    def __init__(self, out: TextIO, *, live: bool) -> None:
        self._out = out
        self._live = live
        self._open: str | None = None
        self._text = ""
        self._done: set[str] = set()

    def write(self, text: str) -> None:
        """Print text as it is."""
        self._out.write(text)
        self._out.flush()

    def show(self, event: TerminalMessage) -> None:
        """Update a message; a finished message does not change."""
        if event.id in self._done or not (self._live or event.final):
            return
        text = strip_control_characters(event.text).rstrip()
        if event.id != self._open:
            self.close()
            self._open, self._text = event.id, ""
        self.write(self._change(text))
        self._text = text
        if event.final:
            self._done.add(event.id)
            self.close()

    def line(self, text: str) -> None:
        """Print a line of its own."""
        self.close()
        self.write(strip_control_characters(text) + "\n")

    def close(self) -> None:
        """End the current message."""
        if self._open is not None:
            self._open = None
            self.write("\n")

    def _change(self, text: str) -> str:
        """Return what to print so that the current message shows `text`."""
        if text.startswith(self._text):
            return text[len(self._text) :]
        if not self._live:
            return text
        up = count_rows(self._text, shutil.get_terminal_size().columns) - 1
        return ("\r" if not up else f"\r\x1b[{up}A") + "\x1b[J" + text


class TerminalChat:
    """One conversation between a user at a terminal and the bot.

    Args:
        lines: What the user types.
        files: The folder to which the paths of received files are relative.
        live: Interactive: show a prompt and live answers. Otherwise each line is answered before the next is read.
    """

    def __init__(
        self,
        link: TerminalClient,
        lines: AsyncIterator[str],
        out: TextIO,
        *,
        files: Path,
        live: bool,
    ) -> None:
        self._link = link
        self._lines = lines
        self._screen = ChatScreen(out, live=live)
        self._files = files
        self._live = live
        self._answered = False
        self._rest = anyio.Event()

    async def run(self) -> None:
        """Chat until the user exits or the input ends. Raises CommandFailed if the connection is lost."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._print)
            if self._live:
                self._screen.write(GREETING + PROMPT)
            async for line in self._lines:
                if line.strip().lower() in EXIT_COMMANDS:
                    break
                await self._say(line)
            tasks.cancel_scope.cancel()
        self._screen.close()

    async def _say(self, line: str) -> None:
        if not line.strip():
            if self._live:
                self._screen.write(PROMPT)
            return
        self._answered, self._rest = False, anyio.Event()
        result = await self._link.send(line)
        if result not in (Disposition.ACCEPTED, Disposition.QUEUE_FULL):
            self._screen.line(f"(not accepted: {result})")
            if self._live:
                self._screen.write(PROMPT)
        elif not self._live:
            await self._rest.wait()

    async def _print(self) -> None:
        async for item in self._link.events():
            self._take(item)

    def _take(self, item: SessionEvent) -> None:
        match item:
            case TerminalMessage():
                self._screen.show(item)
                self._answered = self._answered or item.final
            case TerminalFile():
                self._screen.line(f"[file] {item.name} -> {self._files / item.path}")
                self._answered = True
            case SessionIdle():
                self._take_rest()
            case TerminalIndicator() | SessionHeartbeat():
                pass
            case _:
                assert_never(item)

    def _take_rest(self) -> None:
        if not self._answered:
            return
        self._answered = False
        self._rest.set()
        if self._live:
            self._screen.write("\n" + PROMPT)


async def run_chat(config: Config, link: TerminalClient) -> None:
    """Chat on this process's standard input and output. Raises CommandFailed."""
    is_live = sys.stdin.isatty() and sys.stdout.isatty()
    lines = read_lines(sys.stdin.fileno())
    chat = TerminalChat(link, lines, sys.stdout, files=config.home / "terminal", live=is_live)
    await chat.run()
