"""Stage: finds the conversation that a message belongs to."""

from contextlib import suppress
from dataclasses import replace

from typing_extensions import override

from bus.access.expected_replies import (
    EXPECTED_REPLY_S,
    MAX_EXPECTED,
    ExpectedReplies,
    may_answer_plainly,
)
from bus.bounded import BoundedDict
from bus.context import BusContext
from bus.inbound.pipeline import InboundContext, Stage
from bus.messages import ConversationKey, InboundMessage, chat_of, decode_inbound

RECORDED_S = 1.0
"""How long a reply to an unknown message waits for messages that are being sent, seconds.

It may reply to one of these messages.
"""

MAX_READ = 10_000
"""Maximum number of chats to remember as having their questions read. Other chats are read again."""


class FindConversationStage(Stage):
    """Assigns expected replies to the question's conversation, and recognizes replies to the bot's conversations.

    The commit chooses the topic of the first known message in `replies_to`.
    """

    def __init__(self, bus: BusContext, expected: ExpectedReplies) -> None:
        self._expected = expected
        self._topics = bus.stores.topics
        self._conversations = bus.stores.conversations
        self._delivery = bus.delivery
        self._history = bus.stores.history
        self._owners = bus.stores.owners
        self._policies = bus.policies
        self._now = bus.now
        self._read = BoundedDict[ConversationKey, int](MAX_READ)

    @override
    async def __call__(self, context: InboundContext) -> None:
        if context.joins:
            return
        if context.command is None:
            if may_answer_plainly(context.message):
                await self._read_questions(chat_of(context.message.key))
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
            await self._note_followup(context, is_known=is_known)

    async def _note_followup(self, context: InboundContext, *, is_known: bool) -> None:
        """Determine whether a message without a mention is for the bot, according to `thread_followups`."""
        message = context.message
        is_known = is_known or await self._is_known(message)
        if is_known and await self._is_reply_to_bot(message):
            context.message = replace(message, is_addressed=True)
            return
        if not (is_known or await self._is_in_conversation(message)):
            return
        policy = self._policies.get(message.key.channel)
        followups = policy.followups_in(message.key.chat) if policy is not None else "smart"
        # A message that mentions other people is for them; `decide_access` handles that.
        is_for_bot = followups == "all" and not message.mentions_others
        context.message = replace(message, is_addressed=is_for_bot)
        context.is_known_reply = followups != "mention"

    async def _read_questions(self, chat: ConversationKey) -> None:
        """Expect answers to questions of an earlier process, or of the chat's previous owner. Reads each chat once.

        Raises:
            StoreError: The journal cannot be read.
        """
        since = self._owners.given_up
        if self._read.get(chat) == since:
            return
        now = self._now()
        rows = await self._history.list_open_questions(
            chat, since=now - EXPECTED_REPLY_S, limit=MAX_EXPECTED
        )
        for row in rows:
            with suppress(
                ValueError
            ):  # It cannot be decoded, so people must reply to the question.
                self._expected.expect(
                    decode_inbound(row.body), row.key, age_s=max(0.0, now - row.received_at)
                )
        self._read[chat] = since

    async def _is_known(self, message: InboundMessage) -> bool:
        """Return whether a message replies to a message that belongs to a topic."""
        for message_id in message.replies_to:
            if await self._topics.find_topic(message.key, message_id) is not None:
                return True
        return False

    async def _is_reply_to_bot(self, message: InboundMessage) -> bool:
        """Return whether a message replies to one of the bot's messages: a known message that no person sent.

        Some platforms (Feishu) do not say who wrote the original message.
        """
        replied = message.replies_to[0]
        return (
            self._delivery.adapter(message.key.channel).capabilities.has_replies
            and await self._topics.find_topic(message.key, replied) is not None
            and await self._history.find_by_message(message.key, replied) is None
        )

    async def _is_in_conversation(self, message: InboundMessage) -> bool:
        return bool(message.key.topic) and await self._conversations.find(message.key) is not None
