"""The chat at a terminal: a line editor with history, and the growing answer above it.

Imported only for a person at a terminal, because importing the line editor takes 0.1 s.
"""

import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import assert_never

import anyio
from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from prompt_toolkit.renderer import print_formatted_text
from prompt_toolkit.styles import Style

from bots.terminal.session import TerminalFile, TerminalIndicator, TerminalMessage
from bots.text.markdown import close_open
from bots.text.worker import process_text
from bus.commands import misspelled_command
from bus.errors import unwrapped
from bus.locales import LANGUAGES
from bus.platform import Clock, Disposition
from gateway.terminal.attached_files import AttachedFiles
from gateway.terminal.chat import EXIT_COMMANDS, strip_control_characters
from gateway.terminal.completion import TERMINAL_COMMAND_NAMES, CommandCompleter
from gateway.terminal.markdown import render_markdown
from gateway.terminal.remote_client import (
    ConnectionChange,
    MessageRefused,
    TerminalClient,
    TerminalClientEvent,
)
from gateway.terminal.session_events import SessionHeartbeat, SessionIdle, SessionJoined
from gateway.terminal.wrapping import wrap_line

PROMPT = "you> "
GREETING = "Type a message. /help lists the commands, /attach sends a file, /quit exits."
TERMINAL_HELP = """\
In this terminal:
/attach FILE [WORDS] — sends a file with the next message, or with the words after it
/quit — leaves the chat, like Ctrl-D
Alt-Enter — starts a new line
Tab — completes commands and file names
Ctrl-C — clears the line, drops files, stops the answer, or leaves"""
"""Printed above the bot's answer to /help, which lists the commands of every chat."""

EXIT_HINT = "(to exit, press Ctrl-C again, or Ctrl-D)"
OTHER_TERMINALS = "(this conversation is also open in another terminal; both show all answers)"
EARLIER = "(earlier in this conversation:)"
MAX_EARLIER_CHARS = 1_000
FILES_DROPPED = "(the files are no longer attached)"

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPIN_S = 0.1
"""Shown while the bot works, with the seconds since it started."""

MAX_HISTORY_BYTES = 1_000_000
"""A history file that is longer than this is cleared, bytes."""

_DIM, _NORMAL = "\x1b[2m", "\x1b[22m"
_ROWS_BELOW = 6
"""Rows of the terminal that the growing answer leaves free for the spinner and the typed text."""

_MENU_ROWS = 6
"""Rows kept free below the line while a command is typed."""


class ChatView:
    """The screen's content: finished messages, which are printed once, and one that is still growing."""

    def __init__(self, now: Clock = time.monotonic) -> None:
        self._now = now
        self._since = 0.0
        self._is_stopped = False
        self._working = anyio.Event()
        self._growing = ""
        self._finished: set[str] = set()
        self._last_text = ""

    @property
    def is_working(self) -> bool:
        """Whether the bot is working."""
        return self._working.is_set()

    def start_work(self) -> None:
        """Record that the bot is working. Late output of a stopped answer does not count."""
        if not self.is_working and not self._is_stopped:
            self._since = self._now()
            self._working.set()

    def end_work(self) -> None:
        """Record that the bot has nothing to do."""
        if self.is_working:
            self._working = anyio.Event()

    def set_stopped(self, *, is_stopped: bool) -> None:
        """Record that the running answer was stopped, or that there is a new message to answer."""
        self._is_stopped = is_stopped
        if is_stopped:
            self.end_work()

    async def wait_for_work(self) -> None:
        """Wait until the bot is working."""
        await self._working.wait()

    async def show(self, event: TerminalClientEvent, files: Path, columns: int = 0) -> str:
        """Handle an event. Return the text to print, or "". `columns`: see `render_markdown`."""
        match event:
            case TerminalMessage():
                return await self._message(event, columns)
            case SessionJoined():
                return await process_text(_render_joined, "", event, columns)
            case TerminalFile():
                return strip_control_characters(f"[file] {event.name} -> {files / event.path}")
            case TerminalIndicator(state=state):
                (self.start_work if state == "working" else self.end_work)()
            case SessionIdle():
                self.end_work()
                self._growing, self._is_stopped = "", False
            case ConnectionChange():
                return f"({event.text})"
            case SessionHeartbeat():
                pass
            case _:
                assert_never(event)
        return ""

    def live_text(self, columns: int, rows: int) -> str:
        """Return the end of the growing answer that fits into a terminal of this size, and the spinner."""
        shown: list[str] = []
        free = max(0, rows - _ROWS_BELOW)
        # Wrap long rows here, because the line editor truncates text above its line.
        for line in reversed(self._growing.split("\n")) if self._growing else ():
            if len(shown) >= free:
                break
            shown += reversed(wrap_line(line, max(2, columns - 1)))
        return "".join(f"{row}\n" for row in reversed(shown[:free])) + self._spinner()

    def _spinner(self) -> str:
        if not self.is_working:
            return ""
        seconds = self._now() - self._since
        sign = SPINNER[int(seconds / SPIN_S) % len(SPINNER)]
        return f"{_DIM}{sign} {int(seconds)} s, Ctrl-C stops{_NORMAL}\n"

    async def _message(self, message: TerminalMessage, columns: int) -> str:
        if message.id in self._finished:
            return ""
        if not message.final:
            self.start_work()
            self._growing = await process_text(_render_partial, message.text)
            return ""
        self._growing = ""
        self._finished.add(message.id)
        said_already = self._is_stopped and any(
            message.text == texts.stop_done and self._last_text.endswith(texts.stopped)
            for texts in LANGUAGES.values()
        )
        self._last_text = message.text
        if said_already:
            return ""
        return await process_text(render_markdown, message.text, columns)


