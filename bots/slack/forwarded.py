"""Messages that a person forwarded: Slack puts them beside the text, as attachments. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bots.slack.mrkdwn_parser import parse_mrkdwn
from bots.slack.payload import as_list, as_mapping, as_str
from bots.text.quotations import FORWARDED, quotation


def forwarded(event: Mapping[str, Any]) -> str:
    r"""Return what a person forwarded, as quotations; "" for nothing.

    >>> shared = {"is_share": True, "author_name": "Ann", "text": "See &lt;b&gt;\nand c"}
    >>> forwarded({"attachments": [shared]})
    '[Forwarded]\n> Ann: See <b>\n> and c'
    """
    return "\n\n".join(filter(None, map(_quotation, _shared(event))))


def all_files(event: Mapping[str, Any]) -> Sequence[Any]:
    """Return the files of a message, then those of the messages that it forwards."""
    forwarded = [file for shared in _shared(event) for file in as_list(shared.get("files"))]
    return [*as_list(event.get("files")), *forwarded]


def _shared(event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the attachments that are messages; others are previews of links."""
    for attachment in map(as_mapping, as_list(event.get("attachments"))):
        if attachment.get("is_share") is True or attachment.get("is_msg_unfurl") is True:
            yield attachment


def _quotation(shared: Mapping[str, Any]) -> str:
    words, _ = parse_mrkdwn(as_str(shared.get("text")) or as_str(shared.get("fallback")))
    return quotation(words, as_str(shared.get("author_name")), heading=FORWARDED)
