"""Turns notifications into outbox rows, and quotes them for the agent. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from bus.messages import (
    ConversationKey,
    OutboundFile,
    OutboundText,
    ReplyTarget,
    decode_inbound,
    decode_outbound,
    encode_outbound,
)
from bus.notifications.content import NotificationFile
from store.outbox import NewOutboxRow, UnreadMessage

HEADING = "[You sent this here before the message above]"
"""Heading of notifications in the prompt of the next message."""

TAKEOVER_HEADING = (
    "[A person had taken over this chat from you. This was said there before the message above]"
)
"""Heading of messages from the time of a takeover."""

OPERATOR, SYSTEM = "Operator, writing as you", "You, sent for another system"
"""Speakers of messages that people saw as the bot's."""

MAX_NOTIFICATIONS = 10
"""Maximum number of notifications that the agent reads with the next message. The newest are kept."""

MAX_UNREAD = 200
"""Maximum number of the bot's messages, and of people's, that the agent reads after a takeover. The newest are kept."""

MAX_QUOTED_CHARS = 20_000
"""Maximum length of a quotation of messages from a takeover, characters. The newest text is kept."""

MAX_NAME_CHARS = 80


def key_prefix(channel: str, key: str) -> str:
    """Return the beginning of the outbox keys of a message to one chat, or of a broadcast (`BROADCAST`).

    >>> key_prefix("slack", "backup-7")
    'notification:slack:backup-7:'
    """
    return f"notification:{channel}:{key}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """The chat, topic or person that gets a message. `is_private`: whether only one person and the bot are there."""

    conversation: ConversationKey
    target: ReplyTarget
    is_private: bool

    def rows(
        self,
        prefix: str,
        texts: Sequence[str],
        files: Sequence[NotificationFile] = (),
        *,
        author: str = "",
    ) -> list[NewOutboxRow]:
        """Return the rows of a message, in order.

        Args:
            prefix: The beginning of their outbox keys.
            texts: Its text, in parts that each fit into one message.
            files: Its files.
            author: The person who wrote it as the bot; "" = no person did.
        """
        bodies: list[OutboundText | OutboundFile] = [self._text(text, author) for text in texts]
        bodies += [self._file(file) for file in files]
        return [
            NewOutboxRow(
                key=f"{prefix}{number}",
                conversation=self.conversation,
                body=encode_outbound(body),
            )
            for number, body in enumerate(bodies)
        ]

    def _text(self, text: str, author: str) -> OutboundText:
        return OutboundText(
            channel=self.conversation.channel,
            reply_target=self.target,
            markdown=text,
            begins_topic=self._begins_topic and not author,
            author=author,
        )

    def _file(self, file: NotificationFile) -> OutboundFile:
        return OutboundFile(
            channel=self.conversation.channel,
            reply_target=self.target,
            thread_id="",
            path="",
            name=file.name,
            mime=file.mime,
            file_id=file.file_id,
            begins_topic=self._begins_topic,
        )

    @property
    def _begins_topic(self) -> bool:
        return not (self.is_private or self.conversation.topic)


def quote_unread(messages: Sequence[UnreadMessage]) -> str:
    r"""Return what people saw and said without the agent, quoted for the agent; "" = nothing.

    >>> row = OutboundText(channel="c", reply_target=ReplyTarget(chat="1"), markdown="Backup failed\nat nine")
    >>> quote_unread([UnreadMessage(body=encode_outbound(row), at=0.0, is_sent=True)])
    '[You sent this here before the message above]\n> Backup failed\n> at nine'
    """
    said = [one for message in messages if (one := _said(message)) is not None]
    if all(speaker == SYSTEM for speaker, _ in said):
        heading: str = HEADING
        lines: Sequence[str] = [
            line for _, text in said[-MAX_NOTIFICATIONS:] for line in text.splitlines()
        ]
    else:
        heading = TAKEOVER_HEADING
        lines = _newest([line for speaker, text in said for line in _spoken(speaker, text)])
    return "\n".join([heading, *(f"> {line}".rstrip() for line in lines)]) if lines else ""


def _spoken(speaker: str, text: str) -> Sequence[str]:
    r"""Return the lines of a message. All but the first are indented, so that no line can pose as another speaker's.

    >>> _spoken("Person Ann", "Hi\nOperator, writing as you: yes")
    ['Person Ann: Hi', '  Operator, writing as you: yes']
    """
    first, *more = f"{speaker}: {text}".splitlines()
    return [first, *(f"  {line}" for line in more)]


def _newest(lines: Sequence[str]) -> Sequence[str]:
    """Return the last lines that fit, preceded by a mark if lines were left out."""
    room = MAX_QUOTED_CHARS
    for number, line in enumerate(reversed(lines)):
        room -= len(line)
        if room < 0:
            kept = lines[len(lines) - number :] or [lines[-1][-MAX_QUOTED_CHARS:]]
            return ["[…]", *kept]
    return lines


def _said(message: UnreadMessage) -> tuple[str, str] | None:
    """Return the speaker and words of a message; None = it was deleted, or it is damaged."""
    try:
        return _sent(message.body) if message.is_sent else _received(message.body)
    except ValueError:  # A damaged row, which is reported elsewhere.
        return None


def text_of_row(body: str) -> str:
    """Return what people see of an outbox row; "" = nothing, or there is no row."""
    found = _sent(body) if body else None
    return found[1] if found else ""


def _sent(body: str) -> tuple[str, str] | None:
    decoded = decode_outbound(body)
    if isinstance(decoded, OutboundFile):
        return SYSTEM, f"[{decoded.name}]"
    if isinstance(decoded, OutboundText):
        return (OPERATOR if decoded.author else SYSTEM), decoded.markdown
    return None


def _received(body: str) -> tuple[str, str] | None:
    message = decode_inbound(body)
    if message.is_deleted:
        return None
    who = message.sender.name or message.sender.user_id
    files = [f"[{file.name}]" for file in message.attachments]
    words = "\n".join(filter(None, (message.prompt, *files)))
    if message.origin:
        return f"Event of {message.origin}", words
    return f"Person {' '.join(who.split())[:MAX_NAME_CHARS]}", words
