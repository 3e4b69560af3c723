"""What the buttons under Parley's messages mean. Pure: a token names its verb and the inbox row it is about."""

from dataclasses import dataclass
from enum import StrEnum

from bus.messages import Button

MAX_ROW_ID_DIGITS = 18
"""Digits that a row id may have: SQLite's are below 2**63."""


class ButtonAction(StrEnum):
    """What pressing a button asks for."""

    STOP = "stop"
    """End the turn that answers the row."""
    OPTION = "option"
    """Answer the clarification question that the row's turn ended with; `index` counts its options from 0."""
    RETRY = "retry"
    """Answer the row's message once more: the first attempt failed."""
    APPROVE = "approve"
    """Let the tools run that the row's turn waits for."""
    DENY = "deny"
    """Do not let them run."""
    RERUN = "rerun"
    """Answer the row's message again as it was edited."""


@dataclass(frozen=True, slots=True)
class ButtonToken:
    """A button's token, taken apart."""

    verb: ButtonAction
    row_id: int
    index: int = 0

    @property
    def text(self) -> str:
        """The token as platforms carry it; at most 40 bytes.

        >>> ButtonToken(ButtonAction.OPTION, 12, 1).text
        'option:12:1'
        """
        return f"{self.verb}:{self.row_id}:{self.index}"


def parse_token(text: str) -> ButtonToken | None:
    """Return what a token says; None if it is none of ours.

    >>> parse_token("stop:7:0")
    ButtonToken(verb=<ButtonAction.STOP: 'stop'>, row_id=7, index=0)
    >>> parse_token("stop:seven:0")
    """
    verb, _, rest = text.partition(":")
    row_id, _, index = rest.partition(":")
    if verb not in set(ButtonAction) or not (_is_number(row_id) and _is_number(index)):
        return None
    return ButtonToken(ButtonAction(verb), int(row_id), int(index))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MAX_ROW_ID_DIGITS


def stop_button(row_id: int, label: str) -> Button:
    """Return the button that ends a running turn."""
    return Button(label=label, token=ButtonToken(ButtonAction.STOP, row_id).text, style="danger")
