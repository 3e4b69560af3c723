"""What Slack's payloads have in common: who the bot is, where things happened, fields read with care. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bus.platform import Reason

CHANNEL = "slack"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackIdentity:
    """Who the bot is in its workspace, as auth.test tells.

    Attributes:
        name: By which people mention it, without "@"; "" if Slack did not tell.
        scopes: What the app may do; None if Slack did not tell.
    """

    team_id: str
    user_id: str
    bot_id: str
    scopes: frozenset[str] | None = None
    name: str = ""

    @property
    def is_agent(self) -> bool:
        """Whether the app was declared an agent: only then it has this scope."""
        return "assistant:write" in (self.scopes or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredSlackEvent:
    """Not a message for us, and why."""

    reason: Reason
    detail: str = ""


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a field that should be an object; an empty one if it is none."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> Sequence[Any]:
    """Return a field that should be a list; an empty one if it is none."""
    return value if isinstance(value, list) else ()


def as_str(value: object) -> str:
    """Return a field that should be text; "" if it is none."""
    return value if isinstance(value, str) else ""


def installing_team(body: Mapping[str, Any], me: SlackIdentity) -> str:
    """Return the team that installed the bot: in a channel shared with another company not the author's.

    An app that a whole organisation installed has no single team: then it is the one where the event happened.
    """
    first = as_mapping(next(iter(as_list(body.get("authorizations"))), None))
    return as_str(first.get("team_id")) or as_str(body.get("team_id")) or me.team_id


def is_private(chat: str, channel_type: str = "") -> bool:
    """Tell whether only one person and the bot are in a chat."""
    return channel_type == "im" or chat.startswith("D")


def parse_timestamp(ts: str) -> float | None:
    """Return a message's time (Unix seconds).

    >>> parse_timestamp("1.5"), parse_timestamp("no time")
    (1.5, None)
    """
    try:
        return float(ts)
    except ValueError:
        return None
