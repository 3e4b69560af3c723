"""The chat at a terminal: a line editor with history, and the growing answer above it.

Imported only for a person at a terminal, because importing the line editor takes 0.1 s.
"""

import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import assert_never

import anyio
import anyio.to_thread
from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output
from prompt_toolkit.renderer import print_formatted_text
from prompt_toolkit.styles import Style

from bots.terminal.session import (
    TerminalFile,
    TerminalIndicator,
    TerminalLine,
    TerminalMessage,
    TerminalToolStep,
    check_session,
)
from bots.text.markdown import close_open
from bots.text.worker import process_text
from bus.commands import misspelled_command
from bus.errors import unwrapped
from bus.locales import LANGUAGES
from bus.platform import Clock, Disposition
from gateway.terminal.attached_files import AttachedFiles
from gateway.terminal.background import find_background
from gateway.terminal.chat import EXIT_COMMANDS, OpenTerminal, strip_control_characters
from gateway.terminal.completion import (
    SESSIONS_COMMAND,
    TERMINAL_COMMAND_NAMES,
    CommandCompleter,
)
from gateway.terminal.markdown import Background, render_markdown
from gateway.terminal.remote_client import (
    ConnectionChange,
    MessageRefused,
    TerminalClient,
    TerminalClientEvent,
)
from gateway.terminal.session_events import (
    SessionHeartbeat,
    SessionIdle,
    SessionJoined,
    SessionSummary,
)
from gateway.terminal.wrapping import wrap_line

PROMPT = "you> "
GREETING = "Type a message. /help lists commands and keys, /attach sends files."
TERMINAL_HELP = """\
In this terminal:
/attach FILE [WORDS] — sends a file with the next message, or with the words after it
/sessions [NAME] — shows your chats to choose from, or opens the chat with this name
/quit — leaves the chat, like Ctrl-D
Up, Down — choose an answer below a question, or an earlier line
Ctrl-O — shows the tool calls of the last answer with their arguments and results
Alt-Enter — starts a new line
Tab — completes commands and file names
Ctrl-C — clears the line, drops files, stops the answer, or leaves"""
"""Printed above the bot's answer to /help, which lists the commands of every chat."""

OTHER_PROMPT = "you, in another terminal> "

EXIT_HINT = "(to exit, press Ctrl-C again, or Ctrl-D)"
OTHER_TERMINALS = "(this conversation is also open in another terminal; both show all answers)"
EARLIER = "(earlier in this conversation:)"
MAX_EARLIER_CHARS = 1_000
FILES_DROPPED = "(the files are no longer attached)"
NO_STEPS = "(the last answer called no tools)"
NO_SESSIONS = "(there is no other chat yet: /sessions NAME opens one)"
MENU_HINT = "↑ ↓ Enter: choose · Ctrl-C: close · or type"

_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"))

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPIN_S = 0.1
"""Shown while the bot works, with the seconds since it started."""

MAX_HISTORY_BYTES = 1_000_000
"""A history file that is longer than this is cleared, bytes."""

_DIM, _NORMAL = "\x1b[2m", "\x1b[22m"
_REVERSE, _UPRIGHT = "\x1b[7m", "\x1b[27m"

FOLD_LINES, FOLD_CHARS = 8, 1_000
"""A pasted text with more lines or characters is folded: the line shows a placeholder, and the bot gets the text."""

STEP_LINES = 20
"""Lines of a tool's arguments, and of its result, that Ctrl-O shows."""

_ROWS_BELOW = 6
"""Rows of the terminal that the growing answer leaves free for the spinner and the typed text."""

_MENU_ROWS = 6
"""Rows kept free below the line while a command is typed."""


