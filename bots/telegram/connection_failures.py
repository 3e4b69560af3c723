"""Converts failures to connection failures, with advice for the operator."""

import httpx
from telegram.error import Conflict, InvalidToken

from bots.common.connection import ConnectionFailure
from bots.telegram.api import RetryAfterError, UnexpectedStatus
from bots.telegram.errors import cause_name
from bots.telegram.polling import UpdatesWithheld, WebhookConflict

POLLED_BY_ANOTHER = "Another process polls with this bot token (HTTP 409)"
OTHER_POLLER = f"{POLLED_BY_ANOTHER}: stop it, or give it its own bot."

OTHER_WEBHOOK = (
    "Another program set a webhook for this bot: Parley removes it and polls."
    " Give the other program its own bot."
)


def connection_failure(  # noqa: PLR0911 - one return per kind
    error: Exception, *, channel: str, base_url: str
) -> ConnectionFailure:
    """Convert a failure. Never quotes an exception, because it may contain the token. Pure.

    Args:
        error: An exception of the SDK, the transport or a time limit.
        channel: Instance name, to name the keys to check.
        base_url: The Bot API's URL. Only its host is shown.
    """
    match error:
        case InvalidToken():
            return ConnectionFailure(
                f"Telegram refuses the bot token: set channels.{channel}.bot_token to the one that @BotFather shows"
                " for this bot.",
                retryable=False,
            )
        case UpdatesWithheld():
            return ConnectionFailure(
                f"{error.waiting} updates wait at Telegram and polling does not return them: connecting again. If"
                " this persists, another process may be polling with this bot token."
            )
        case WebhookConflict():
            return ConnectionFailure(OTHER_WEBHOOK)
        case Conflict():
            webhook = "webhook" in error.message.lower()
            return ConnectionFailure(OTHER_WEBHOOK if webhook else OTHER_POLLER)
        case RetryAfterError():
            return ConnectionFailure(
                "Telegram asks to wait (HTTP 429).", retry_after_s=error.retry_after_s
            )
        case UnexpectedStatus():
            return ConnectionFailure(
                f"{_host(base_url, channel)} answered HTTP {error.status}: {_status_hint(error.status, channel)}"
            )
    return ConnectionFailure(
        f"Telegram cannot be reached at {_host(base_url, channel)} ({cause_name(error)})",
        f"check the network, the proxy and channels.{channel}.base_url.",
    )


def _status_hint(status: int, channel: str) -> str:
    if httpx.codes.is_server_error(status):
        return "Telegram has a problem of its own; retrying."
    return f"that is not the Bot API; check the proxy and channels.{channel}.base_url."


def _host(base_url: str, channel: str) -> str:
    """Return the host of a URL, without parts that may be secret.

    >>> _host("http://user:secret@127.0.0.1:8081/bot", "telegram"), _host("nonsense", "telegram")
    ('127.0.0.1:8081', 'channels.telegram.base_url')
    """
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if not url.host:
        return f"channels.{channel}.base_url"
    return f"{url.host}:{url.port}" if url.port else url.host
