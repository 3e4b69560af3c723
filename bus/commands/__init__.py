"""The command table: names, help, handlers. /help is generated from it."""

import logging
import re
from dataclasses import dataclass

from bus.commands.context import CommandContext, CommandDocument, CommandHandler
from bus.commands.conversation import ConversationCommands
from bus.commands.export import ExportCommand
from bus.commands.gateway import GatewayCommands
from bus.commands.language import LanguageCommand
from bus.commands.rewind import RewindCommands
from bus.commands.selection import SelectionCommands
from bus.commands.why import WhyCommand
from bus.locales import LANGUAGES, Messages
from bus.locales.en import ENGLISH
from bus.messages import InboundMessage
from bus.outbound.rows import document_row, text_rows
from bus.outbound.worker import DeliveryWorker
from bus.platform import CommandInfo
from store.inbox import InboxRow, InboxStore

log = logging.getLogger(__name__)

COMMAND_NAMES = (
    *("bootstrap", "new", "status", "models", "model", "agent", "skills", "memory", "forget"),
    *("retry", "undo", "export", "stop", "language", "why", "help"),
)
"""Every command, in the order of /help."""

COMMANDS = tuple(
    CommandInfo(
        name=name,
        help=ENGLISH.help(name),
        translations={
            code: texts.help(name) for code, texts in LANGUAGES.items() if texts is not ENGLISH
        },
    )
    for name in COMMAND_NAMES
)
"""Platforms that list commands list these."""

_COMMAND = re.compile(r"\s*/([a-zA-Z0-9_]+)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A text that is a command."""

    name: str
    argument: str


def parse_command(text: str) -> ParsedCommand | None:
    """Return the command in a text; None for chat, also for paths and unknown words after a slash.

    >>> parse_command("  /Bootstrap  as a reviewer ")
    ParsedCommand(name='bootstrap', argument='as a reviewer')
    >>> [parse_command(text) for text in ("//new", "/mnt/data/x", "/new/x", "/unknown", "new", "/")]
    [None, None, None, None, None, None]
    """
    match = _COMMAND.fullmatch(text)
    if match is None:
        return None
    name = match[1].lower()
    if name not in COMMAND_NAMES:
        return None
    return ParsedCommand(name, (match[2] or "").strip())


def help_text(texts: Messages) -> str:
    """Return the answer to /help."""
    return "\n".join(
        [texts.commands_head, *(f"/{name} — {texts.help(name)}" for name in COMMAND_NAMES)]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Desks:
    """Who handles which commands."""

    threads: ConversationCommands
    lookups: GatewayCommands
    choosing: SelectionCommands
    exchanges: RewindCommands
    export: ExportCommand
    speaking: LanguageCommand
    why: WhyCommand

    def handlers(self) -> dict[str, CommandHandler]:
        """Return the handler of each command, by name."""
        return {
            "bootstrap": self.threads.bootstrap,
            "new": self.threads.new,
            "status": self.threads.status,
            "models": self.lookups.models,
            "model": self.choosing.model,
            "agent": self.choosing.agent,
            "skills": self.choosing.skills,
            "memory": self.lookups.memory,
            "forget": self.lookups.forget,
            "retry": self.exchanges.retry,
            "undo": self.exchanges.undo,
            "export": self.export.export,
            "stop": self.threads.stop,
            "language": self.speaking.language,
            "why": self.why.why,
            "help": _help,
        }


class CommandRunner:
    """Runs commands; each answers with one message."""

    def __init__(self, *, inbox: InboxStore, delivery: DeliveryWorker, desks: Desks) -> None:
        self._inbox = inbox
        self._delivery = delivery
        self._handlers = desks.handlers()

    async def run(self, row: InboxRow, inbound: InboundMessage) -> None:
        """Run the command of an inbox row and finish the row. Raises StoreError."""
        parsed = parse_command(inbound.text)
        if parsed is None:
            # Written by a version that knew this command.
            await self._answer(row, inbound, help_text(inbound.reply_target.texts))
            return
        call = CommandContext(argument=parsed.argument, row=row, inbound=inbound)
        answer = await self._handlers[parsed.name](call)
        if answer is not None:
            await self._answer(row, inbound, answer)

    async def fail(self, row: InboxRow, inbound: InboundMessage) -> None:
        """Finish the row of a command that could not be run, visibly. Raises StoreError."""
        await self._answer(row, inbound, inbound.reply_target.texts.command_failed, dead=True)

    async def _answer(
        self,
        row: InboxRow,
        inbound: InboundMessage,
        answer: str | CommandDocument,
        *,
        dead: bool = False,
    ) -> None:
        if isinstance(answer, CommandDocument):
            owed = [document_row(row, inbound, name=answer.name, content=answer.content)]
        else:
            parts = self._delivery.adapter(row.key.channel).split(answer)
            owed = text_rows(row, inbound, parts)
        await self._inbox.finish(row.id, owed, dead=dead)
        self._delivery.notify(row.key)


async def _help(call: CommandContext) -> str:
    return help_text(call.texts)