@dataclass(frozen=True, slots=True)
class Menu:
    """Choices below the text: the answers to a question, or sessions.

    Attributes:
        labels: The texts to show, one line each.
        values: The values that `on_choose` gets.
        message: The ID of the message with the question; "" = none.
    """

    labels: Sequence[str]
    values: Sequence[str]
    on_choose: Callable[[str], None]
    message: str = ""
    chosen: int = 0

    def move(self, by: int) -> "Menu":
        """Return the menu with another choice marked. It wraps around."""
        return replace(self, chosen=(self.chosen + by) % len(self.labels))

    def rows(self, columns: int) -> list[str]:
        """Return its rows."""
        rows = []
        for index, label in enumerate(self.labels):
            row = next(iter(wrap_line(strip_control_characters(label), max(2, columns - 3))))
            rows.append(f"{_REVERSE}› {row}{_UPRIGHT}" if index == self.chosen else f"  {row}")
        return [*rows, f"{_DIM}  {MENU_HINT}{_NORMAL}"]


class ChatView:
    """The screen's content: finished messages, which are printed once, and one that is still growing.

    Attributes:
        menu: The choices that are open.
        steps: The tool calls since the last line that was sent.
    """

    def __init__(self, now: Clock = time.monotonic, background: Background = "dark") -> None:
        self._now = now
        self._background = background
        self.menu: Menu | None = None
        self.steps: list[TerminalToolStep] = []
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
                return await process_text(_render_joined, "", event, columns, self._background)
            case TerminalToolStep() | TerminalFile() | TerminalLine() | ConnectionChange():
                return self._line(event, files, columns)
            case TerminalIndicator(state=state):
                (self.start_work if state == "working" else self.end_work)()
            case SessionIdle():
                self.end_work()
                self._growing, self._is_stopped = "", False
            case SessionHeartbeat():
                pass
            case _:
                assert_never(event)
        return ""

    def _line(
        self,
        event: TerminalToolStep | TerminalFile | TerminalLine | ConnectionChange,
        files: Path,
        columns: int,
    ) -> str:
        match event:
            case TerminalToolStep():
                return self._step(event, columns)
            case TerminalFile():
                return strip_control_characters(f"[file] {event.name} -> {files / event.path}")
            case TerminalLine():
                return _wrapped(OTHER_PROMPT + strip_control_characters(event.text), columns)
            case ConnectionChange():
                return f"({event.text})"

    def live_text(self, columns: int, rows: int) -> str:
        """Return the end of the growing answer that fits into a terminal of this size, and the spinner."""
        shown: list[str] = []
        free = max(0, rows - _ROWS_BELOW - (len(self.menu.labels) if self.menu else 0))
        # Wrap long rows here, because the line editor truncates text above its line.
        for line in reversed(self._growing.split("\n")) if self._growing else ():
            if len(shown) >= free:
                break
            shown += reversed(wrap_line(line, max(2, columns - 1)))
        menu = self.menu.rows(columns) if self.menu else []
        return "".join(f"{row}\n" for row in (*reversed(shown[:free]), *menu)) + self._spinner()

    def expanded_steps(self) -> str:
        """Return the tool calls of the last answer with their arguments and results."""
        return "\n".join(map(_expanded, self.steps)) or NO_STEPS

    def _step(self, step: TerminalToolStep, columns: int) -> str:
        if any(known.id == step.id for known in self.steps):
            return ""
        self.steps.append(step)
        line = strip_control_characters(_step_title(step))
        return f"{_DIM}{wrap_line(line, columns)[0] if columns else line}{_NORMAL}"

    def _spinner(self) -> str:
        if not self.is_working:
            return ""
        seconds = self._now() - self._since
        sign = SPINNER[int(seconds / SPIN_S) % len(SPINNER)]
        return f"{_DIM}{sign} {int(seconds)} s, Ctrl-C stops{_NORMAL}\n"

    async def _message(self, message: TerminalMessage, columns: int) -> str:
        if message.id in self._finished:
            if self.menu and self.menu.message == message.id and not message.buttons:
                self.menu = None  # the question was answered elsewhere
            return ""
        if not message.final:
            self.start_work()
            self._growing = await process_text(_render_partial, message.text, self._background)
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
        return await process_text(render_markdown, message.text, columns, self._background)


