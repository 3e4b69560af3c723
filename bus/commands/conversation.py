"""/new, /status, /stop and /bootstrap: what concerns the conversation itself."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bus.commands.context import CommandContext
from bus.messages import InboundMessage
from store.conversations import ConversationStore
from store.inbox import InboxRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Levers:
    """What these commands may do to running conversations.

    Attributes:
        stop: End what runs in the conversation of a command (or of its sender, nearby); whether anything ran.
        renew: Give the conversation of a command a fresh thread; return its id.
        bootstrap: Start a bootstrap turn for a command, with this text.
    """

    stop: Callable[[InboxRow, InboundMessage], bool]
    renew: Callable[[InboxRow], Awaitable[str]]
    bootstrap: Callable[[InboxRow, InboundMessage, str], Awaitable[None]]


class ConversationCommands:
    """Commands about the conversation that they are sent in."""

    def __init__(self, conversations: ConversationStore, levers: Levers) -> None:
        self._conversations = conversations
        self._levers = levers

    async def new(self, call: CommandContext) -> str:
        """Start over in a fresh thread; what runs or waits is still answered, in the old one."""
        await self._levers.renew(call.row)
        return call.texts.new_done

    async def status(self, call: CommandContext) -> str:
        """Say which thread this conversation is."""
        found = await self._conversations.find(call.row.key)
        if found is None or found.thread_id is None:
            return call.texts.status_none
        return call.texts.status_thread.format(thread_id=found.thread_id)

    async def stop(self, call: CommandContext) -> str:
        """End the running answer now."""
        did_run = self._levers.stop(call.row, call.inbound)
        return call.texts.stop_done if did_run else call.texts.stop_nothing

    async def bootstrap(self, call: CommandContext) -> None:
        """Let the agent set itself up; it answers by itself."""
        request = call.argument or call.texts.bootstrap_request
        await self._levers.bootstrap(call.row, call.inbound, request)
