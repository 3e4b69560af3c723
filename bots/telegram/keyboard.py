"""Inline keyboards. Pure."""

from collections.abc import Sequence

from telegram import InlineKeyboardButton, InlineKeyboardMarkup

from bus.characters import clean_outbound
from bus.messages import Button

_ROW_CHARACTERS = 24
"""Maximum total length of the labels in a row, characters.

If the labels are longer, each button gets its own row, because phones would cut the labels off.
"""

_ROW_BUTTONS = 3

_STYLES = {"plain": None, "primary": "primary", "danger": "danger"}
"""Telegram's name for each of our styles. Older servers ignore styles."""


def keyboard(buttons: Sequence[Button]) -> InlineKeyboardMarkup | None:
    """Return the keyboard; None without buttons.

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
    """Return whether a message is only a progress notice, that is, it has only a stop button."""
    return bool(buttons) and all(button.style == "danger" for button in buttons)
