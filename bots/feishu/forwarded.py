"""Messages of the API's pages: one, or forwarded ones as one transcript. Pure."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from bots.feishu.content import (
    ParsedContent,
    UnsupportedContent,
    describe_unsupported,
    parse_content,
)
from bots.feishu.json_node import JsonNode
from bus.messages import Attachment

NAME: Final = "forwarded-messages.md"
"""What the file of them is called."""

REF: Final = "forwarded/"
"""Begins the reference to them; the id of the message that holds them follows."""

MERGE_FORWARD: Final = "merge_forward"
"""The type of a message that holds others."""


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
        if item.text("msg_type") == MERGE_FORWARD:
            continue  # the one that holds the others, or one inside it, whose own follow
        sender = item["sender"].text("id")
        person = people.setdefault(sender, f"Person {len(people) + 1}")
        parts.append(f"**{person}{_moment(item)}:**\n\n{_words(item)}\n")
    return "\n".join(parts)


def _moment(item: JsonNode) -> str:
    at = item.seconds("create_time")
    if at is None:
        return ""
    try:
        moment = datetime.fromtimestamp(at, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return f", {moment:%Y-%m-%d %H:%M} UTC"


def transcript_file(message: JsonNode) -> ParsedContent:
    """Return a message that holds others as a file of them, which is made when it is fetched."""
    ref = f"{REF}{message.text('message_id')}"
    return ParsedContent(attachments=(Attachment(name=NAME, mime="text/markdown", ref=ref),))


def parse_item(item: JsonNode) -> ParsedContent:
    """Return what a message of the API's page says, with readable mentions, and its files."""
    kind, content = item.text("msg_type"), item["body"].raw("content")
    if kind == MERGE_FORWARD:
        return transcript_file(item)
    if note := describe_unsupported(kind, content):
        return ParsedContent(text=note)
    try:
        parsed = parse_content(item.text("message_id"), kind, content)
    except UnsupportedContent:
        return ParsedContent(text="[Not readable here]")
    text = parsed.text
    for key, name in sorted(_names(item).items(), reverse=True):  # @_user_10 before @_user_1
        text = text.replace(key, f"@{name}")
    return ParsedContent(text=text.strip(), attachments=parsed.attachments)


def _words(item: JsonNode) -> str:
    parsed = parse_item(item)
    files = [f"[{file.kind}: {file.name}]" for file in parsed.attachments]
    return "\n".join([*([parsed.text] if parsed.text else []), *files]) or "[empty]"


def _names(item: JsonNode) -> Mapping[str, str]:
    mentions = [(mention.text("key"), mention.text("name")) for mention in item.items("mentions")]
    return {key: name or "someone" for key, name in mentions if key}
