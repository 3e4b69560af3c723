"""Finds people's messages in a thread, and their text without additions of a framework. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bus.messages import RewindPoint, Sender
from bus.runs.stream import Message, is_steering, is_user_message, sender_of, text_of

PREVIEW_CHARS = 60

_BLOCK_TAGS = (
    *("uploaded_files", "current_uploads", "attachments"),
    *("system-reminder", "current_date", "memory"),
)
"""Tags of the blocks that a framework inserts before a person's words."""

_QUOTED = re.compile(r"^(?:>[^\n]*|\[[^\n]*\])$", re.MULTILINE)
_OPENING = re.compile(f"<({'|'.join(_BLOCK_TAGS)})>")
_CLOSING = {tag: re.compile(rf"</{tag}>\s*") for tag in _BLOCK_TAGS}


def user_text(message: Message) -> str:
    r"""Return a person's own words, without inserted blocks.

    >>> user_text({"content": "<uploaded_files>\n- a.pdf\n</uploaded_files>\n\nWhat is <b>this</b>?"})
    'What is <b>this</b>?'
    """
    return _without_blocks(text_of(message)).strip()


def _without_blocks(text: str) -> str:
    """Return a text without tagged blocks. Takes linear time, even with many unclosed tags."""
    kept: list[str] = []
    unclosed: set[str] = set()
    at = 0
    for opening in _OPENING.finditer(text):
        tag = opening[1]
        if opening.start() < at or tag in unclosed:
            continue
        closing = _CLOSING[tag].search(text, opening.end())
        if closing is None:
            unclosed.add(tag)
        else:
            kept.append(text[at : opening.start()])
            at = closing.end()
    return "".join((*kept, text[at:]))


def last_rewind_point(thread_id: str, messages: Sequence[Message]) -> RewindPoint | None:
    """Return the last message that started a turn and the messages injected into it; None if there is none."""
    added: list[Message] = []
    for message in reversed(messages):
        if not is_user_message(message) or not message.get("id"):
            continue
        if is_steering(message):
            added.insert(0, message)
            continue
        turn = [message, *added]
        user_id, name = sender_of(message)
        return RewindPoint(
            thread_id=thread_id,
            message_id=str(message["id"]),
            text="\n\n".join(user_text(one) for one in turn),
            files=tuple(file for one in turn for file in files_of(one)),
            sender=Sender(user_id=user_id, name=name) if user_id else None,
        )
    return None


def files_of(message: Message) -> list[Mapping[str, Any]]:
    """Return the files of a person's message, as named in the thread's uploads."""
    extra = message.get("additional_kwargs") or {}
    return [file for file in extra.get("files") or [] if isinstance(file, dict)]


def preview(text: str) -> str:
    r"""Return the beginning of a text on one line, without quotations (`bots/text/quotations.py`).

    >>> preview("what  is\nthis\n\n[Forwarded]\n> Ann: hi")
    'what is this'
    >>> preview("> Ann: hi")
    '> Ann: hi'
    >>> preview("word " * 20)
    'word word word word word word word word word word word word…'
    """
    flat = " ".join((_QUOTED.sub("", text).strip() or text).split())
    if len(flat) <= PREVIEW_CHARS:
        return flat
    cut = flat[:PREVIEW_CHARS]
    return f"{cut.rpartition(' ')[0] if ' ' in cut else cut}…".replace(" …", "…")
