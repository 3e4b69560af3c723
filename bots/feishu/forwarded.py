"""Merged forwarded messages as one transcript. Pure."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from bots.feishu.content import UnsupportedContent, describe_unsupported, parse_content
from bots.feishu.json_node import JsonNode

NAME: Final = "forwarded-messages.md"
"""What the file of them is called."""

REF: Final = "forwarded/"
"""Begins the reference to them; the id of the message that holds them follows."""

_CLOCK_DIGITS: Final = 15


def transcript(items: Iterable[object]) -> str:
    r"""Return what forwarded messages say, in their order.

    People are told apart by numbers: the platform gives no names.

    Args:
        items: `items` of the message's page: itself first, then those it holds.

    >>> said = {"msg_type": "text", "sender": {"id": "ou_1"}, "body": {"content": '{"text": "hi"}'}}
    >>> transcript([{"msg_type": "merge_forward"}, said])
    '**Person 1:**\n\nhi\n'
    """
    people: dict[str, str] = {}
    parts = []
    for item in map(JsonNode, items):
        if item.text("msg_type") == "merge_forward":
            continue  # the one that holds the others, or one inside it, whose own follow
        sender = item["sender"].text("id")
        person = people.setdefault(sender, f"Person {len(people) + 1}")
        parts.append(f"**{person}{_moment(item)}:**\n\n{_words(item)}\n")
    return "\n".join(parts)


def _moment(item: JsonNode) -> str:
    at = item.text("create_time")
    if not (at.isascii() and at.isdigit() and len(at) <= _CLOCK_DIGITS):
        return ""
    try:
        moment = datetime.fromtimestamp(int(at) / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return f", {moment:%Y-%m-%d %H:%M} UTC"


def _words(item: JsonNode) -> str:
    kind, content = item.text("msg_type"), item["body"].raw("content")
    if note := describe_unsupported(kind, content):
        return note
    try:
        content_parts = parse_content(item.text("message_id"), kind, content)
    except UnsupportedContent:
        return "[Not readable here]"
    names = _names(item)
    text = content_parts.text
    for key, name in sorted(names.items(), reverse=True):  # @_user_10 before @_user_1
        text = text.replace(key, f"@{name}")
    files = [f"[{file.kind}: {file.name}]" for file in content_parts.attachments]
    return "\n".join([*([text] if text.strip() else []), *files]) or "[empty]"


def _names(item: JsonNode) -> Mapping[str, str]:
    mentions = [(mention.text("key"), mention.text("name")) for mention in item.items("mentions")]
    return {key: name or "someone" for key, name in mentions if key}
