"""Runs commands: finds a command's handler, and stores and sends its answer."""

from collections.abc import Mapping

from bus.commands import ParsedCommand, help_text
from bus.commands.context import CommandContext, CommandDocument, CommandHandler, CommandReply
from bus.commands.conversation import ConversationCommands
from bus.commands.export import ExportCommand
from bus.commands.gateway import GatewayCommands
from bus.commands.language import LanguageCommand
from bus.commands.rewind import RewindCommands
from bus.commands.schedule import ScheduleCommand
from bus.commands.selection import SelectionCommands
from bus.commands.timezone import TimezoneCommand
from bus.commands.usage import UsageCommand
from bus.commands.why import WhyCommand
from bus.context import BusContext
from bus.conversation.conversations import Conversations
from bus.messages import InboundMessage
from bus.outbound.rows import document_row, text_rows
from bus.outbound.split import split_text
from bus.platform import SupportsButtons
from bus.schedules.scheduler import Scheduler
from store.inbox import InboxRow

NEED_AGENT = frozenset({"bootstrap", "new", "retry", "undo"})
"""Commands that start turns or change the thread. They are refused while a person has taken over the conversation."""


class CommandRunner:
    """Runs commands. Each answers with one message, or starts a turn that answers.

    Args:
        handlers: The handlers of all `COMMAND_NAMES`, by name.
    """

    def __init__(self, bus: BusContext, handlers: Mapping[str, CommandHandler]) -> None:
        self._inbox = bus.stores.inbox
        self._delivery = bus.delivery
        self._handlers = handlers

    async def run(
        self, row: InboxRow, inbound: InboundMessage, command: ParsedCommand | None
    ) -> None:
        """Run the command of an inbox row and finish the row. Raises StoreError.

        `command`: None if this version does not know the command.
        """
        target = inbound.reply_target
        answer: str | CommandReply | CommandDocument | None
        if command is None:
            answer = help_text(target.texts)
        elif command.is_misspelled:
            meant = f"{target.command_prefix}{command.name}"
            answer = target.texts.command_near.format(command=meant)
        elif command.name in NEED_AGENT and row.taken_over_by is not None:
            answer = target.texts.taken_over_command
        else:
            context = CommandContext(argument=command.argument, row=row, inbound=inbound)
            answer = await self._handlers[command.name](context)
        if answer is not None:
            await self._answer(row, inbound, answer)

    async def fail(self, row: InboxRow, inbound: InboundMessage) -> None:
        """Finish the row of a command that could not be run, and notify the person. Raises StoreError."""
        await self._answer(row, inbound, inbound.reply_target.texts.command_failed, dead=True)

    async def _answer(
        self,
        row: InboxRow,
        inbound: InboundMessage,
        answer: str | CommandReply | CommandDocument,
        *,
        dead: bool = False,
    ) -> None:
        if isinstance(answer, CommandDocument):
            rows = [document_row(row, inbound, name=answer.name, content=answer.content)]
        else:
            adapter = self._delivery.adapter(row.key.channel)
            reply = answer if isinstance(answer, CommandReply) else CommandReply(text=answer)
            parts = await split_text(adapter, reply.text)
            buttons = reply.buttons if isinstance(adapter, SupportsButtons) else ()
            rows = text_rows(row, inbound, parts, buttons)
        try:
            await self._inbox.finish_command(row.id, rows, dead=dead)
        finally:  # A failed commit may have stored them.
            self._delivery.notify(row.key)


def build_commands(
    bus: BusContext, conversations: Conversations, scheduler: Scheduler
) -> CommandRunner:
    """Return the runner of all commands."""
    conversation = ConversationCommands(bus, conversations)
    lookups = GatewayCommands(bus)
    selection = SelectionCommands(bus, lookups)
    rewind = RewindCommands(bus, conversations)
    handlers: dict[str, CommandHandler] = {
        "bootstrap": conversation.bootstrap,
        "new": conversation.new,
        "status": conversation.status,
        "models": lookups.models,
        "model": selection.model,
        "agent": selection.agent,
        "skills": selection.skills,
        "memory": lookups.memory,
        "forget": lookups.forget,
        "usage": UsageCommand(lookups).usage,
        "schedule": ScheduleCommand(bus, scheduler).schedule,
        "retry": rewind.retry,
        "undo": rewind.undo,
        "export": ExportCommand(bus).export,
        "stop": conversation.stop,
        "language": LanguageCommand(bus).language,
        "timezone": TimezoneCommand(bus).timezone,
        "why": WhyCommand(bus).why,
        "help": _help,
    }
    return CommandRunner(bus, handlers)


async def _help(context: CommandContext) -> str:
    return help_text(context.texts)
