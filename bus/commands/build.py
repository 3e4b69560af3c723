"""Builds the command handlers and the table of their names."""

from bus.commands import help_text
from bus.commands.context import CommandContext, CommandHandler
from bus.commands.conversation import ConversationCommands
from bus.commands.export import ExportCommand
from bus.commands.gateway import GatewayCommands
from bus.commands.language import LanguageCommand
from bus.commands.rewind import RewindCommands
from bus.commands.runner import CommandRunner
from bus.commands.selection import SelectionCommands
from bus.commands.why import WhyCommand
from bus.context import BusContext
from bus.conversation.conversations import Conversations


def build_commands(bus: BusContext, conversations: Conversations) -> CommandRunner:
    """Return the runner of all commands."""
    conversation = ConversationCommands(bus, conversations)
    lookups = GatewayCommands(bus.gateway, bus.settings.allowed)
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
        "retry": rewind.retry,
        "undo": rewind.undo,
        "export": ExportCommand(bus).export,
        "stop": conversation.stop,
        "language": LanguageCommand(bus).language,
        "why": WhyCommand(bus).why,
        "help": _help,
    }
    return CommandRunner(bus, handlers)


async def _help(context: CommandContext) -> str:
    return help_text(context.texts)
