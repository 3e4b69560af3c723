"""/new, /status, /stop and /bootstrap: commands about the conversation in which they are sent."""

import anyio

from bus.commands.context import CommandContext
from bus.context import BusContext
from bus.conversation.conversations import Conversations

STOP_WAIT_S = 4.5
"""How long /stop waits for the end of the turn, seconds.

It takes that long only if the agent's server does not respond.
"""


class ConversationCommands:
    """Commands about the conversation in which they are sent."""

    def __init__(self, bus: BusContext, conversations: Conversations) -> None:
        self._store = bus.stores.conversations
        self._conversations = conversations

    async def new(self, context: CommandContext) -> str:
        """Start a new thread. Running and queued messages are still answered in the old one."""
        await self._conversations.start_new_thread(context.row)
        return context.texts.new_done

    async def status(self, context: CommandContext) -> str:
        """Show the thread of the conversation."""
        found = await self._store.find(context.row.key)
        if found is None or found.thread_id is None:
            return context.texts.status_none
        lines = [context.texts.status_thread.format(thread_id=found.thread_id)]
        if found.taken_over_by is not None:
            lines.append(context.texts.status_taken_over)
        return "\n".join(lines)

    async def stop(self, context: CommandContext) -> str:
        """Stop the running turn. Replies after the turn's last message, so that nothing follows "Stopped."."""
        stopped = self._conversations.stop(context.row, context.inbound)
        with anyio.move_on_after(STOP_WAIT_S):
            for turn in stopped:
                await turn.control.finished.wait()
        return context.texts.stop_done if stopped else context.texts.stop_nothing

    async def bootstrap(self, context: CommandContext) -> None:
        """Let the agent set itself up. The started turn answers."""
        request = context.argument or context.texts.bootstrap_request
        await self._conversations.start_bootstrap(context.row, context.inbound, request)
