"""Cards as JSON 2.0. Pure.

The platform refuses properties it does not know, so a card holds only what it needs:
`update_multi` (without it a card cannot be patched), one Markdown element, and while the agent
works one small grey line.
"""

from collections.abc import Mapping
from typing import Final

Card = Mapping[str, object]

WORKING: Final = "Working on it…"
_EMPTY: Final = "…"
"""Stands for a final answer without text: a card needs an element."""


def answer(markdown: str) -> Card:
    """Return the card of a finished answer: exactly its text.

    Args:
        markdown: Already in Feishu's dialect (`format.render`).

    >>> answer("hi")["body"]
    {'elements': [{'tag': 'markdown', 'content': 'hi'}]}
    """
    return _card([_markdown(markdown if markdown.strip() else _EMPTY)])


def working(markdown: str) -> Card:
    """Return the card of an answer that still grows: what there is, and a grey line below."""
    elements = [_markdown(markdown)] if markdown.strip() else []
    return _card([*elements, _note(WORKING)])


def plain(text: str, *, final: bool) -> Card:
    """Return a card without any markup, for a text whose Markdown the platform refused."""
    body = {
        "tag": "div",
        "text": {"tag": "plain_text", "content": text if text.strip() else _EMPTY},
    }
    return _card([body] if final else [body, _note(WORKING)])


def _card(elements: list[Mapping[str, object]]) -> Card:
    return {"schema": "2.0", "config": {"update_multi": True}, "body": {"elements": elements}}


def _markdown(content: str) -> Mapping[str, object]:
    return {"tag": "markdown", "content": content}


def _note(text: str) -> Mapping[str, object]:
    words = {"tag": "plain_text", "content": text, "text_size": "notation", "text_color": "grey"}
    return {"tag": "div", "text": words}
