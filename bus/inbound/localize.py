"""Stage: adds the values that the answer depends on: language, command prefix and the chat's original ID."""

from dataclasses import replace

from typing_extensions import override

from bus.context import BusContext
from bus.inbound.chat_migrations import ChatMigrations
from bus.inbound.pipeline import InboundContext, Stage
from bus.messages import InboundMessage


class LocalizeStage(Stage):
    """Resolves the language of a message's answer and the other values that the answer depends on.

    The person who presses a button did not write its text, so the conversation keeps its language.
    """

    def __init__(self, bus: BusContext, migrations: ChatMigrations) -> None:
        self._languages = bus.languages
        self._migrations = migrations
        self._adapters = bus.adapters

    @override
    async def __call__(self, context: InboundContext) -> None:
        context.message = self.localize(context.message)

    def localize(self, message: InboundMessage) -> InboundMessage:
        """Return a message with these values."""
        target = message.reply_target
        adapter = self._adapters.get(message.key.channel)
        localized = replace(
            target,
            language=(message.answers_row and target.language) or self._languages.resolve(message),
            command_prefix=adapter.capabilities.command_prefix if adapter is not None else "/",
        )
        original_chat = self._migrations.original_chat(message.key)
        return replace(message, reply_target=localized, original_chat=original_chat)
