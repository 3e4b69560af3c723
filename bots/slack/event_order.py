"""Handles events that arrive out of order. After a restart, Slack resends unacknowledged events minutes later."""

from collections.abc import Sequence

from bus.bounded import BoundedDict
from bus.messages import ConversationKey, InboundMessage, MessageDeletion

_THREADS = 200
_REPLIES = 20
"""Maximum number of replies to keep per thread. The newest are kept."""

_DELETED = 1_000


class SlackEventOrder:
    """Remembers events that arrive too early: replies before the mention that begins their thread, and deletions."""

    def __init__(self) -> None:
        self._replies = BoundedDict[ConversationKey, tuple[InboundMessage, ...]](_THREADS)
        self._deleted = BoundedDict[tuple[str, str, str], None](_DELETED)

    def keep_reply(self, message: InboundMessage) -> None:
        """Keep a reply that does not address the bot, because an earlier mention may still arrive."""
        if message.replies_to:
            kept = (*self._replies.get(message.key, ()), message)
            self._replies[message.key] = kept[-_REPLIES:]

    def take_replies(self, mention: InboundMessage) -> Sequence[InboundMessage]:
        """Return the kept replies that follow a mention in its thread, in order, and forget them."""
        kept = self._replies.pop(mention.key, ())
        later = [one for one in kept if (one.sent_at or 0.0) > (mention.sent_at or 0.0)]
        return sorted(later, key=lambda one: one.sent_at or 0.0)

    def note_deletion(self, deletion: MessageDeletion) -> None:
        """Remember that a message was deleted."""
        self._deleted[deletion.key.workspace, deletion.key.chat, deletion.message_id] = None

    def is_deleted(self, message: InboundMessage) -> bool:
        """Return whether a message was deleted before it arrived."""
        return (message.key.workspace, message.key.chat, message.message_id) in self._deleted
