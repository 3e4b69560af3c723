"""The rows of the outbox that a notification becomes. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from bus.messages import (
    ConversationKey,
    OutboundFile,
    OutboundText,
    ReplyTarget,
    decode_outbound,
    encode_outbound,
)
from bus.platform import OutgoingFile
from store.outbox import NewOutboxRow

HEADING = "[You sent this here before the message above]"
"""Heading of notifications in the prompt of the next message."""

PREFIX = "notification:"
"""The beginning of the outbox keys of notifications."""


def message_key(channel: str, key: str, part: int) -> str:
    """Return the outbox key of a part of a message to one chat.

    >>> message_key("slack", "backup-7", 0)
    'notification:slack:backup-7:0'
    """
    return f"{PREFIX}{channel}:{key}:{part}"


def broadcast_key(key: str, conversation: ConversationKey, part: int) -> str:
    """Return the outbox key of a part of a broadcast in a chat."""
    chat = f"{conversation.channel}:{conversation.workspace}:{conversation.chat}"
    return f"{broadcast_prefix(key)}{chat}:{part}"


def broadcast_prefix(key: str) -> str:
    """Return the beginning of the outbox keys of a broadcast."""
    return f"{PREFIX}:{key}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """The chat, topic or person that gets a message. `is_private`: whether only one person and the bot are there."""

    conversation: ConversationKey
    target: ReplyTarget
    is_private: bool

    def text_row(self, outbox_key: str, text: str) -> NewOutboxRow:
        """Return the row of a text that fits one message."""
        body = OutboundText(
            channel=self.conversation.channel,
            reply_target=self.target,
            markdown=text,
            begins_topic=self._begins_topic,
        )
        return self._row(outbox_key, body)

    def file_row(self, outbox_key: str, file: OutgoingFile, *, file_id: str) -> NewOutboxRow:
        """Return the row of a file, which the journal stores as `file_id`."""
        body = OutboundFile(
            channel=self.conversation.channel,
            reply_target=self.target,
            thread_id="",
            path="",
            name=file.name,
            mime=file.mime,
            file_id=file_id,
            begins_topic=self._begins_topic,
        )
        return self._row(outbox_key, body)

    @property
    def _begins_topic(self) -> bool:
        return not (self.is_private or self.conversation.topic)

    def _row(self, outbox_key: str, body: OutboundText | OutboundFile) -> NewOutboxRow:
        return NewOutboxRow(
            key=outbox_key, conversation=self.conversation, body=encode_outbound(body)
        )


def quote_notifications(bodies: Iterable[str]) -> str:
    r"""Return rows of the outbox that people saw, as a quotation for the agent; "" = there are none.

    >>> row = OutboundText(channel="c", reply_target=ReplyTarget(chat="1"), markdown="Backup failed\nat nine")
    >>> quote_notifications([encode_outbound(row)])
    '[You sent this here before the message above]\n> Backup failed\n> at nine'
    """
    shown = [line for body in bodies for line in text_of_row(body).splitlines()]
    return "\n".join([HEADING, *(f"> {line}".rstrip() for line in shown)]) if shown else ""


def text_of_row(body: str) -> str:
    """Return what people see of a row of the outbox; "" = nothing, or there is no row."""
    if not body:
        return ""
    decoded = decode_outbound(body)
    if isinstance(decoded, OutboundFile):
        return f"[{decoded.name}]"
    return decoded.markdown if isinstance(decoded, OutboundText) else ""
