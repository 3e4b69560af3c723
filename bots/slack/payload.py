"""What Slack's payloads have in common: who the bot is, where things happened, fields read with care. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bus.platform import Disposition


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackIdentity:
    """The bot's own ids, as auth.test returns them.

    Attributes:
        channel: Instance name of the channel.
        enterprise_id: The organization that the workspace belongs to; "" if it belongs to none.
        is_org_install: Whether the whole organization installed the app.
        name: The name people mention it by, without "@"; "" if unknown.
        scopes: The scopes granted to the app; None if unknown.
    """

    team_id: str
    user_id: str
    bot_id: str
    channel: str = "slack"
    enterprise_id: str = ""
    is_org_install: bool = False
    scopes: frozenset[str] | None = None
    name: str = ""

    @property
    def workspace(self) -> str:
        """The workspace part of conversation keys: the installing team, or the organization."""
        return (self.enterprise_id if self.is_org_install else "") or self.team_id

    @property
    def is_agent(self) -> bool:
        """Whether the app was declared an agent: only then it has this scope."""
        return "assistant:write" in (self.scopes or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredSlackEvent:
    """Not a message for us, and why."""

    reason: Disposition
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


def workspace_of(body: Mapping[str, Any], me: SlackIdentity) -> str:
    """Return the workspace part of conversation keys; equal for messages, button presses and slash commands.

    It is the team that installed the app: in a Slack Connect channel, that is not always the sender's team. For an
    app that a whole organization installed it is the organization, because presses and commands then carry no team
    or the sender's, while messages carry the channel's. Channel ids are unique within an organization.
    """
    first = as_mapping(next(iter(as_list(body.get("authorizations"))), None))
    flags = (first.get("is_enterprise_install"), body.get("is_enterprise_install"))
    if me.is_org_install or any(flag is True or flag == "true" for flag in flags):
        told = first.get("enterprise_id") or body.get("enterprise_id")
        told = told or as_mapping(body.get("enterprise")).get("id")
        return as_str(told) or me.enterprise_id or me.team_id
    return as_str(first.get("team_id")) or me.team_id or as_str(body.get("team_id"))


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
