"""Common parts of Slack payloads: the bot's identity, workspaces, type-safe access to fields. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_DIGITS = 18
"""Maximum number of digits of a number that always fits into 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackIdentity:
    """The bot's own IDs, from auth.test.

    Attributes:
        channel: Instance name of the channel.
        installation: The workspace that installed the app by OAuth; "" = the configured token.
        enterprise_id: The organization of the workspace; "" = none.
        is_org_install: Whether the whole organization installed the app.
        name: The name by which people mention it, without "@"; "" = unknown.
        scopes: The scopes granted to the app; None = unknown.
    """

    team_id: str
    user_id: str
    bot_id: str
    channel: str = "slack"
    installation: str = ""
    enterprise_id: str = ""
    is_org_install: bool = False
    scopes: frozenset[str] | None = None
    name: str = ""

    @property
    def workspace(self) -> str:
        """The workspace in conversation keys: the installing team, or the organization."""
        return (self.enterprise_id if self.is_org_install else "") or self.team_id

    def recipient(self, user: str, team: str = "") -> str:
        """Return `ReplyTarget.user`: the person to answer, and the data needed to reach them.

        The result is `team/user` for a person from another team (Slack Connect), and begins with `workspace@` if the
        app was installed by OAuth.
        """
        name = f"{team}/{user}" if team and team != self.workspace else user
        return f"{self.installation}@{name}" if self.installation else name

    @property
    def is_agent(self) -> bool:
        """Whether the app was declared an agent. Only agents have this scope."""
        return "assistant:write" in (self.scopes or ())


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a field that should be an object; an empty one if it is not."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> Sequence[Any]:
    """Return a field that should be a list; an empty one if it is not."""
    return value if isinstance(value, list) else ()


def as_str(value: object) -> str:
    """Return a field that should be text; "" if it is not."""
    return value if isinstance(value, str) else ""


def workspace_of(body: Mapping[str, Any], me: SlackIdentity) -> str:
    """Return the workspace for conversation keys. It is the same for messages, button presses and slash commands.

    It is the team that installed the app. In a Slack Connect channel, the sender's team may differ. If a whole
    organization installed the app, it is the organization, because presses and commands then contain either no team or
    the sender's, and messages contain the channel's. Channel IDs are unique within an organization.
    """
    first = as_mapping(next(iter(as_list(body.get("authorizations"))), None))
    flags = (first.get("is_enterprise_install"), body.get("is_enterprise_install"))
    if me.is_org_install or any(flag is True or flag == "true" for flag in flags):
        organization = first.get("enterprise_id") or body.get("enterprise_id")
        organization = organization or as_mapping(body.get("enterprise")).get("id")
        return as_str(organization) or me.enterprise_id or me.team_id
    return as_str(first.get("team_id")) or me.team_id or as_str(body.get("team_id"))


def split_recipient(recipient: str) -> tuple[str, str, str]:
    """Return the installation, team and user of a `ReplyTarget.user`; "" = not included.

    >>> split_recipient("T1@T9/U1"), split_recipient("U1")
    (('T1', 'T9', 'U1'), ('', '', 'U1'))
    """
    installation, _, rest = recipient.rpartition("@")
    team, _, user = rest.rpartition("/")
    return installation, team, user


def find_installation(body: Mapping[str, Any], installed: Sequence[str]) -> str:
    """Return the installation that a payload belongs to; "" = none."""
    first = as_mapping(next(iter(as_list(body.get("authorizations"))), None))
    message, user = as_mapping(body.get("message")), as_mapping(body.get("user"))
    candidates = (
        first.get("team_id"),
        first.get("enterprise_id"),
        as_mapping(body.get("team")).get("id"),
        body.get("team_id"),
        as_mapping(body.get("enterprise")).get("id"),
        body.get("enterprise_id"),
        message.get("team"),
        user.get("team_id"),
    )
    return next(
        (as_str(candidate) for candidate in candidates if candidate and candidate in installed), ""
    )


def is_private(chat: str, channel_type: str = "") -> bool:
    """Return whether a chat contains only one person and the bot."""
    return channel_type == "im" or chat.startswith("D")


def parse_order(ts: str) -> int:
    """Return a message's time in microseconds, by which a channel's messages are ordered; 0 = no time.

    >>> parse_order("1700000000.000100"), parse_order("1.5"), parse_order("x")
    (1700000000000100, 1500000, 0)
    """
    seconds, _, fraction = ts.partition(".")
    digits = f"{seconds}{fraction[:6]:0<6}"
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS else 0


def parse_timestamp(ts: str) -> float | None:
    """Return a message's time (Unix seconds); None = no time.

    >>> parse_timestamp("1.5"), parse_timestamp("no time"), parse_timestamp("NaN")
    (1.5, None, None)
    """
    try:
        seconds = float(ts)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None
