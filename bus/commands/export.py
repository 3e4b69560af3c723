"""/export: sends the conversation as a file."""

import logging

import anyio
from anyio import to_thread

from bus.commands.context import CommandContext, CommandDocument
from bus.context import BusContext
from bus.errors import AgentThreadNotFound, RunError
from bus.history.transcript import transcript
from bus.runs.stream import messages_in

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0
"""Timeout of a request to the agent's server, seconds."""

EXPORT_FILE_NAME = "conversation.md"


class ExportCommand:
    """Exports the command's conversation."""

    def __init__(self, bus: BusContext) -> None:
        self._conversations = bus.stores.conversations
        self._runs = bus.runs

    async def export(self, context: CommandContext) -> CommandDocument | str:
        """Return the conversation. While a turn runs, this includes what it has written so far."""
        texts = context.texts
        found = await self._conversations.find(context.row.key)
        if found is None or found.thread_id is None:
            return texts.export_nothing
        try:
            with anyio.fail_after(TIMEOUT_S):
                messages = messages_in(await self._runs.get_state(found.thread_id))
        except AgentThreadNotFound:
            return texts.export_nothing
        except (RunError, TimeoutError) as error:
            log.warning("export of a conversation failed: %r", error)
            return texts.export_unreachable
        person = texts.word_person if context.inbound.is_private else texts.word_people
        # A long conversation takes a while, so render it in a worker thread.
        content = await to_thread.run_sync(lambda: transcript(messages, texts, person=person))
        return (
            CommandDocument(name=EXPORT_FILE_NAME, content=content)
            if content
            else texts.export_nothing
        )
