"""Stage: limits how often bots can talk to each other without a person."""

from collections import OrderedDict

from typing_extensions import override

from bus.context import BusContext
from bus.inbound.pipeline import InboundContext, Stage
from bus.messages import ConversationKey, chat_of
from bus.platform import Disposition

MAX_CHATS_TRACKED = 10_000
"""Chats with bots that are counted; beyond that, the least recent are dropped."""


class BotMessageStage(Stage):
    """Refuses messages of other bots beyond `max_bot_messages` in a row.

    Only mentions in groups count as messages to the bot: bots follow no conversation and run no commands. Any message
    of a person in the chat starts the count over. Counts are in memory: a restart starts them over, too.
    """

    def __init__(self, bus: BusContext) -> None:
        self._policies = bus.policies
        self._counts: OrderedDict[ConversationKey, int] = OrderedDict()

    @override
    async def __call__(self, context: InboundContext) -> Disposition | None:
        message, chat = context.message, chat_of(context.message.key)
        if not message.sender.is_bot:
            self._counts.pop(chat, None)
            return None
        policy = self._policies.get(chat.channel)
        limit = policy.max_bot_messages if policy is not None else 0
        count = self._counts.get(chat, 0) + 1
        is_mention = message.is_addressed and not message.is_private and context.command is None
        if not is_mention or count > limit:
            return Disposition.FROM_BOT
        self._counts[chat] = count
        self._counts.move_to_end(chat)
        if len(self._counts) > MAX_CHATS_TRACKED:
            self._counts.popitem(last=False)
        return None
