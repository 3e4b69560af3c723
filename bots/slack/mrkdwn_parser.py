"""Converts Slack mrkdwn to text with marks for mentions (mentions.py). Pure, linear in the length of the text."""

import re
from datetime import UTC, datetime

from bots.slack.mentions import channel_mark, mention_mark, plain

_TOKEN = re.compile(r"<([^<>]*)>")
_MENTION = re.compile(r"<([@#!][^<>\s][^<>]*)>")


def parse_mrkdwn(text: str) -> str:
    """Convert a `text` field. Keeps labels and URLs of links, and removes escapes.

    Only Slack's own tokens are interpreted, because Slack escapes the characters that people type.

    >>> parse_mrkdwn("Ask &lt;b&gt; of <!here>: <https://x.org|x>")
    'Ask <b> of @here: x (https://x.org)'
    """
    return _unescape(_TOKEN.sub(lambda match: _readable(match[1]), plain(text)))


def parse_mentions(text: str) -> str:
    """Return a standard Markdown text with marks for its mentions, and otherwise unchanged."""
    return _MENTION.sub(lambda match: _readable(match[1]), plain(text))


def parse_plain(text: str) -> str:
    """Convert a plain text, which may contain escapes but no tokens.

    >>> parse_plain("R&amp;D <x>")
    'R&D <x>'
    """
    return _unescape(plain(text))


def link(address: str, label: str) -> str:
    """Return a URL, with its label if the label adds something.

    >>> link("https://x.org", "x.org"), link("mailto:a@x.org", "Ann")
    ('https://x.org', 'Ann (a@x.org)')
    """
    address = address.removeprefix("mailto:").removeprefix("tel:")
    if not label or label in {address, address.partition("://")[2]}:
        return address
    return f"{label} ({address})" if address else label


def date_words(seconds: object, fallback: str) -> str:
    """Return the fallback text of a date, or else the date in UTC. Slack's format depends on the reader.

    >>> date_words(1767225600, ""), date_words("?", "soon")
    ('2026-01-01 00:00 UTC', 'soon')
    """
    if fallback:
        return fallback
    try:
        moment = datetime.fromtimestamp(float(str(seconds)), tz=UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _readable(token: str) -> str:
    target, _, label = token.partition("|")
    match target[:1]:
        case "@":
            return mention_mark(target[1:], label)
        case "#":
            return channel_mark(target[1:], label)
        case "!":
            return _special(target[1:], label)
        case _:
            return link(target, label)


def _special(target: str, label: str) -> str:
    kind, *arguments = target.split("^")
    match kind:
        case "subteam" if arguments:
            return mention_mark(arguments[0], label)
        case "date" if arguments:
            return date_words(arguments[0], label)
        case "here" | "channel" | "everyone" | "group":
            return f"@{(label or kind).lstrip('@')}"
        case _:
            return label or f"@{kind}"


def _unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
