"""Cards as JSON 2.0. Pure.

The platform refuses properties it does not know, so a card holds only what it needs: `update_multi` (without it
a card cannot be patched), one Markdown element, while the agent works one small grey line, and buttons.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bus.characters import clean_outbound
from bus.messages import Button

Card = Mapping[str, object]
Element = Mapping[str, object]

TEXT_ELEMENT_ID = "answer"
"""Id of the element whose text streams: letters, digits and underscores, a letter first."""

TOKEN_FIELD = "token"  # noqa: S105 - a field's name
PRIVATE_FIELD = "private"
"""What comes back with a press: the button's token, and whether the chat has but one person (the platform
does not tell)."""

MAX_BYTES = 30_000
"""Bytes of a card as it is sent, JSON in JSON: the platform takes 30 KB for the whole body of a request."""

_STREAMING_CONFIG: Card = {
    "print_frequency_ms": {"default": 30},
    "print_step": {"default": 5},
    "print_strategy": "fast",
}
"""How clients type what a streaming card adds: 160 characters a second, and what is left at once when more comes.
The platform's own 14 a second are slower than any model."""

_EMPTY = "…"
"""Stands for an answer without text: a card needs an element."""

_STYLES: Mapping[str, str] = {"plain": "default", "primary": "primary", "danger": "danger"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFooter:
    """What stands below a card's text.

    Attributes:
        buttons: In their order.
        private: Whether only one person and the bot are in the chat.
        note: The grey line of a card that still grows.
    """

    buttons: Sequence[Button] = ()
    private: bool = False
    note: str = "⏳"


NO_FOOTER = CardFooter()


def final_card(markdown: str, footer: CardFooter = NO_FOOTER) -> Card:
    """Return the card of a finished answer: exactly its text, and what may be pressed.

    Args:
        markdown: Already in Feishu's dialect (`format.render`).
        footer: What may be pressed. Left out where the card would be too large: they never replace text.

    >>> final_card("hi")["body"]
    {'elements': [{'tag': 'markdown', 'content': 'hi'}]}
    """
    return _fit_buttons([_markdown(markdown)], footer)


def progress_card(markdown: str, footer: CardFooter = NO_FOOTER) -> Card:
    """Return the card of an answer that still grows: what there is, and a grey line below."""
    elements = [_markdown(markdown)] if markdown.strip() else []
    return _fit_buttons([*elements, _note(footer.note)], footer)


def streaming_card(markdown: str, footer: CardFooter = NO_FOOTER) -> Card:
    """Return the card entity of an answer that grows by its text element alone."""
    text = {**_markdown(markdown), "element_id": TEXT_ELEMENT_ID}
    return _fit_buttons(
        [text, _note(footer.note)], footer, streaming_mode=True, streaming_config=_STREAMING_CONFIG
    )


def plain_text_card(text: str, *, final: bool, footer: CardFooter = NO_FOOTER) -> Card:
    """Return a card without any markup, for a text whose Markdown the platform refused."""
    body = {
        "tag": "div",
        "text": {"tag": "plain_text", "content": non_empty(clean_outbound(text))},
    }
    return _fit_buttons([body] if final else [body, _note(footer.note)], footer)


def non_empty(markdown: str) -> str:
    """Return what the text element of a streaming card holds: never nothing."""
    return markdown if markdown.strip() else _EMPTY


def _fit_buttons(elements: list[Element], footer: CardFooter, **config: object) -> Card:
    card = _card([*elements, *_buttons(footer)], config)
    return card if not footer.buttons or _sent_bytes(card) <= MAX_BYTES else _card(elements, config)


def _card(elements: list[Element], config: Mapping[str, object]) -> Card:
    return {
        "schema": "2.0",
        "config": {"update_multi": True, **config},
        "body": {"elements": elements},
    }


def _sent_bytes(card: Card) -> int:
    once = json.dumps(card, ensure_ascii=False, separators=(",", ":"))
    return len(json.dumps(once, ensure_ascii=False).encode("utf-8", "replace"))


def _markdown(content: str) -> Element:
    return {"tag": "markdown", "content": non_empty(content)}


def _note(text: str) -> Element:
    words = {"tag": "plain_text", "content": text, "text_size": "notation", "text_color": "grey"}
    return {"tag": "div", "text": words}


def _buttons(footer: CardFooter) -> list[Element]:
    """Return a row that flows on: JSON 2.0 knows no `action` element."""
    if not footer.buttons:
        return []
    columns = [
        {"tag": "column", "width": "auto", "elements": [_button(button, private=footer.private)]}
        for button in footer.buttons
    ]
    return [{"tag": "column_set", "flex_mode": "flow", "columns": columns}]


def _button(button: Button, *, private: bool) -> Element:
    value = {TOKEN_FIELD: button.token, **({PRIVATE_FIELD: True} if private else {})}
    return {
        "tag": "button",
        "text": {"tag": "plain_text", "content": clean_outbound(button.label)},
        "type": _STYLES[button.style],
        "behaviors": [{"type": "callback", "value": value}],
    }
