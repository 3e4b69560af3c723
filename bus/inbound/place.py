"""Stage: finds the conversation that a message belongs to."""

from typing_extensions import override

from bus.access.expected_replies import ExpectedReplies
from bus.context import BusContext
from bus.inbound.pipeline import InboundContext, Stage
from bus.messages import InboundMessage

RECORDED_S = 1.0
"""How long a reply to an unknown message waits for sends in progress to its chat: it may answer one of them."""


class PlaceStage(Stage):
    """Assigns plain answers to the question they answer, and recognizes replies to the bot's conversations.

    The topic itself is settled in the commit, by the first known message of `replies_to`.
    """

    def __init__(self, bus: BusContext, expected: ExpectedReplies) -> None:
        self._expected = expected
        self._topics = bus.stores.topics
        self._conversations = bus.stores.conversations
        self._delivery = bus.delivery

    @override
    async def __call__(self, context: InboundContext) -> None:
        if context.command is None:
            context.message = self._expected.assign(context.message)
        message = context.message
        if not message.replies_to:
            return
        is_known = await self._is_known(message)
        if not is_known:
            key = message.key
            await self._delivery.wait_recorded(
                key.channel, message.reply_target.chat, within_s=RECORDED_S
            )
        if not (message.is_private or message.is_addressed):
            context.is_known_reply = (
                is_known or await self._is_known(message) or await self._is_in_conversation(message)
            )

    async def _is_known(self, message: InboundMessage) -> bool:
        """Return whether a message replies to one that holds a conversation together."""
        for message_id in message.replies_to:
            if await self._topics.find_topic(message.key, message_id) is not None:
                return True
        return False

    async def _is_in_conversation(self, message: InboundMessage) -> bool:
        return bool(message.key.topic) and await self._conversations.find(message.key) is not None
