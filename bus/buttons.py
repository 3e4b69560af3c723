"""Button tokens: a button's action and the inbox row it applies to. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from bus.messages import Button

MAX_ROW_ID_DIGITS = 18
"""Maximum number of digits of a row ID. SQLite's are below 2**63."""


class ButtonAction(StrEnum):
    """The action of a button."""

    STOP = "stop"
    """Stop the turn that answers the row."""
    OPTION = "option"
    """Answer the clarification question that the row's turn ended with. `index` is the option, from 0."""
    RETRY = "retry"
    """Answer the row's message again after a failed attempt."""
    APPROVE = "approve"
    """Approve the tool calls that the row's turn waits for."""
    DENY = "deny"
    """Deny these tool calls."""
    RERUN = "rerun"
    """Answer the row's edited message again."""
    SCHEDULE_PAUSE = "pause"
    """Pause the schedule with the number `index`, which the row's command listed."""
    SCHEDULE_RESUME = "resume"
    """Enable it again."""
    SCHEDULE_RUN = "run"
    """Send its message now."""
    SCHEDULE_DELETE = "delete"
    """Delete it."""


@dataclass(frozen=True, slots=True)
class ButtonToken:
    """A parsed token."""

    action: ButtonAction
    row_id: int
    index: int = 0

    @property
    def text(self) -> str:
        """The token as text, at most 50 bytes.

        >>> ButtonToken(ButtonAction.OPTION, 12, 1).text
        'option:12:1'
        """
        return f"{self.action}:{self.row_id}:{self.index}"


def parse_token(text: str) -> ButtonToken | None:
    """Parse a token; None if it is invalid.

    >>> parse_token("stop:7:0")
    ButtonToken(action=<ButtonAction.STOP: 'stop'>, row_id=7, index=0)
    >>> parse_token("stop:seven:0")
    """
    action, _, rest = text.partition(":")
    row_id, _, index = rest.partition(":")
    if action not in set(ButtonAction) or not (_is_number(row_id) and _is_number(index)):
        return None
    return ButtonToken(ButtonAction(action), int(row_id), int(index))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MAX_ROW_ID_DIGITS


def stop_button(row_id: int, label: str) -> Button:
    """Return the button that stops a running turn."""
    return Button(label=label, token=ButtonToken(ButtonAction.STOP, row_id).text, style="danger")
