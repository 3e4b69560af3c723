"""Runs commands: finds the handler, stores and sends its answer."""

from collections.abc import Mapping

from bus.commands import help_text, misspelled_command, parse_command
from bus.commands.context import CommandContext, CommandDocument, CommandHandler
from bus.context import BusContext
from bus.messages import InboundMessage
from bus.outbound.rows import document_row, text_rows
from bus.outbound.split import split_text
from store.inbox import InboxRow


class CommandRunner:
    """Runs commands; each answers with one message, or starts a turn that answers.

    Args:
        handlers: By command name; every one of `COMMAND_NAMES`.
    """

    def __init__(self, bus: BusContext, handlers: Mapping[str, CommandHandler]) -> None:
        self._inbox = bus.stores.inbox
        self._delivery = bus.delivery
        self._handlers = handlers

    async def run(self, row: InboxRow, inbound: InboundMessage) -> None:
        """Run the command of an inbox row and finish the row. Raises StoreError."""
        parsed = parse_command(inbound.text)
        if parsed is None:
            target, meant = inbound.reply_target, misspelled_command(inbound.text)
            suggestion = target.texts.command_near.format(command=f"{target.command_prefix}{meant}")
            # Without a near one, it was stored by a version that knew the command.
            await self._answer(row, inbound, suggestion if meant else help_text(target.texts))
            return
        context = CommandContext(argument=parsed.argument, row=row, inbound=inbound)
        answer = await self._handlers[parsed.name](context)
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
            rows = [document_row(row, inbound, name=answer.name, content=answer.content)]
        else:
            adapter = self._delivery.adapter(row.key.channel)
            parts = await split_text(adapter, answer)
            rows = text_rows(row, inbound, parts)
        try:
            await self._inbox.finish_command(row.id, rows, dead=dead)
        finally:  # a commit that failed may have stored them
            self._delivery.notify(row.key)
