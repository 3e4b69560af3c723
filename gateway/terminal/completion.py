"""Completions for Tab and the menu below the line: chat commands, and paths after `/attach`."""

from collections.abc import Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from typing_extensions import override

from bus.commands import COMMANDS
from gateway.terminal.attached_files import ATTACH_COMMAND

SESSIONS_COMMAND = "/sessions"

TERMINAL_COMMANDS = {
    ATTACH_COMMAND: "Attach a file to the next message",
    SESSIONS_COMMAND: "Choose another chat, or open one by name",
    "/quit": "Leave the chat",
}

TERMINAL_COMMAND_NAMES = ("attach", "sessions", "quit", "exit")
"""The commands that the terminal itself handles."""

_DESCRIPTIONS = {
    **{f"/{command.name}": command.help for command in COMMANDS},
    **TERMINAL_COMMANDS,
}


class CommandCompleter(Completer):
    """Completes the first word after a slash, and the paths of `/attach`."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    @override
    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """Yield completions of the text before the cursor."""
        text = document.text_before_cursor
        if text.startswith(f"{ATTACH_COMMAND} "):
            path = Document(text.removeprefix(f"{ATTACH_COMMAND} ").lstrip())
            yield from self._paths.get_completions(path, complete_event)
        elif text.startswith("/"):
            for name, description in _DESCRIPTIONS.items():
                if name.startswith(text.lower()):
                    yield Completion(name, start_position=-len(text), display_meta=description)
