"""Keeps one Socket Mode connection up: sign in, connect, serve, again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import anyio
from slack_bolt.async_app import AsyncApp

from bots.slack.api import SlackApi
from bots.slack.capabilities import BOT_SCOPES
from bots.slack.errors import SlackError
from bots.slack.link import LinkState
from bots.slack.payload import SlackIdentity
from bots.slack.socket_mode import SocketModeRefused, SocketModeSession, SocketModeTimeouts
from bots.slack.streaming import StreamingLimits
from bus.platform import Intake


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackTimeouts:
    """How long things may take, in seconds.

    Attributes:
        call_s: One call of the Web API.
        first_retry_s: The pause after a first failure; it doubles with each further one.
        max_retry_s: The longest pause while Slack cannot be reached.
        refused_retry_s: The pause while Slack refuses a token.
        stable_s: A connection that lived this long is followed by the next one at once.
        socket_mode: What holds on a connection.
        ack_s: Over HTTP, a request is answered within this. Slack waits 3 s.
        check_s: Over HTTP, between two looks whether the token is still good.
        streaming: How answers grow.
    """

    call_s: float = 30.0
    first_retry_s: float = 1.0
    max_retry_s: float = 60.0
    refused_retry_s: float = 60.0
    stable_s: float = 10.0
    socket_mode: SocketModeTimeouts = field(default_factory=SocketModeTimeouts)
    ack_s: float = 2.5
    check_s: float = 60.0
    streaming: StreamingLimits = field(default_factory=StreamingLimits)

    def retry_delay_s(self, error: SlackError, paused_s: float) -> float:
        """Return the pause after a failed attempt that followed a pause of `paused_s`."""
        if not error.retryable:
            return self.refused_retry_s
        doubled = min(max(paused_s * 2, self.first_retry_s), self.max_retry_s)
        return max(doubled, error.retry_after_s or 0.0)


class SocketModeConnection:
    """The way events come in."""

    def __init__(self, api: SlackApi, link: LinkState, timers: SlackTimeouts) -> None:
        self._api = api
        self._link = link
        self._timers = timers
        self._reauthenticate = anyio.Event()

    def reauthenticate(self) -> None:
        """Sign in again now: a call was refused because of the token."""
        self._reauthenticate.set()

    async def run(self, session: aiohttp.ClientSession, app: AsyncApp, _intake: Intake) -> None:
        """Stay connected until cancelled."""
        self._link.connecting()
        pause_s = 0.0
        while True:
            began = anyio.current_time()
            try:
                ended = await self._connect_once(session, app)
                if (trouble := _TROUBLE.get(ended)) is not None:
                    raise trouble()
            except SlackError as error:
                pause_s = self._report_failure(error, pause_s)
            else:
                lived_s = anyio.current_time() - began
                pause_s = 0.0 if lived_s >= self._timers.stable_s else self._timers.first_retry_s
                self._link.lost(f"Slack ended the connection ({ended}); connecting again.")
            await anyio.sleep(pause_s)

    async def _connect_once(self, session: aiohttp.ClientSession, app: AsyncApp) -> str:
        """Make and serve one connection; return why it ended."""
        self._reauthenticate = anyio.Event()
        try:
            await self._api.authenticate()
        except SlackError as error:
            raise explain_token_error(
                error, "bot_token", "the Bot User OAuth Token (xoxb-...)"
            ) from error
        self._link.lacks(missing_scopes_warning(self._api.known_identity))
        try:
            url = await self._api.open_connection_url()
        except SlackError as error:
            wanted = "an app-level token (xapp-...) with the scope connections:write"
            raise explain_token_error(error, "app_token", wanted) from error
        return await self._serve(session, app, url)

    async def _serve(self, session: aiohttp.ClientSession, app: AsyncApp, url: str) -> str:
        socket = SocketModeSession(
            app,
            hang_up=self._reauthenticate,
            opened=self._link.connected,
            heard=self._link.heard,
            pace=self._timers.socket_mode,
        )
        try:
            return await socket.run(session, url)
        except SocketModeRefused as error:
            if error.code in _TROUBLE:
                return error.code
            raise

    def _report_failure(self, error: SlackError, paused_s: float) -> float:
        """Show a failed attempt; return the pause before the next, in seconds."""
        if error.retryable:
            self._link.lost(f"{error.user_message} Trying again until it works.")
        else:
            self._link.failed(error.user_message)
        return self._timers.retry_delay_s(error, paused_s)


def _switched_off() -> SlackError:
    return SlackError(
        "Socket Mode of the Slack app is off: switch it on under Socket Mode in the app's settings."
    )


def _too_many() -> SlackError:
    return SlackError(
        "The Slack app has too many connections: end other processes that use its app_token.",
        retryable=True,
    )


_TROUBLE: Final[Mapping[str, Callable[[], SlackError]]] = {
    "link_disabled": _switched_off,
    "too_many_websockets": _too_many,
}
"""Words with which Slack ends a connection and that somebody has to hear of; others are in the course of things."""


def missing_scopes_warning(identity: SlackIdentity) -> str:
    """Return what an app may not do that it was made for, "" if it may do all or Slack did not tell."""
    missing = sorted(set(BOT_SCOPES) - identity.scopes) if identity.scopes is not None else []
    if not missing:
        return ""
    return (
        f"The Slack app lacks permissions ({', '.join(missing)}): paste what `parley slack manifest` prints"
        " into its App Manifest and reinstall it."
    )


def explain_token_error(error: SlackError, key: str, wanted: str) -> SlackError:
    """Say which setting is wrong and what belongs there."""
    if not (error.token_refused or error.code == "missing_scope"):
        return error
    gone = error.code in {"account_inactive", "token_revoked"} and key == "bot_token"
    again = " after installing the app again (Install App in its settings)" if gone else ""
    found = SlackError(
        f"Slack refused channels.slack.{key} ({error.code}): set it to {wanted} of the Slack app{again}."
    )
    found.code = error.code
    return found
