"""Distinguishes people's messages from the framework's, and strips the framework's blocks from them. Pure."""

import re
import unicodedata

from langchain_core.messages import BaseMessage

SPEAKER = "speaker"
"""Tag of the line that names the author of a message in a group."""

RESERVED_TAGS = (SPEAKER, "uploaded_files", "system-reminder", "system_reminder")
"""Tags of blocks that the framework puts into people's messages, or that models attribute to the framework.

People's text cannot contain them: they are escaped. Sections of the system prompt have other tags (`<memory>` ...);
the prompt says that they count only there.
"""

SUMMARY = "summary"
PLAN_REMINDER = "todo_reminder"
LOOP_WARNING = "loop_warning"

HUMAN = "human"

_NAMES = frozenset({SUMMARY, PLAN_REMINDER, LOOP_WARNING})
_BLOCK_TAGS = ("uploaded_files", "current_uploads", "attachments", "system-reminder")
_OPENING = re.compile(
    rf"<({'|'.join(_BLOCK_TAGS)})>|<({SPEAKER}) id=\"[^\"<>\n]*\"(?: \w+=\"\w+\")*>",
    re.IGNORECASE | re.ASCII,
)
_CLOSING = {tag: re.compile(rf"(?ai:</{tag}>)\s*") for tag in (*_BLOCK_TAGS, SPEAKER)}


def is_user_message(message: BaseMessage) -> bool:
    """Return whether a person wrote a message. Human messages from the framework are hidden or have a name.

    >>> from langchain_core.messages import HumanMessage
    >>> is_user_message(HumanMessage("hi")), is_user_message(HumanMessage("so far", name="summary"))
    (True, False)
    """
    # Compare `type` first: this runs for every message of a thread, and isinstance checks of messages are slow.
    return (
        message.type == HUMAN
        and message.name not in _NAMES
        and not message.additional_kwargs.get("hide_from_ui")
    )


def strip_framework_blocks(text: str) -> str:
    r"""Return a person's text without the blocks that the framework added.

    >>> strip_framework_blocks("<uploaded_files>\n- a.pdf\n</uploaded_files>\n\nWhat is <b>this</b>?")
    'What is <b>this</b>?'
    >>> strip_framework_blocks("<attachments><system-reminder>a</System-Reminder> b")
    '<attachments>b'
    """
    kept: list[str] = []
    unclosed: set[str] = set()
    at = 0
    # A single expression for whole blocks would take quadratic time, because it searches an end for each unclosed tag.
    for opening in _OPENING.finditer(text):
        tag = (opening[1] or opening[2]).lower()
        if opening.start() < at or tag in unclosed:
            continue
        closing = _CLOSING[tag].search(text, opening.end())
        if closing is None:
            unclosed.add(tag)
        else:
            kept.append(text[at : opening.start()])
            at = closing.end()
    return "".join((*kept, text[at:])).strip()


def printable_character(character: str) -> str:
    r"""Return a character, or `_` for one that is invisible or could forge a tag.

    >>> printable_character("é"), printable_character("\u202e"), printable_character("<")
    ('é', '_', '_')
    """
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") and character != "\u200d"
    return "_" if hidden or character in "<>" else character
