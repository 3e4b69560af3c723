"""Inline keyboards. Pure."""

from collections.abc import Sequence

from telegram import InlineKeyboardButton, InlineKeyboardMarkup

from bus.characters import clean_outbound
from bus.messages import Button

_ROW_CHARACTERS = 24
"""If the labels together are longer, each button gets its own row: a phone cuts off what does not fit."""

_ROW_BUTTONS = 3

_STYLES = {"plain": None, "primary": "primary", "danger": "danger"}
"""Our styles to Telegram's; older servers ignore them."""


def keyboard(buttons: Sequence[Button]) -> InlineKeyboardMarkup | None:
    """Return the keyboard, or None for no buttons.

    >>> keyboard([Button(label="Stop", token="stop:1:0")]).inline_keyboard[0][0].callback_data
    'stop:1:0'
    """
    if not buttons:
        return None
    keys = [
        InlineKeyboardButton(
            clean_outbound(button.label), callback_data=button.token, style=_STYLES[button.style]
        )
        for button in buttons
    ]
    together = sum(len(button.label) for button in buttons) <= _ROW_CHARACTERS
    if together and len(keys) <= _ROW_BUTTONS:
        return InlineKeyboardMarkup([keys])
    return InlineKeyboardMarkup([[key] for key in keys])


def is_silent(buttons: Sequence[Button]) -> bool:
    """Return whether a message with these buttons is only a progress notice: it offers nothing but to stop."""
    return bool(buttons) and all(button.style == "danger" for button in buttons)
