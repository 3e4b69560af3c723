"""Slack mrkdwn as plain text. Pure; linear in the length of the text."""

import re

from bots.text.characters import clean

_TOKEN = re.compile(r"<([^<>]*)>([:,](?=\s|$))?( ?)")


def parse_mrkdwn(text: str, *, bot: str = "") -> tuple[str, bool]:
    """Return what was said, and whether the bot was mentioned.

    Mentions of the bot go, other mentions become readable, links keep label and address, escapes are undone.
    Only Slack's own tokens count: a mention that a user typed letter by letter arrives escaped.

    Args:
        text: The `text` of a message or command.
        bot: The bot's user id; "" = unknown.

    >>> parse_mrkdwn("<@U1BOT> ask <@U2|ann> &lt;b&gt; <https://x.org|x>", bot="U1BOT")
    ('ask @ann <b> x (https://x.org)', True)
    """
    mentioned = False

    def replace(match: re.Match[str]) -> str:
        nonlocal mentioned
        token, stop, gap = match[1], match[2] or "", match[3]
        if bot and token.partition("|")[0] == f"@{bot}":
            mentioned = True
            before = match.string[match.start() - 1 : match.start()] if match.start() else ""
            return gap if before.strip() else ""
        return f"{_readable(token)}{stop}{gap}"

    return _unescape(_TOKEN.sub(replace, clean(text))).strip(), mentioned


def _readable(token: str) -> str:
    target, _, label = token.partition("|")
    match target[:1]:
        case "@" | "#":
            return f"{target[0]}{(label or target[1:]).lstrip('@#')}"
        case "!":
            return label or f"@{target[1:].partition('^')[0]}"
        case _:
            return _link(target, label)


def _link(target: str, label: str) -> str:
    address = target.removeprefix("mailto:").removeprefix("tel:")
    if not label or label in {target, address, address.partition("://")[2]}:
        return address
    return f"{label} ({address})"


def _unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
