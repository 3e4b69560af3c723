"""The true state of the connection, and in words what a person can do about it."""

import time
from dataclasses import dataclass, replace

import httpx
from telegram.error import Conflict, InvalidToken

from bots.telegram.api import RetryAfterError, UnexpectedStatus
from bots.telegram.errors import cause_name
from bots.telegram.stall_check import UpdatesWithheld, WebhookConflict
from bus.platform import ChannelHealth, Clock, ConnectionState

OTHER_POLLER = (
    "Another process polls with this bot token (HTTP 409): stop it, or give it a bot of its own."
)

OTHER_WEBHOOK = (
    "Another program set a webhook for this bot: Parley removes it, and polls. Give the other program a bot of"
    " its own."
)


class State:
    """The health of one connection, kept by whoever learns of it."""

    def __init__(self, now: Clock = time.time) -> None:
        self._now = now
        self.health = ChannelHealth(state=ConnectionState.STOPPED, since=now())

    def set(self, link: ConnectionState, detail: str = "") -> bool:
        """Note a state; return whether it is news."""
        if (link, detail) == (self.health.state, self.health.detail):
            return False
        since = self.health.since if link == self.health.state else self._now()
        self.health = replace(self.health, state=link, detail=detail, since=since)
        return True

    def heard(self) -> None:
        """Note that Telegram sent something."""
        self.health = replace(self.health, last_event_at=self._now())


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What a failure means for the connection.

    Attributes:
        retry_after_s: How long to wait before the next attempt; None = as usual.
    """

    link: ConnectionState
    detail: str
    retry_after_s: float | None = None


def trouble_of(error: Exception, *, base_url: str, refused_s: float) -> Trouble:
    """Return what a failure means. Never quotes an exception: it may hold the token. Pure.

    Args:
        error: What the SDK, the transport or a deadline raised.
        base_url: Where the Bot API was sought; only its host is told.
        refused_s: Wait after a refused token, seconds.
    """
    match error:
        case InvalidToken():
            return Trouble(
                link=ConnectionState.FAILED,
                detail="Telegram refuses the bot token: set channels.telegram.bot_token to the one that"
                " @BotFather shows for this bot.",
                retry_after_s=refused_s,
            )
        case Conflict() | WebhookConflict() | UpdatesWithheld():
            return Trouble(link=ConnectionState.RECONNECTING, detail=_rivalry(error))
        case RetryAfterError():
            return Trouble(
                link=ConnectionState.RECONNECTING,
                detail="Telegram asks to wait (HTTP 429).",
                retry_after_s=error.retry_after_s,
            )
        case UnexpectedStatus():
            detail = f"{_host(base_url)} answered HTTP {error.status}: {_status_hint(error.status)}"
            return Trouble(link=ConnectionState.RECONNECTING, detail=detail)
        case _:
            return Trouble(
                link=ConnectionState.RECONNECTING,
                detail=f"Telegram cannot be reached at {_host(base_url)} ({cause_name(error)}): check the"
                " network, the proxy and channels.telegram.base_url.",
            )


def _rivalry(error: Conflict | WebhookConflict | UpdatesWithheld) -> str:
    if isinstance(error, UpdatesWithheld):
        return (
            f"{error.waiting} updates wait at Telegram and polling does not bring them: connecting anew. If that"
            " stays so, another process may poll with this bot token."
        )
    return (
        OTHER_WEBHOOK
        if isinstance(error, WebhookConflict) or "webhook" in error.message.lower()
        else OTHER_POLLER
    )


def _status_hint(status: int) -> str:
    if httpx.codes.is_server_error(status):
        return "Telegram has a problem of its own; trying again."
    return "that is not the Bot API; check the proxy and channels.telegram.base_url."


def _host(base_url: str) -> str:
    """Return the host of a URL, and nothing that may be secret.

    >>> _host("http://user:secret@127.0.0.1:8081/bot"), _host("nonsense")
    ('127.0.0.1:8081', 'channels.telegram.base_url')
    """
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if not url.host:
        return "channels.telegram.base_url"
    return f"{url.host}:{url.port}" if url.port else url.host
