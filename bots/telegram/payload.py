"""Typed access to the Bot API's JSON, and names of people and chats. Pure.

Messages are read from the JSON, not from the SDK's classes. Those lack the fields of a newer Bot API, and refuse a
whole update if a field is missing or has another type.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from bus.characters import clean_name

Json: TypeAlias = Mapping[str, Any]
"""An object of the Bot API."""

UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions that reading malformed JSON may raise."""

_MAX_TIME_S = 253_402_300_799
"""The end of the year 9999, the last year that Python supports."""


def as_object(value: object) -> Json:
    """Return a value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_objects(value: object) -> list[Json]:
    """Return the objects of a list."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_str(value: object) -> str:
    """Return a value if it is a string, else ""."""
    return value if isinstance(value, str) else ""


def as_line(value: object) -> str:
    """Return a short string on one line without control characters; "" for anything else."""
    return clean_name(as_str(value))


def as_int(value: object) -> int | None:
    """Return a value if it is a number, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_time(value: object) -> float | None:
    """Return a Unix time in seconds, or None for any other value.

    >>> as_time(1_790_000_000), as_time(10**18), as_time("now")
    (1790000000.0, None, None)
    """
    seconds = as_int(value)
    return float(seconds) if seconds is not None and 0 < seconds <= _MAX_TIME_S else None


def person_name(user: object) -> str:
    """Return the full name of a person or bot; "" = unknown.

    >>> person_name({"id": 1, "first_name": "Ann", "last_name": "Lee"})
    'Ann Lee'
    """
    names = as_object(user)
    return clean_name(f"{as_str(names.get('first_name'))} {as_str(names.get('last_name'))}")


def chat_name(chat: object) -> str:
    """Return the name of a group or channel, or of the other person in a private chat."""
    names = as_object(chat)
    return as_line(names.get("title")) or as_line(names.get("username")) or person_name(names)


def sender_name(message: Json) -> str:
    """Return the name of a message's sender: the group or channel that writes as itself, or else the person."""
    return chat_name(message.get("sender_chat")) or person_name(message.get("from"))


def origin_name(origin: object) -> str:
    """Return the author of a message that was forwarded or quoted from another chat (MessageOrigin)."""
    said = as_object(origin)
    chat = chat_name(said.get("chat")) or chat_name(said.get("sender_chat"))
    if signature := as_line(said.get("author_signature")) if chat else "":
        chat = f"{chat} ({signature})"
    person = person_name(said.get("sender_user")) or as_line(said.get("sender_user_name"))
    return chat or person or "elsewhere"
