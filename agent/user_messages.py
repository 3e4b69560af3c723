"""Tells people's messages from the framework's, and strips the framework's blocks from them. Pure."""

import re

from langchain_core.messages import BaseMessage

FRAMEWORK_TAGS = (
    "available_skills",
    "bootstrap",
    "clarification",
    "current_date",
    "delegation",
    "memory",
    "shell",
    "skill_system",
    "soul",
    "system-reminder",
    "system_reminder",
    "thread_folders",
    "todo_list",
    "trust",
    "uploaded_files",
    "user_profile",
)
"""Tags that are reserved for the framework. In text of people, files and web pages they are escaped."""

SUMMARY = "summary"
PLAN_REMINDER = "todo_reminder"
LOOP_WARNING = "loop_warning"

HUMAN = "human"

_NAMES = frozenset({SUMMARY, PLAN_REMINDER, LOOP_WARNING})
_ADDED = ("uploaded_files", "current_uploads", "attachments", "system-reminder", "current_date")
_BLOCKS = re.compile(
    rf"<({'|'.join((*_ADDED, 'memory'))})>.*?(?:</\1>|\Z)\s*", re.DOTALL | re.IGNORECASE
)


def is_user_message(message: BaseMessage) -> bool:
    """Return whether a person wrote a message. The framework's own human messages are hidden or named.

    >>> from langchain_core.messages import HumanMessage
    >>> is_user_message(HumanMessage("hi")), is_user_message(HumanMessage("so far", name="summary"))
    (True, False)
    """
    # `type` first: this runs for every message of a thread, and isinstance checks of messages are slow.
    return (
        message.type == HUMAN
        and message.name not in _NAMES
        and not message.additional_kwargs.get("hide_from_ui")
    )


def strip_framework_blocks(text: str) -> str:
    r"""Return a person's text without the blocks that the framework added.

    >>> strip_framework_blocks("<uploaded_files>\n- a.pdf\n</uploaded_files>\n\nWhat is <b>this</b>?")
    'What is <b>this</b>?'
    """
    return _BLOCKS.sub("", text).strip()