class InteractiveChat:
    """One conversation between a person at a terminal and the bot.

    Ctrl-C clears the line, drops attached files or stops the running answer. It exits only if pressed twice on an empty
    line; Ctrl-D exits at once. A pasted text is one message, even with several lines. A single prompt runs all the
    time, because between two prompts the terminal would truncate long lines.

    Args:
        link: The connection to the bot.
        files: The folder to which the paths of received files are relative. It also holds the history.
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
        self._attached = AttachedFiles()
        self._session: PromptSession[str] = PromptSession(
            message=self._prompt,
            completer=CommandCompleter(),
            complete_in_thread=True,
            complete_while_typing=Condition(self._is_command),
            reserve_space_for_menu=_MENU_ROWS,
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
                tasks.start_soon(self._spin)
                with suppress(EOFError):
                    await self._session.prompt_async(handle_sigint=False)
                tasks.cancel_scope.cancel()

    def _prompt(self) -> ANSI:
        size = self._session.output.get_size()
        rows = size.rows - _MENU_ROWS if self._is_command() else size.rows
        return ANSI(self._view.live_text(size.columns, rows) + PROMPT)

    def _is_command(self) -> bool:
        return self._session.default_buffer.text.startswith("/")

    def _key_bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        bindings.add("enter")(self._on_enter)
        bindings.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
        bindings.add("c-c")(self._on_interrupt)
        return bindings

    def _on_enter(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        self._is_exiting = False
        if buffer.complete_state is not None and buffer.complete_state.current_completion:
            buffer.complete_state = (
                None  # chosen from the menu: the person can complete it before sending
            )
            return
        if buffer.text.strip().lower() in EXIT_COMMANDS:
            event.app.exit()
            return
        if buffer.text.strip() or self._attached:
            self._submit(buffer.text)
            buffer.append_to_history()
        buffer.reset()

    def _on_interrupt(self, event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        elif self._attached:
            self._attached.take()
            self._print(FILES_DROPPED)
        elif self._view.is_working:
            self._submit("/stop")
        elif self._is_exiting:
            event.app.exit()
        else:
            self._is_exiting = True
            self._print(EXIT_HINT)

    def _submit(self, line: str) -> None:
        if line.strip() == "/stop":
            self._view.set_stopped(is_stopped=True)
        self._print(PROMPT + strip_control_characters(line))
        if line.strip().lower() == "/help":
            self._print(TERMINAL_HELP)
        self._typed.append(line)
        self._has_typed.set()

    async def _send_lines(self) -> None:
        while True:
            await self._has_typed.wait()
            self._has_typed = anyio.Event()
            while self._typed:
                await self._send_line(self._typed.popleft())

    async def _send_line(self, line: str) -> None:
        attached = await self._attached.add(line)
        if attached is not None:
            self._print(strip_control_characters(attached.told))
            if not attached.message:
                return
            line = attached.message
        elif near := misspelled_command(line.partition(" ")[0], TERMINAL_COMMAND_NAMES):
            word = strip_control_characters(line.split()[0])
            self._print(f"(there is no {word}: did you mean /{near}?)")
            return
        if not line.startswith("/"):
            self._view.set_stopped(is_stopped=False)
            self._view.start_work()
        try:
            result = await self._link.send(line, self._attached.take())
        except MessageRefused as error:
            self._view.end_work()
            self._print(f"({error})")
            return
        if result not in (Disposition.ACCEPTED, Disposition.QUEUE_FULL):
            self._view.end_work()
            self._print(f"(not accepted: {result})")

    async def _spin(self) -> None:
        while True:
            await self._view.wait_for_work()
            self._session.app.invalidate()
            await anyio.sleep(SPIN_S)

    async def _show_events(self) -> None:
        async for event in self._link.events():
            columns = self._session.output.get_size().columns
            if text := await self._view.show(event, self._files, columns):
                self._print(text)
            self._session.app.invalidate()

    def _print(self, text: str) -> None:
        """Print above the prompt.

        Does not use the library's usual function, which leaves the terminal's raw mode while it prints: a Ctrl-C at
        this moment would end the program.
        """
        app = self._session.app
        if app.is_running:
            app.renderer.erase()
        print_formatted_text(self._session.output, ANSI(f"{text}\n"), Style([]))
        app.invalidate()


def _render_joined(_: str, joined: SessionJoined, columns: int) -> str:
    """Return the text for a person who joins a session: about other terminals, and the last messages."""
    lines = [OTHER_TERMINALS] if joined.others else []
    if joined.earlier:
        lines.append(EARLIER)
    for message in joined.earlier:
        text = message.text
        if len(text) > MAX_EARLIER_CHARS:
            text = f"{text[:MAX_EARLIER_CHARS]}…"
        words = strip_control_characters(text)
        lines.append(PROMPT + words if message.is_person else render_markdown(text, columns))
    return "\n".join(lines)


def _render_partial(markdown: str) -> str:
    return render_markdown(close_open(markdown))


def _history(folder: Path) -> FileHistory:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "history"
    if file.exists() and file.stat().st_size > MAX_HISTORY_BYTES:
        file.unlink()
    file.touch(mode=0o600)
    return FileHistory(str(file))
