r"""Placeholders for the names of people, channels and user groups. Pure.

The message reader writes marks. `SlackNames` looks up the names and replaces the marks. A mark is enclosed in
noncharacters (U+FDD0, U+FDD1). `plain` removes these from all external text, so that people cannot forge marks.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from bus.characters import clean, clean_name

OWN_NAME = "You"
"""The author of the bot's own messages."""

_OPEN = "\ufdd0"
_CLOSE = "\ufdd1"
_OUTSIDE = re.compile(f"[{_OPEN}{_CLOSE}]")
_MARK = re.compile(rf"{_OPEN}([@#]?)([A-Za-z0-9]+)(?:\|([^{_CLOSE}]*))?{_CLOSE}")
_HALF = re.compile(rf"{_OPEN}[^{_CLOSE}]*\Z")
_ID = re.compile(r"[A-Za-z0-9]{1,64}")
_WITH_ID = re.compile(r"\([A-Za-z0-9]+\)\Z")


def plain(text: str) -> str:
    r"""Return an external text without control characters and without the characters of marks.

    >>> plain("a\x00\ufdd0@U1\ufdd1")
    'a@U1'
    """
    return _OUTSIDE.sub("", clean(text))


def author_mark(user: str) -> str:
    """Return the mark for the author of a message."""
    return _mark("", user)


def mention_mark(target: str, label: str = "") -> str:
    """Return the mark for a mentioned person or user group. `label` is the name from Slack."""
    return _mark("@", target, label)


def channel_mark(channel: str, label: str = "") -> str:
    """Return the mark for a mentioned channel."""
    return _mark("#", channel, label)


def _mark(sign: str, target: str, label: str = "") -> str:
    if not _ID.fullmatch(target):
        return f"{sign}{plain(label or target)}"
    return f"{_OPEN}{sign}{target}{f'|{plain(label)}' if label else ''}{_CLOSE}"


def marked_ids(texts: Iterable[str]) -> list[str]:
    """Return the IDs whose names must be looked up, in order, without duplicates."""
    marks = (match for text in texts for match in _MARK.finditer(text) if not match[3])
    return list(dict.fromkeys(match[2] for match in marks))


def unique_names(names: Mapping[str, str]) -> dict[str, str]:
    """Return names by ID.

    Adds the ID to a name if several people have it, or if it looks like the bot's name or like a name with an ID.

    >>> unique_names({"U1": "Ann", "U2": "ann", "U3": "You", "U4": "", "U5": "Bob"})
    {'U1': 'Ann (U1)', 'U2': 'ann (U2)', 'U3': 'You (U3)', 'U5': 'Bob'}
    """
    cleaned = {key: plain(clean_name(name)) for key, name in names.items()}
    count = Counter([OWN_NAME.casefold(), *(name.casefold() for name in cleaned.values())])
    return {
        key: f"{name} ({key})" if count[name.casefold()] > 1 or _WITH_ID.search(name) else name
        for key, name in cleaned.items()
        if name
    }


def put_names(text: str, names: Mapping[str, str]) -> str:
    """Replace marks with names, or with IDs if the name is unknown.

    >>> put_names(f"{author_mark('U1')}: ask {mention_mark('U2')} in {channel_mark('C5')}", {"U1": "Ann"})
    'Ann: ask @U2 in #C5'
    """

    def named(match: re.Match[str]) -> str:
        sign, target, label = match.groups()
        return f"{sign}{(names.get(target) or label or target).lstrip('@#')}"

    return _MARK.sub(named, text)


def take_bot(text: str, bot: str) -> tuple[str, bool]:
    """Return a text without mentions of the bot, and whether there was one.

    >>> take_bot(f"{mention_mark('U1')}: hello", "U1")
    ('hello', True)
    """
    if not _ID.fullmatch(bot):
        return text.strip(), False
    mention = rf"{_OPEN}@{bot}(?:\|[^{_CLOSE}]*)?{_CLOSE}(?:[:,](?=\s|$))?( ?)"

    def replace(match: re.Match[str]) -> str:
        before = match.string[match.start() - 1 : match.start()] if match.start() else ""
        return match[1] if before.strip() else ""

    without, count = re.subn(mention, replace, text)
    return without.strip(), count > 0


def mentions_people(text: str) -> bool:
    """Return whether a text mentions people or user groups.

    >>> mentions_people(f"ask {mention_mark('U2')}"), mentions_people(f"in {channel_mark('C5')}")
    (True, False)
    """
    return any(match[1] == "@" for match in _MARK.finditer(text))


def cut(text: str, limit: int | None) -> str:
    """Return at most `limit` characters of a text, with an ellipsis if it is cut. Does not split a mark."""
    if limit is None or len(text) <= limit:
        return text
    return f"{_HALF.sub('', text[:limit])}…"
