"""Quotations of messages that people reply to. Pure."""

from collections.abc import Mapping, Sequence

from bots.feishu.content import (
    MERGE_FORWARD,
    FeishuContent,
    UnsupportedContent,
    message_type,
    read_message,
)
from bots.feishu.json_node import JsonNode
from bots.feishu.people import YOU, People
from bots.text.characters import safe_cut
from bots.text.quotations import FORWARDED, quotation

MAX_OWN_CHARS = 10_000
"""Maximum length of a quotation of the bot, characters. The conversation usually contains the rest."""

_UNREADABLE = "[Not readable here: the message that this one replies to]"


def quote_message(page: Sequence[JsonNode], names: Mapping[str, str]) -> FeishuContent:
    """Return a message as a quotation with its author, and the message's files.

    Args:
        page: The API's response: the message, then the messages inside it. Empty = the API did not return the message.
        names: Names of people by ID; `YOU` for the bot's app.

    >>> sender = {"id": "cli_1", "sender_type": "app"}
    >>> sent = {"msg_type": "text", "sender": sender, "body": {"content": '{"text": "hi"}'}}
    >>> quote_message([JsonNode(sent)], {"cli_1": YOU}).text
    '> You: hi'
    """
    if not page:
        return FeishuContent(text=quotation(_UNREADABLE))
    message = page[0]
    try:
        content = read_message(message, names=names, held=page[1:])
    except UnsupportedContent:
        return FeishuContent(text=quotation(_UNREADABLE))
    author = People(names).author(message["sender"])
    words = _shortened(content.text) if author == YOU else content.text
    if message_type(message) == MERGE_FORWARD:
        words = "\n".join([FORWARDED, *([words] if words else content.files)])
    else:
        words = "\n".join(filter(None, [words, *content.files]))
    return FeishuContent(text=quotation(words, author), attachments=content.attachments)


def _shortened(words: str) -> str:
    if len(words) <= MAX_OWN_CHARS:
        return words
    kept = words[: safe_cut(words, MAX_OWN_CHARS)].rstrip()
    return f"{kept}\n[... {len(words) - len(kept):,} more characters]"
