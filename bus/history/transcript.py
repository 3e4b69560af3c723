"""Renders a conversation as a Markdown document, without messages of the framework and tools. Pure."""

from collections.abc import Iterator, Sequence

from bus.history.user_messages import files_of, user_text
from bus.locales import Messages
from bus.runs.stream import (
    CLARIFICATION,
    Message,
    is_in_group,
    is_question,
    is_user_message,
    sender_of,
    text_of,
)

MAX_CHARS = 1_000_000
"""Maximum length of a document, characters. Only the newest part of a longer conversation is included."""

BOT = "Parley"
"""The heading of the bot's messages."""

MAX_NAMES = 20
"""Maximum number of names of tools and files to show per message."""


def transcript(messages: Sequence[Message], texts: Messages, *, person: str) -> str:
    """Return a conversation as Markdown; "" if it has no messages.

    In a group, each person's name is the heading of their messages. `person` is the heading of all other messages.
    """
    names = _headings(messages)
    entries = [
        (names.get(_author(message), person) if is_user_message(message) else BOT, text)
        for message in messages
        if (text := _text(message, texts))
    ]
    if not entries:
        return ""
    kept = _newest(entries)
    head = [f"# {texts.transcript_title}"]
    if kept != entries:
        head.append(f"*{texts.transcript_left_out}*")
    return "\n\n".join([*head, *_with_headings(kept)]) + "\n"


def _headings(messages: Sequence[Message]) -> dict[tuple[str, str], str]:
    """Return the heading of each author (ID and name) in a group.

    It includes the ID if several people have the same name.
    """
    authors = dict.fromkeys(map(_author, filter(is_user_message, messages)))
    named = {author: " ".join((author[1] or author[0]).split()) for author in authors if author[0]}
    ids: dict[str, set[str]] = {BOT.casefold(): {""}}
    for (user_id, _), name in named.items():
        ids.setdefault(name.casefold(), set()).add(user_id)
    return {
        author: name if len(ids[name.casefold()]) == 1 else f"{name} ({author[0]})"
        for author, name in named.items()
    }


def _author(message: Message) -> tuple[str, str]:
    """Return the ID and name of a message's author in a group; ("", "") in private chats."""
    return sender_of(message) if is_in_group(message) else ("", "")


def last_words(
    messages: Sequence[Message], texts: Messages, *, count: int
) -> list[tuple[bool, str]]:
    """Return the last messages of a conversation: whether a person wrote each, and its text.

    >>> from bus.locales.en import ENGLISH
    >>> said = [{"type": "human", "content": "hi"}, {"type": "ai", "content": "Hello."}, {"type": "tool"}]
    >>> last_words(said, ENGLISH, count=2)
    [(True, 'hi'), (False, 'Hello.')]
    """
    found = ((is_user_message(message), _text(message, texts)) for message in messages)
    return [(is_person, text) for is_person, text in found if text][-count:]


def _newest(entries: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the newest messages that fit."""
    kept: list[tuple[str, str]] = []
    room = MAX_CHARS
    for who, text in reversed(entries):
        if room < len(text):
            break
        kept.append((who, text))
        room -= len(text)
    if not kept:
        who, text = entries[-1]
        kept = [(who, text[-MAX_CHARS:])]
    return kept[::-1]


def _with_headings(entries: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the messages with headings; consecutive messages of one author share a heading."""
    speaker = ""
    for who, text in entries:
        yield text if who == speaker else f"## {who}\n\n{text}"
        speaker = who


def _text(message: Message, texts: Messages) -> str:
    kind = str(message.get("type") or "")
    if is_user_message(message):
        names = [str(file.get("filename") or "") for file in files_of(message)]
        return _joined(user_text(message), texts.word_files, names)
    if is_question(message):
        return text_of(message).strip()
    if kind in ("ai", "assistant"):
        calls = [call for call in message.get("tool_calls") or [] if isinstance(call, dict)]
        names = [str(call.get("name") or "") for call in calls if call.get("name") != CLARIFICATION]
        return _joined(text_of(message).strip(), texts.word_used, names)
    return ""


def _joined(text: str, word: str, names: Sequence[str]) -> str:
    known = list(dict.fromkeys(name for name in names if name))[:MAX_NAMES]
    line = f"*{word}: {', '.join(f'`{name}`' for name in known)}*" if known else ""
    return "\n\n".join(part for part in (text, line) if part)
