"""Gestures: decides which messages a person sent as one, and merges them. Pure.

A long paste that the client splits, a comment with forwards, and photos with a text arrive as several messages.
Messages of one person, in one place, close together, are one gesture in these cases:

| what came before             | what may continue it                       | and so it                     |
|------------------------------|--------------------------------------------|-------------------------------|
| a forward                    | forwards, files, or one text               | waits for the rest, up to 1 s |
| files without words          | files, forwards, or one text               | waits for the rest, up to 1 s |
| files with words             | files, forwards                            | waits for the rest, up to 1 s |
| a file of an album           | the others of the album, and as above      | waits for the rest, up to 1 s |
| a text that the client cut   | the next text                              | waits for the rest, up to 1 s |
| an ordinary text             | forwards, files without words, within 2 s  | starts at once, and again     |
| files or forwards, then text | nothing                                    | starts at once                |

Two ordinary texts are never one gesture. Commands, answers that a run waits for, messages of bots, and replies to
different messages are never part of one either.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bus.inbound.clean import clean_text
from bus.messages import InboundMessage, MessagePart
from bus.runs.uploads import upload_filename

MAX_PARTS = 100
"""Maximum number of messages in a gesture. Telegram's clients forward up to 100 at once."""

MAX_GAP_S = 3.0
"""Maximum time between two parts by the platform's clock, seconds.

After an outage, the messages of several hours arrive at once. The limit is longer than the waits in the table, because
Telegram's clock counts whole seconds.
"""

_TEXT, _CUT, _FORWARD, _FILES, _WORDS_AND_FILES = "t", "c", "f", "m", "w"

_GESTURE = re.compile(r"[fmw]+|c*t?[fm]*|[fm]+c*t?")
"""The table above, as kinds of parts in order. A text may come before or after the forwards and files it is about."""

_HARD_CUT_CHARS = 300
"""Clients split a paste at the last space or line break within this distance of the limit, and drop that character
(Telegram Android). If there is none, they split inside a word."""

_FULL_UNITS = frozenset({4_000, 4_096})
"""Slack's and Telegram's limits, UTF-16 code units. A client that splits at a space sends less, so a text of exactly
this length lost no space."""


def may_be_part(message: InboundMessage) -> bool:
    """Return whether a message can be part of a gesture. Button presses and repeated messages cannot.

    Messages that no person wrote cannot either.
    """
    is_repeated = message.rewind_point is not None
    return not (message.sender.is_bot or message.answers_row or message.origin or is_repeated)


def is_incomplete(message: InboundMessage) -> bool:
    """Return whether to wait for further parts of a message."""
    if not may_be_part(message):
        return False
    if message.parts:
        return _kind(message.parts[-1]) != _TEXT
    return bool(message.album) or _kind(message) != _TEXT


def part_of(message: InboundMessage, came_at: float = 0.0) -> MessagePart:
    """Return a message as a part. `came_at`: when it arrived, Unix seconds."""
    return MessagePart(
        message_id=message.message_id,
        order=message.order,
        at=came_at if message.sent_at is None else message.sent_at,
        text=message.text,
        quoted=message.quoted,
        attachments=message.attachments,
        is_forwarded=message.is_forwarded,
        is_cut=message.is_cut,
        album=message.album,
        edited_at=message.edited_at,
    )


def fits(
    first: InboundMessage,
    parts: Sequence[MessagePart],
    message: InboundMessage,
    *,
    came_at: float,
    gap_s: float = MAX_GAP_S,
) -> bool:
    """Return whether a message belongs to the gesture of `first`, by the same person in the same place.

    `parts`: the parts so far, in any order. `gap_s`: maximum time between the message and the nearest part.
    """
    if _kind(message) == _TEXT and any(_kind(part) == _TEXT for part in parts):
        return False  # The most common case.
    if len(parts) >= MAX_PARTS or message.replies_to not in ((), first.replies_to):
        return False
    if message.album and any(message.album == part.album for part in parts):
        return True
    is_media_album = bool(message.album) and not message.is_forwarded
    is_other_album = is_media_album and any(part.album and not part.is_forwarded for part in parts)
    new = part_of(message, came_at)
    if is_other_album or min(abs(new.at - part.at) for part in parts) > gap_s:
        return False
    return _GESTURE.fullmatch("".join(map(_kind, in_order([*parts, new])))) is not None


