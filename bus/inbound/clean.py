"""Stage: makes what platforms deliver fit for JSON, SQLite and prompts."""

import re
from dataclasses import replace

from bus.inbound.pipeline import InboundContext
from bus.locales import messages_for
from bus.locales.detection import detect_language
from bus.messages import (
    Attachment,
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    MessageEdit,
    ReplyTarget,
    Sender,
)

MAX_TEXT_CHARS = 200_000
"""Longest text that is kept and sent on: about 50,000 tokens, more than most models take in one message."""

MAX_NAME_CHARS = 200
MAX_LANGUAGE_CHARS = 35
"""Longest language tag that RFC 5646 asks everybody to take."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LINE_END = re.compile(r"\r\n?|[\u2028\u2029]")
_SPACE = re.compile(r"\s+")


async def clean(context: InboundContext) -> None:
    """Clean a message."""
    context.message = clean_message(context.message)


def clean_message(inbound: InboundMessage) -> InboundMessage:
    """Return the message without what no machine downstream takes, and no longer than `MAX_TEXT_CHARS`."""
    place = inbound.reply_target
    return replace(
        inbound,
        event_id=_plain(inbound.event_id),
        message_id=_plain(inbound.message_id),
        key=_plain_key(inbound.key),
        reply_target=ReplyTarget(
            chat=_plain(place.chat),
            thread=_plain(place.thread),
            reply_to=_plain(place.reply_to),
            callback=_plain(place.callback),
            user=_plain(place.user),
            language=place.language,
            command_prefix=place.command_prefix,
        ),
        sender=Sender(
            user_id=_plain(inbound.sender.user_id),
            name=clean_name(inbound.sender.name),
            is_bot=inbound.sender.is_bot,
            kind=inbound.sender.kind,
        ),
        text=clean_text(inbound.text),
        language=_plain(inbound.language)[:MAX_LANGUAGE_CHARS],
        replies_to=tuple(_plain(message) for message in inbound.replies_to),
        attachments=tuple(_attachment(file) for file in inbound.attachments),
    )


def clean_change(change: MessageEdit | MessageDeletion) -> MessageEdit | MessageDeletion:
    """Return an edit or deletion without what nothing downstream takes."""
    ids = replace(
        change,
        event_id=_plain(change.event_id),
        key=_plain_key(change.key),
        message_id=_plain(change.message_id),
    )
    return replace(ids, edited=clean_message(ids.edited)) if isinstance(ids, MessageEdit) else ids


def clean_text(text: str) -> str:
    r"""Return a text without control characters and lone surrogates, cut visibly at the limit.

    >>> clean_text("a\r\nb\x00\tc\ud800")
    'a\nb\tc\ufffd'
    """
    kept = text[:MAX_TEXT_CHARS]
    kept = _CONTROL.sub("", _LINE_END.sub("\n", kept))
    kept = _SURROGATE.sub("\ufffd", kept)
    if len(text) <= MAX_TEXT_CHARS:
        return kept
    # In the language that the text itself is written in: the agent reads it as a part of that.
    note = messages_for(detect_language(kept)).message_cut
    return f"{kept}\n\n{note.format(length=f'{len(text):,}', kept=f'{MAX_TEXT_CHARS:,}')}"


def clean_name(name: str) -> str:
    r"""Return a name of a person or a file on one line.

    >>> clean_name("a\nb\x07")
    'a b'
    """
    return _SPACE.sub(" ", clean_text(name[:MAX_NAME_CHARS])).strip()


def _attachment(file: Attachment) -> Attachment:
    return replace(file, name=clean_name(file.name), mime=_plain(file.mime), ref=_plain(file.ref))


def _plain_key(key: ConversationKey) -> ConversationKey:
    return ConversationKey(
        channel=key.channel,
        workspace=_plain(key.workspace),
        chat=_plain(key.chat),
        topic=_plain(key.topic),
    )


def _plain(word: str) -> str:
    """Return an id, in which nothing but lone surrogates and NUL can do harm."""
    return _SURROGATE.sub("\ufffd", word.replace("\x00", ""))