class InteractiveChat:
    """One conversation between a person at a terminal and the bot.

    Arrow keys choose from the menu below a question while the line is empty. A long pasted text is folded in the line.

    Ctrl-C clears the line, drops attached files or stops the running answer. It exits only if pressed twice on an empty
    line; Ctrl-D exits at once. A pasted text is one message, even with several lines. A single prompt runs all the
    time, because between two prompts the terminal would truncate long lines.

    Args:
        link: The connection to the bot.
        files: The folder to which the paths of received files are relative. It also holds the history.
        greeting: Printed first.
        background: Chooses the colors.
        typed: Text that the person typed before the chat was shown.
        stdin, stdout: The terminal; None = this process's.
    """

    def __init__(
        self,
        link: TerminalClient,
        *,
        files: Path,
        greeting: str = GREETING,
        background: Background = "dark",
        typed: str = "",
        stdin: Input | None = None,
        stdout: Output | None = None,
    ) -> None:
        self._link = link
        self._files = files
        self._greeting = greeting
        self._view = ChatView(background=background)
        self._is_exiting = False
        self._next_session: str | None = None
        self._line_ids: set[str] = set()
        self._folded: dict[str, str] = {}
        self._typed: deque[Callable[[], Awaitable[None]]] = deque()
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
        keys: list[KeyPress] = []
        Vt100Parser(keys.append).feed(typed)
        store_typeahead(self._session.input, keys)

    async def run(self) -> str | None:
        """Chat until the person exits. Return the session to switch to; None = leave.

        Raises:
            CommandFailed: The connection cannot be used.
        """
        self._say(self._greeting)
        with unwrapped():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._show_events)
                tasks.start_soon(self._run_typed)
                tasks.start_soon(self._spin)
                with suppress(EOFError):
                    await self._session.prompt_async(handle_sigint=False)
                tasks.cancel_scope.cancel()
        return self._next_session

    def _prompt(self) -> ANSI:
        size = self._session.output.get_size()
        rows = size.rows - _MENU_ROWS if self._is_command() else size.rows
        return ANSI(self._view.live_text(size.columns, rows) + PROMPT)

    def _is_command(self) -> bool:
        return self._session.default_buffer.text.startswith("/")

    def _is_choosing(self) -> bool:
        return self._view.menu is not None and not self._session.default_buffer.text

    def _key_bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        is_choosing = Condition(self._is_choosing)
        bindings.add("up", filter=is_choosing)(lambda _: self._move(-1))
        bindings.add("down", filter=is_choosing)(lambda _: self._move(1))
        bindings.add("enter", filter=is_choosing)(lambda _: self._choose())
        bindings.add("enter", filter=~is_choosing)(self._on_enter)
        bindings.add("c-o")(lambda _: self._print(self._view.expanded_steps()))
        bindings.add(Keys.BracketedPaste)(self._on_paste)
        bindings.add("backspace", filter=Condition(self._is_behind_fold))(self._on_delete_fold)
        bindings.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
        bindings.add("c-c")(self._on_interrupt)
        return bindings

    def _move(self, by: int) -> None:
        if self._view.menu is not None:
            self._view.menu = self._view.menu.move(by)

    def _choose(self) -> None:
        if (menu := self._view.menu) is not None:
            self._view.menu = None
            self._print(PROMPT + strip_control_characters(menu.labels[menu.chosen]))
            menu.on_choose(menu.values[menu.chosen])

    def _on_paste(self, event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines <= FOLD_LINES and len(text) <= FOLD_CHARS:
            event.current_buffer.insert_text(text)
            return
        size = f"{lines} lines" if lines > 1 else f"{len(text):,} characters"
        fold = f"[pasted text {len(self._folded) + 1}, {size}]"
        self._folded[fold] = text
        event.current_buffer.insert_text(fold)

    def _fold_before_cursor(self) -> str:
        before = self._session.default_buffer.document.text_before_cursor
        return next((fold for fold in self._folded if before.endswith(fold)), "")

    def _is_behind_fold(self) -> bool:
        return bool(self._fold_before_cursor())

    def _on_delete_fold(self, event: KeyPressEvent) -> None:
        event.current_buffer.delete_before_cursor(len(self._fold_before_cursor()))

    def _unfolded(self, line: str) -> str:
        for fold, text in self._folded.items():
            line = line.replace(fold, text)
        return line

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
            buffer.text = self._unfolded(buffer.text)
            buffer.append_to_history()
            self._folded.clear()
        buffer.reset()

    def _on_interrupt(self, event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        elif self._view.menu is not None:
            self._view.menu = None
        elif self._attached:
            self._attached.take()
            self._say(FILES_DROPPED)
        elif self._view.is_working:
            self._submit("/stop")
        elif self._is_exiting:
            event.app.exit()
        else:
            self._is_exiting = True
            self._say(EXIT_HINT)

    def _submit(self, line: str) -> None:
        if line.strip() == "/stop":
            self._view.set_stopped(is_stopped=True)
        self._view.menu = None
        self._say(PROMPT + strip_control_characters(line))
        if line.strip().lower() == "/help":
            self._say(TERMINAL_HELP)
        self._do(partial(self._send_line, self._unfolded(line)))

    def _do(self, work: Callable[[], Awaitable[None]]) -> None:
        """Queue work that waits for the service, which a task does in order. Key bindings run outside of tasks."""
        self._typed.append(work)
        self._has_typed.set()

    async def _run_typed(self) -> None:
        while True:
            await self._has_typed.wait()
            self._has_typed = anyio.Event()
            while self._typed:
                await self._typed.popleft()()

    async def _send_line(self, line: str) -> None:
        word, _, name = line.strip().partition(" ")
        if word.lower() == SESSIONS_COMMAND:
            await self._pick_session(name.strip())
            return
        attached = await self._attached.add(line)
        if attached is not None:
            self._say(strip_control_characters(attached.told))
            if not attached.message:
                return
            line = attached.message
        elif near := misspelled_command(line.partition(" ")[0], TERMINAL_COMMAND_NAMES):
            word = strip_control_characters(line.split()[0])
            self._say(f"(there is no {word}: did you mean /{near}?)")
            return
        if not line.startswith("/"):
            self._start_turn()
        line_id = uuid.uuid4().hex
        self._line_ids.add(line_id)
        try:
            result = await self._link.send(line, self._attached.take(), line_id=line_id)
        except MessageRefused as error:
            self._view.end_work()
            self._say(f"({error})")
            return
        if result not in (Disposition.ACCEPTED, Disposition.QUEUE_FULL):
            self._view.end_work()
            self._say(f"(not accepted: {result})")

    def _start_turn(self) -> None:
        self._view.set_stopped(is_stopped=False)
        self._view.start_work()
        self._view.steps.clear()

    async def _pick_session(self, name: str) -> None:
        """Show the sessions to choose from, or go to the one with this name."""
        if name:
            self._go_to(name)
            return
        try:
            sessions = await self._link.list_sessions()
        except MessageRefused as error:
            self._say(f"({error})")
            return
        if len(sessions) < 2:  # noqa: PLR2004 - this one is among them
            self._say(NO_SESSIONS)
            return
        self._view.menu = Menu(
            [_session_label(one, time.time()) for one in sessions],
            [one.name for one in sessions],
            self._go_to,
        )
        self._session.app.invalidate()

    def _go_to(self, session: str) -> None:
        try:
            check_session(session)
        except ValueError as error:
            self._say(f"({error})")
            return
        self._next_session = session
        self._session.app.exit()

    def _offer(self, message: TerminalMessage) -> None:
        """Show the answers to choose from below a question."""
        self._view.menu = Menu(
            [button.label for button in message.buttons],
            [button.token for button in message.buttons],
            lambda token: self._do(partial(self._press, message.id, token)),
            message.id,
        )

    async def _press(self, message: str, token: str) -> None:
        self._start_turn()
        try:
            response = await self._link.press(token, message)
        except MessageRefused as error:
            response = str(error)
        if response:
            self._view.end_work()
            self._say(f"({response})")

    async def _spin(self) -> None:
        while True:
            await self._view.wait_for_work()
            self._session.app.invalidate()
            await anyio.sleep(SPIN_S)

    async def _show_events(self) -> None:
        async for event in self._link.events():
            if isinstance(event, TerminalLine):
                if event.id in self._line_ids:
                    continue
                self._line_ids.add(event.id)
            columns = self._session.output.get_size().columns
            if text := await self._view.show(event, self._files, columns):
                self._print(text)
                if isinstance(event, TerminalMessage) and event.buttons:
                    self._offer(event)
            self._session.app.invalidate()

    def _say(self, text: str) -> None:
        """Print a text of the terminal itself, wrapped between words."""
        self._print(_wrapped(text, self._session.output.get_size().columns))

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


async def run_sessions(
    open_terminal: OpenTerminal, session: str, files: Path, environ: Mapping[str, str]
) -> None:
    """Chat at this process's terminal in one session after another. Raises CommandFailed."""
    background, typed = await anyio.to_thread.run_sync(find_background, environ)
    following: str | None = session
    greeting = GREETING
    while following is not None:
        async with open_terminal(following) as link:
            chat = InteractiveChat(
                link, files=files, greeting=greeting, background=background, typed=typed
            )
            following = await chat.run()
        greeting, typed = f"(chat {following})", ""


def _wrapped(text: str, columns: int) -> str:
    """Return a text with its lines wrapped between words; 0 columns = as it is."""
    if not columns:
        return text
    rows = (row for line in text.split("\n") for row in wrap_line(line, columns, cut_words=False))
    return "\n".join(rows)


def _step_title(step: TerminalToolStep) -> str:
    return f"🔧 {step.title.replace('`', '')}{' (failed)' if step.failed else ''}"


def _expanded(step: TerminalToolStep) -> str:
    """Return a tool call with the beginnings of its arguments and result."""
    parts = [strip_control_characters(_step_title(step))]
    for text in (step.arguments, step.result):
        lines = strip_control_characters(text).split("\n")
        shown = [f"  {line}" for line in lines[:STEP_LINES]]
        if len(lines) > STEP_LINES:
            shown.append(f"{_DIM}  … {len(lines) - STEP_LINES} more lines{_NORMAL}")
        parts.append("\n".join(shown))
    return f"\n{_DIM}  →{_NORMAL}\n".join(["\n".join(parts[:2]), parts[2]])


def _session_label(session: SessionSummary, now: float) -> str:
    """Return the line of a session in the menu.

    >>> _session_label(SessionSummary(name="main", last_words="Done.", used_at=0), 7_200)
    'main  2 h ago  Done.'
    """
    ago_s = max(0, int(now - session.used_at))
    size, unit = next((one for one in _AGES if ago_s >= one[0]), (1, "s"))
    return f"{session.name}  {ago_s // size} {unit} ago  {session.last_words}".rstrip()


def _render_joined(_: str, joined: SessionJoined, columns: int, background: Background) -> str:
    """Return the text for a person who joins a session: about other terminals, and the last messages."""
    lines = [_wrapped(OTHER_TERMINALS, columns)] if joined.others else []
    if joined.earlier:
        lines.append(EARLIER)
    for message in joined.earlier:
        text = message.text
        if len(text) > MAX_EARLIER_CHARS:
            text = f"{text[:MAX_EARLIER_CHARS]}…"
        words = _wrapped(PROMPT + strip_control_characters(text), columns)
        lines.append(words if message.is_person else render_markdown(text, columns, background))
    return "\n".join(lines)


def _render_partial(markdown: str, background: Background) -> str:
    return render_markdown(close_open(markdown), 0, background)


def _history(folder: Path) -> FileHistory:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "history"
    if file.exists() and file.stat().st_size > MAX_HISTORY_BYTES:
        file.unlink()
    file.touch(mode=0o600)
    return FileHistory(str(file))
