"""The terminal chat, for a person at a terminal, or for a script with one answer per line."""

import importlib
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TextIO, assert_never

import anyio

from bots.terminal.session import (
    TerminalFile,
    TerminalIndicator,
    TerminalLine,
    TerminalMessage,
    TerminalToolStep,
)
from bus.commands import misspelled_command
from bus.platform import Disposition
from gateway.config import Config
from gateway.terminal.remote_client import ConnectionChange, TerminalClient, TerminalClientEvent
from gateway.terminal.session_events import SessionHeartbeat, SessionIdle, SessionJoined
from gateway.terminal.stdin import read_lines

EXIT_COMMANDS = ("/quit", "/exit")

INTERACTIVE_MODULE = "gateway.terminal.interactive"
"""Imported only for a person at a terminal, because importing the line editor takes 0.1 s."""


def misspelled_exit(line: str) -> str:
    """Return the exit command that a line misspells by one letter; "" otherwise.

    >>> misspelled_exit("/quitt"), misspelled_exit("/quit"), misspelled_exit("quitt")
    ('/quit', '', '')
    """
    name = misspelled_command(line, [command.removeprefix("/") for command in EXIT_COMMANDS])
    return f"/{name}" if name else ""


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters, which untrusted text could use to control the terminal. Newlines and tabs are kept."""


def strip_control_characters(text: str) -> str:
    r"""Return text without control characters.

    >>> strip_control_characters("a\x1b[2Jb\r\n\tc")
    'a[2Jb\n\tc'
    """
    return _CONTROL.sub("", text).encode("utf-8", "replace").decode()


class BatchChat:
    """Answers lines of a file or pipe. Reads a line after the previous answer, and prints only finished messages.

    Args:
        link: The connection to the bot.
        lines: The messages.
        out: The output for answers.
        files: The folder to which the paths of received files are relative.
    """

    def __init__(
        self, link: TerminalClient, lines: AsyncIterator[str], out: TextIO, *, files: Path
    ) -> None:
        self._link = link
        self._lines = lines
        self._out = out
        self._files = files
        self._done: set[str] = set()
        self._is_answered = False
        self._idle = anyio.Event()

    async def run(self) -> None:
        """Chat until the input ends. Raises CommandFailed if the connection is lost."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._show_events)
            async for line in self._lines:
                if line.strip().lower() in EXIT_COMMANDS:
                    break
                if command := misspelled_exit(line):
                    self._print(f"(there is no {line.strip()}: did you mean {command}?)")
                elif line.strip():
                    await self._say(line)
            tasks.cancel_scope.cancel()

    async def _say(self, line: str) -> None:
        self._is_answered, self._idle = False, anyio.Event()
        result = await self._link.send(line)
        if result in (Disposition.ACCEPTED, Disposition.QUEUE_FULL):
            await self._idle.wait()
        else:
            self._print(f"(not accepted: {result})")

    async def _show_events(self) -> None:
        async for event in self._link.events():
            self._show(event)

    def _show(self, event: TerminalClientEvent) -> None:
        match event:
            case TerminalMessage():
                if event.final and event.id not in self._done:
                    self._done.add(event.id)
                    self._print(event.text.rstrip())
                self._is_answered = self._is_answered or event.final
            case TerminalFile():
                self._print(f"[file] {event.name} -> {self._files / event.path}")
                self._is_answered = True
            case SessionIdle():
                if self._is_answered:
                    self._is_answered = False
                    self._idle.set()
            case (
                TerminalIndicator()
                | TerminalToolStep()
                | TerminalLine()
                | SessionHeartbeat()
                | SessionJoined()
                | ConnectionChange()
            ):
                pass
            case _:
                assert_never(event)

    def _print(self, text: str) -> None:
        self._out.write(strip_control_characters(text) + "\n")
        self._out.flush()


def is_interactive() -> bool:
    """Return whether this process's standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


OpenTerminal = Callable[[str], AbstractAsyncContextManager[TerminalClient]]
"""Attaches to the session with a name."""


async def run_chat(config: Config, open_terminal: OpenTerminal, session: str) -> None:
    """Chat on this process's standard input and output, in one session after another. Raises CommandFailed."""
    files = config.files / "terminal"
    if is_interactive():
        await importlib.import_module(INTERACTIVE_MODULE).run_sessions(
            open_terminal, session, files, config.environment
        )
        return
    async with open_terminal(session) as link:
        await BatchChat(link, read_lines(sys.stdin.fileno()), sys.stdout, files=files).run()
