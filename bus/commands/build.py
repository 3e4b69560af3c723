"""Builds the command handlers and the table that names them."""

from bus.access.intake_stats import IntakeStats
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
from bus.conversation.workers import ConversationWorkers
from bus.outbound.worker import DeliveryWorker
from bus.runs.client import RunClient
from bus.settings.language import LanguageResolver
from bus.settings.resolver import SettingsResolver


def build_commands(
    bus: BusContext,
    *,
    settings: SettingsResolver,
    languages: LanguageResolver,
    stats: IntakeStats,
    delivery: DeliveryWorker,
    workers: ConversationWorkers,
) -> CommandRunner:
    """Return the runner of all commands."""
    stores, runs = bus.stores, RunClient(bus.langgraph)
    conversation = ConversationCommands(conversations=stores.conversations, workers=workers)
    lookups = GatewayCommands(bus.gateway)
    selection = SelectionCommands(
        settings=settings, conversations=stores.conversations, gateway=lookups
    )
    rewind = RewindCommands(
        inbox=stores.inbox,
        conversations=stores.conversations,
        runs=runs,
        workers=workers,
        history=stores.history,
    )
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
        "export": ExportCommand(conversations=stores.conversations, runs=runs).export,
        "stop": conversation.stop,
        "language": LanguageCommand(settings=settings, languages=languages).language,
        "why": WhyCommand(policies=bus.policies, stats=stats).why,
        "help": _help,
    }
    return CommandRunner(inbox=stores.inbox, delivery=delivery, handlers=handlers)


async def _help(context: CommandContext) -> str:
    return help_text(context.texts)
