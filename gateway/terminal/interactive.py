"""The chat at a terminal: a line editor with history, and the growing answer above it.

Imported only for a person at a terminal: the line editor takes 0.1 s.
"""

from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import assert_never

import anyio
from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output

from bots.terminal.session import TerminalFile, TerminalIndicator, TerminalMessage
from bots.text.markdown import close_open
from bots.text.worker import process_text
from bus.errors import unwrapped
from bus.platform import Disposition
from gateway.terminal.chat import EXIT_COMMANDS, strip_control_characters
from gateway.terminal.markdown import render_markdown
from gateway.terminal.remote_client import ConnectionChange, TerminalClient, TerminalClientEvent
from gateway.terminal.session_events import SessionHeartbeat, SessionIdle

PROMPT = "you> "
GREETING = "Type a message. /help lists the commands, /quit exits."
EXIT_HINT = "(to exit, press Ctrl-C again, or Ctrl-D)"
WORKING = "…"
"""Shown while an answer has no text yet."""

MAX_HISTORY_BYTES = 1_000_000
"""A longer history file is started over."""

_DIM, _NORMAL = "\x1b[2m", "\x1b[22m"
_ROWS_BELOW = 5
"""Rows of the terminal that the growing answer leaves for what is typed."""


class ChatView:
    """What is on the screen: finished messages, which are printed once, and one that still grows."""

    def __init__(self) -> None:
        self.is_working = False
        self._growing = ""
        self._finished: set[str] = set()

    async def show(self, event: TerminalClientEvent, files: Path) -> str:
        """Take an event; return the text to print, "" if there is none."""
        match event:
            case TerminalMessage():
                return await self._message(event)
            case TerminalFile():
                return strip_control_characters(f"[file] {event.name} -> {files / event.path}")
            case TerminalIndicator(state=state):
                self.is_working = state == "working"
            case SessionIdle():
                self.is_working, self._growing = False, ""
            case ConnectionChange():
                return f"({event.text})"
            case SessionHeartbeat():
                pass
            case _:
                assert_never(event)
        return ""

    def live_text(self, columns: int, rows: int) -> str:
        """Return the end of the growing answer, as much of it as fits into a terminal of this size."""
        if not self._growing:
            return f"{_DIM}{WORKING}{_NORMAL}\n" if self.is_working else ""
        shown: list[str] = []
        free = rows - _ROWS_BELOW
        for line in reversed(self._growing.split("\n")):
            free -= max(1, -(-len(line) // columns))
            if free < 0:
                break
            shown.append(line)
        return "\n".join(reversed(shown)) + "\n"

    async def _message(self, message: TerminalMessage) -> str:
        if message.id in self._finished:
            return ""
        if not message.final:
            self._growing = await process_text(_render_partial, message.text)
            return ""
        self._growing = ""
        self._finished.add(message.id)
        return await process_text(render_markdown, message.text)


class InteractiveChat:
    """One conversation between a person at a terminal and the bot.

    Ctrl-C clears the line, stops the running answer, and exits only when pressed twice on an empty line; so does
    Ctrl-D once. A pasted text is one message, however many lines it has. One prompt runs all the time, because between
    two of them the terminal would cut long lines.

    Args:
        link: The way to the bot.
        files: The folder to which the paths of received files are relative; the history is kept there.
        stdin, stdout: The terminal; None = this process's.
    """

    def __init__(
        self,
        link: TerminalClient,
        *,
        files: Path,
        stdin: Input | None = None,
        stdout: Output | None = None,
    ) -> None:
        self._link = link
        self._files = files
        self._view = ChatView()
        self._is_exiting = False
        self._typed: deque[str] = deque()
        self._has_typed = anyio.Event()
        self._session: PromptSession[str] = PromptSession(
            message=self._prompt,
            history=_history(files),
            key_bindings=self._key_bindings(),
            erase_when_done=True,
            input=stdin,
            output=stdout,
        )

    async def run(self) -> None:
        """Chat until the person exits. Raises CommandFailed if the connection cannot be used."""
        self._print(GREETING)
        with unwrapped():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._show_events)
                tasks.start_soon(self._send_lines)
                with suppress(EOFError):
                    await self._session.prompt_async(handle_sigint=False)
                tasks.cancel_scope.cancel()

    def _prompt(self) -> ANSI:
        size = self._session.output.get_size()
        return ANSI(self._view.live_text(size.columns, size.rows) + PROMPT)

    def _key_bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        bindings.add("enter")(self._on_enter)
        bindings.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
        bindings.add("c-c")(self._on_interrupt)
        return bindings

    def _on_enter(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        self._is_exiting = False
        if buffer.text.strip().lower() in EXIT_COMMANDS:
            event.app.exit()
            return
        if buffer.text.strip():
            self._submit(buffer.text)
            buffer.append_to_history()
        buffer.reset()

    def _on_interrupt(self, event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        elif self._view.is_working:
            self._submit("/stop")
        elif self._is_exiting:
            event.app.exit()
        else:
            self._is_exiting = True
            self._print(EXIT_HINT)

    def _submit(self, line: str) -> None:
        if not line.startswith("/"):
            self._view.is_working = True
        elif line.strip() == "/stop":
            self._view.is_working = False
        self._print(PROMPT + strip_control_characters(line))
        self._typed.append(line)
        self._has_typed.set()

    async def _send_lines(self) -> None:
        while True:
            await self._has_typed.wait()
            self._has_typed = anyio.Event()
            while self._typed:
                result = await self._link.send(self._typed.popleft())
                if result not in (Disposition.ACCEPTED, Disposition.QUEUE_FULL):
                    self._view.is_working = False
                    self._print(f"(not accepted: {result})")

    async def _show_events(self) -> None:
        async for event in self._link.events():
            if text := await self._view.show(event, self._files):
                self._print(text)
            self._session.app.invalidate()

    def _print(self, text: str) -> None:
        """Print above the prompt."""
        app = self._session.app
        if app.is_running:
            app.renderer.erase()
        print_formatted_text(ANSI(text), output=self._session.output)
        app.invalidate()


def _render_partial(markdown: str) -> str:
    return render_markdown(close_open(markdown))


def _history(folder: Path) -> FileHistory:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "history"
    if file.exists() and file.stat().st_size > MAX_HISTORY_BYTES:
        file.unlink()
    file.touch(mode=0o600)
    return FileHistory(str(file))
