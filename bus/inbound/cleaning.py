"""What platforms deliver, made fit for JSON, SQLite and prompts. Pure."""

import re
from dataclasses import replace

from bus.locales import texts
from bus.locales.script import written_in
from bus.messages import Attachment, Change, ConversationKey, InboundMessage, ReplyTarget, Sender

MAX_TEXT_CHARS = 200_000
"""Longest text that is kept and sent on: about 50,000 tokens, more than most models take in one message."""

MAX_NAME_CHARS = 200
MAX_LANGUAGE_CHARS = 35
"""Longest language tag that RFC 5646 asks everybody to take."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LINE_END = re.compile(r"\r\n?|[\u2028\u2029]")
_SPACE = re.compile(r"\s+")


def cleaned(inbound: InboundMessage) -> InboundMessage:
    """Return the message without what no machine downstream takes, and no longer than `MAX_TEXT_CHARS`."""
    key, place = inbound.key, inbound.place
    return replace(
        inbound,
        event_id=_plain(inbound.event_id),
        message_id=_plain(inbound.message_id),
        key=ConversationKey(
            channel=key.channel,
            workspace=_plain(key.workspace),
            chat=_plain(key.chat),
            topic=_plain(key.topic),
        ),
        place=ReplyTarget(
            chat=_plain(place.chat),
            thread=_plain(place.thread),
            reply_to=_plain(place.reply_to),
            callback=_plain(place.callback),
            user=_plain(place.user),
            language=place.language,
            command_sign=place.command_sign,
        ),
        sender=Sender(
            user_id=_plain(inbound.sender.user_id),
            name=name_of(inbound.sender.name),
            is_bot=inbound.sender.is_bot,
        ),
        text=text_of(inbound.text),
        language=_plain(inbound.language)[:MAX_LANGUAGE_CHARS],
        replies_to=tuple(_plain(message) for message in inbound.replies_to),
        attachments=tuple(_attachment(file) for file in inbound.attachments),
    )


def cleaned_change(change: Change) -> Change:
    """Return the change without what no machine downstream takes."""
    key = change.key
    return Change(
        event_id=_plain(change.event_id),
        key=ConversationKey(
            channel=key.channel,
            workspace=_plain(key.workspace),
            chat=_plain(key.chat),
            topic=_plain(key.topic),
        ),
        message_id=_plain(change.message_id),
        edited=cleaned(change.edited) if change.edited is not None else None,
    )


def text_of(text: str) -> str:
    r"""Return a text without control characters and lone surrogates, cut visibly at the limit.

    >>> text_of("a\r\nb\x00\tc\ud800")
    'a\nb\tc\ufffd'
    """
    kept = text[:MAX_TEXT_CHARS]
    kept = _CONTROL.sub("", _LINE_END.sub("\n", kept))
    kept = _SURROGATE.sub("\ufffd", kept)
    if len(text) <= MAX_TEXT_CHARS:
        return kept
    # In the language that the text itself is written in: the agent reads it as a part of that.
    note = texts(written_in(kept)).message_cut
    return f"{kept}\n\n{note.format(length=f'{len(text):,}', kept=f'{MAX_TEXT_CHARS:,}')}"


def name_of(name: str) -> str:
    r"""Return a name of a person or a file on one line.

    >>> name_of("a\nb\x07")
    'a b'
    """
    return _SPACE.sub(" ", text_of(name[:MAX_NAME_CHARS])).strip()


def _attachment(file: Attachment) -> Attachment:
    return replace(file, name=name_of(file.name), mime=_plain(file.mime), ref=_plain(file.ref))


def _plain(word: str) -> str:
    """Return an id, in which nothing but lone surrogates and NUL can do harm."""
    return _SURROGATE.sub("\ufffd", word.replace("\x00", ""))
