"""Cards as JSON 2.0. Pure.

The platform refuses unknown properties, so a card contains only what it needs: `update_multi` (required for patches),
one Markdown element, a small gray line while the agent works, and buttons.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bus.characters import clean_outbound
from bus.messages import Button

Card = Mapping[str, object]
Element = Mapping[str, object]

TEXT_ELEMENT_ID = "answer"
"""ID of the element whose text streams. It may have letters, digits and underscores, and begins with a letter."""

TOKEN_FIELD = "token"  # noqa: S105 - a field name
PRIVATE_FIELD = "private"
"""Keys of a press: the button's token, and whether the chat is private, which the platform does not report."""

MAX_BYTES = 30_000
"""Maximum size of a card as sent (JSON in JSON), bytes. The platform limits the whole request body to 30 KB."""

_STREAMING_CONFIG: Card = {
    "print_frequency_ms": {"default": 30},
    "print_step": {"default": 5},
    "print_strategy": "fast",
}
"""How clients animate appended text: 160 characters a second, and the rest at once when more text arrives.

The platform's default of 14 a second is slower than any model.
"""

_EMPTY = "…"
"""Text of an answer without text, because a card needs an element."""

_STYLES: Mapping[str, str] = {"plain": "default", "primary": "primary", "danger": "danger"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFooter:
    """The part below a card's text.

    Attributes:
        buttons: The buttons, in order.
        private: Whether the chat contains only one person and the bot.
        note: The gray line of a growing card.
    """

    buttons: Sequence[Button] = ()
    private: bool = False
    note: str = "⏳"


NO_FOOTER = CardFooter()


def final_card(markdown: str, footer: CardFooter = NO_FOOTER) -> Card:
    """Return the card of a finished answer: its exact text and its buttons.

    Args:
        markdown: Already in Feishu's dialect (`format.render`).
        footer: The buttons. They are omitted if the card would be too large.

    >>> final_card("hi")["body"]
    {'elements': [{'tag': 'markdown', 'content': 'hi'}]}
    """
    return _fit_buttons([_markdown(markdown)], footer)


def progress_card(markdown: str, footer: CardFooter = NO_FOOTER) -> Card:
    """Return the card of a growing answer: the text so far, and a gray line below."""
    elements = [_markdown(markdown)] if markdown.strip() else []
    return _fit_buttons([*elements, _note(footer.note)], footer)


def streaming_card(markdown: str, footer: CardFooter = NO_FOOTER) -> Card:
    """Return the card entity of a growing answer. Only its text element changes."""
    text = {**_markdown(markdown), "element_id": TEXT_ELEMENT_ID}
    return _fit_buttons(
        [text, _note(footer.note)], footer, streaming_mode=True, streaming_config=_STREAMING_CONFIG
    )


def plain_text_card(text: str, *, final: bool, footer: CardFooter = NO_FOOTER) -> Card:
    """Return a card without formatting, for a text whose Markdown the platform refused."""
    body = {
        "tag": "div",
        "text": {"tag": "plain_text", "content": non_empty(clean_outbound(text))},
    }
    return _fit_buttons([body] if final else [body, _note(footer.note)], footer)


def note_card(text: str) -> Card:
    """Return a card with a plain text in small gray type."""
    return _card([_note(clean_outbound(text))], {})


def non_empty(markdown: str) -> str:
    """Return the content of a streaming card's text element, which must not be empty."""
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
    """Return a row of buttons that wraps, because JSON 2.0 has no `action` element."""
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