def in_order(parts: Iterable[MessagePart]) -> list[MessagePart]:
    """Return parts in the order in which they were sent, regardless of the order of arrival."""
    return sorted(parts, key=lambda part: (part.order, part.at))


def with_parts(message: InboundMessage, parts: Iterable[MessagePart]) -> InboundMessage:
    """Return a message made of these parts, in their order."""
    ordered = in_order(parts)
    labels = _labels(ordered)
    text = ""
    for number, part in enumerate(ordered):
        before = ordered[number - 1] if number else None
        text = _join(text, labels[number], part, before)
    quotations = [
        f"{labels[number]}\n{part.quoted}" if labels[number] and part.is_forwarded else part.quoted
        for number, part in enumerate(ordered)
        if part.quoted
    ]
    return replace(
        message,
        text=clean_text(text),
        quoted=clean_text("\n\n".join(dict.fromkeys(quotations))),
        attachments=tuple(file for part in ordered for file in part.attachments),
        parts=tuple(ordered),
    )


def view_part(message: InboundMessage, message_id: str) -> InboundMessage:
    """Return one part of a gesture as a message. Returns a message without parts unchanged."""
    for part in message.parts:
        if part.message_id == message_id:
            return replace(
                message,
                text=part.text,
                quoted=part.quoted,
                attachments=part.attachments,
                edited_at=part.edited_at,
            )
    return message


def with_edited_part(
    message: InboundMessage, message_id: str, edited: InboundMessage
) -> InboundMessage:
    """Return a gesture with one message edited."""

    def now_says(part: MessagePart) -> MessagePart:
        if part.message_id != message_id:
            return part
        return replace(
            part,
            text=edited.text,
            quoted=edited.quoted,
            attachments=edited.attachments,
            is_cut=edited.is_cut,
            edited_at=edited.edited_at,
        )

    return with_parts(message, map(now_says, message.parts))


def without_part(message: InboundMessage, message_id: str) -> InboundMessage | None:
    """Return a gesture without one message; None if no other message is left."""
    rest = [part for part in message.parts if part.message_id != message_id]
    return with_parts(message, rest) if rest else None


def _kind(part: MessagePart | InboundMessage) -> str:
    if part.is_forwarded:
        return _FORWARD
    # The adapter also attaches the files of the original message. A reply may have no files of its own.
    if part.attachments and not (part.text and part.quoted):
        return _WORDS_AND_FILES if part.text else _FILES
    return _CUT if part.is_cut else _TEXT


def _join(text: str, label: str, part: MessagePart, before: MessagePart | None) -> str:
    words = f"{label} {part.text}" if label and part.text else part.text
    if not text or not words:
        return text or words
    is_rest = before is not None and before.is_cut and not before.is_forwarded
    if is_rest and _was_cut_hard(before.text if before else "", words):
        return text + words
    return f"{text}\n{words}"


def _was_cut_hard(text: str, rest: str) -> bool:
    """Return whether a client split a paste without dropping a space or line break."""
    if text[-1:].isspace() or rest[:1].isspace():
        return True
    is_full = len(text.encode("utf-16-le", "surrogatepass")) // 2 in _FULL_UNITS
    return is_full or not any(char.isspace() for char in text[-_HARD_CUT_CHARS:])


def _labels(parts: Sequence[MessagePart]) -> list[str]:
    """Return the label of each part: the names of its files, if other parts have files too.

    An album's only caption is on its first picture, but belongs to all of them.
    """
    pictured = [part for part in parts if part.attachments]
    captioned = [part for part in pictured if part.text or (part.is_forwarded and part.quoted)]
    if len(pictured) <= 1 or captioned == pictured[:1]:
        return [""] * len(parts)
    return [" ".join(f"[{upload_filename(file)}]" for file in part.attachments) for part in parts]
