"""Stage: removes characters that break JSON, SQLite or prompts, and truncates long texts."""

from dataclasses import replace

from bus import characters
from bus.characters import clean_name, replace_surrogates
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
"""Maximum length of a text, characters. It is about 50,000 tokens, more than most models accept in one message."""

MAX_LANGUAGE_CHARS = 35
"""Maximum length of a language tag, characters. RFC 5646 requires support for this length."""


async def clean(context: InboundContext) -> None:
    """Clean a message."""
    context.message = clean_message(context.message)


def clean_message(message: InboundMessage) -> InboundMessage:
    """Return a message without characters that break JSON, SQLite or prompts, and within `MAX_TEXT_CHARS`."""
    target = message.reply_target
    return replace(
        message,
        event_id=_plain(message.event_id),
        message_id=_plain(message.message_id),
        key=_plain_key(message.key),
        reply_target=ReplyTarget(
            chat=_plain(target.chat),
            thread=_plain(target.thread),
            reply_to=_plain(target.reply_to),
            thread_root=_plain(target.thread_root),
            response_url=_plain(target.response_url),
            user=_plain(target.user or message.sender.user_id),
            language=target.language,
            command_prefix=target.command_prefix,
        ),
        sender=Sender(
            user_id=_plain(message.sender.user_id),
            name=clean_name(message.sender.name),
            is_bot=message.sender.is_bot,
            kind=message.sender.kind,
        ),
        text=clean_text(message.text),
        quoted=clean_text(message.quoted),
        language=_plain(message.language)[:MAX_LANGUAGE_CHARS],
        chat_title=clean_name(message.chat_title),
        topic_title=clean_name(message.topic_title),
        replies_to=tuple(_plain(reply) for reply in message.replies_to),
        attachments=tuple(_attachment(file) for file in message.attachments),
    )


def clean_change(change: MessageEdit | MessageDeletion) -> MessageEdit | MessageDeletion:
    """Clean an edit or deletion."""
    ids = replace(
        change,
        event_id=_plain(change.event_id),
        key=_plain_key(change.key),
        message_id=_plain(change.message_id),
    )
    return replace(ids, edited=clean_message(ids.edited)) if isinstance(ids, MessageEdit) else ids


def clean_text(text: str) -> str:
    r"""Return a text without control characters and lone surrogates. A truncated text says so.

    >>> clean_text("a\r\nb\x00\tc\ud800")
    'a\nb\tc\ufffd'
    """
    kept = characters.clean(text[:MAX_TEXT_CHARS])
    if len(text) <= MAX_TEXT_CHARS:
        return kept
    # Write the note in the language of the text, because the agent reads it as part of the text.
    note = messages_for(detect_language(kept)).message_cut
    return f"{kept}\n\n{note.format(length=f'{len(text):,}', kept=f'{MAX_TEXT_CHARS:,}')}"


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
    """Return an ID without NUL and lone surrogates, the only characters that break the store."""
    if word.isascii() and "\x00" not in word:
        return word
    return replace_surrogates(word.replace("\x00", ""))
