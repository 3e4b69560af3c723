"""Slack's Events API over HTTP: events, slash commands and presses arrive as signed requests.

The signature is checked on the raw body before anything is parsed; dispatch and the rule for acknowledging
are those of Socket Mode. Protocol: docs.slack.dev, "Verifying requests from Slack" and "Using HTTP Request URLs".
"""

import hashlib
import hmac
import logging
from functools import partial
from typing import Final

import aiohttp
import anyio
from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse

from bots.common.webhooks import (
    ACKNOWLEDGED,
    RETRY_LATER,
    ReplayGuard,
    WebhookEndpoint,
    WebhookReceiver,
    WebhookRejected,
    WebhookRequest,
    WebhookResponse,
    is_recent,
    webhook_path,
)
from bots.slack.api import SlackApi
from bots.slack.connection import SlackTimeouts, explain_token_error, missing_scopes_warning
from bots.slack.errors import SlackError
from bots.slack.link import LinkState
from bots.slack.payload import CHANNEL
from bots.text.characters import clean
from bus.platform import Clock, Disposition, Intake

_log: Final = logging.getLogger(__name__)

_FORWARDED_HEADERS: Final = ("content-type", "x-slack-retry-num", "x-slack-retry-reason")
"""Headers that Bolt sees. They are not signed, and others would switch modes of Bolt."""

_OK: Final = 200
_UNKNOWN: Final = 404
_KIND_CHARS: Final = 80


def sign_request(secret: str, timestamp: str, body: bytes) -> str:
    """Return what Slack signs a request with.

    >>> sign_request("8f742231b10e8888abcd99yyyzzz85a5", "1531420618", b"token=xyzz0WbapA4vBCDEFasx0q6G")[:11]
    'v0=8a2b7124'
    """
    signed = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


class SlackWebhook:
    """The way events come in over HTTP, and what is known of it.

    The connection counts as such once Slack proved itself by a signed request: that the request URL is set,
    reachable and signed with our secret shows in nothing else.
    """

    def __init__(
        self, api: SlackApi, link: LinkState, timers: SlackTimeouts, *, secret: str, now: Clock
    ) -> None:
        self._api = api
        self._link = link
        self._timers = timers
        self._secret = secret.strip()
        self._now = now
        self._seen = ReplayGuard(now)
        self._desk = WebhookReceiver(CHANNEL, timeout_s=timers.ack_s, on_rejected=self._on_refused)
        self._reauthenticate = anyio.Event()
        self._has_verified_request = False
        self._signed_in = False
        self.webhook: Final = WebhookEndpoint(handle=self._desk.handle)

    def reauthenticate(self) -> None:
        """Sign in again now: a call was refused because of the token."""
        self._reauthenticate.set()

    async def run(self, _session: aiohttp.ClientSession, app: AsyncApp, intake: Intake) -> None:
        """Take deliveries until cancelled."""
        self._link.connecting()
        with self._desk.serving(partial(self._handle, app, intake)):
            pause_s = 0.0
            while True:
                self._reauthenticate = anyio.Event()
                try:
                    await self._api.authenticate()
                except SlackError as error:
                    self._signed_in = False
                    wanted = "the Bot User OAuth Token (xoxb-...)"
                    pause_s = self._report_failure(
                        explain_token_error(error, "bot_token", wanted), pause_s
                    )
                    wait_s = pause_s
                else:
                    self._signed_in = True
                    self._link.lacks(missing_scopes_warning(self._api.known_identity))
                    self._report_state()
                    pause_s, wait_s = 0.0, self._timers.check_s
                with anyio.move_on_after(wait_s):
                    await self._reauthenticate.wait()

    def _report_failure(self, error: SlackError, paused_s: float) -> float:
        """Show a failed sign-in; return the pause before the next, in seconds."""
        if error.retryable:
            self._link.lost(f"{error.user_message} Trying again until it works.")
        else:
            self._link.failed(error.user_message)
        return self._timers.retry_delay_s(error, paused_s)

    def _report_state(self, refused: str = "") -> None:
        if self._has_verified_request:
            self._link.connected()
            return
        why = f" The last one was refused: {refused}." if refused else ""
        self._link.waiting(
            f"Waiting for Slack's first request: set the app's Request URLs to https://<this gateway>"
            f"{webhook_path(CHANNEL)}.{why}"
        )

    def _on_refused(self, reason: str) -> None:
        if self._signed_in and not self._has_verified_request:
            self._report_state(reason)

    async def _handle(self, app: AsyncApp, intake: Intake, call: WebhookRequest) -> WebhookResponse:
        signed = self._verify(call)
        self._has_verified_request = True
        self._link.heard()
        if not self._api.known_identity.user_id:
            return RETRY_LATER  # Without our own ids nobody's mention can be recognised.
        if self._signed_in:
            self._report_state()
        if signed in self._seen:
            intake.report_ignored(CHANNEL, Disposition.DUPLICATE, "a repeated request")
            return ACKNOWLEDGED
        if reason := call.headers.get("x-slack-retry-reason"):
            _log.info("slack sends a request again: %.40r", reason)
        request = _request(call)
        answer = _answer(request, await app.async_dispatch(request), intake)
        if answer.status == _OK:
            self._seen.add(signed)
        return answer

    def _verify(self, call: WebhookRequest) -> str:
        """Return the signature of a request that is Slack's and new. Raises Refused."""
        timestamp = call.headers.get("x-slack-request-timestamp", "")
        given = call.headers.get("x-slack-signature", "")
        if not (timestamp and given):
            raise WebhookRejected("it is not signed")
        if not is_recent(timestamp, self._now()):
            raise WebhookRejected("its time is more than 5 minutes off: check this machine's clock")
        expected = sign_request(self._secret, timestamp, call.body)
        if not hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace")):
            raise WebhookRejected(
                "its signature is wrong: set channels.slack.signing_secret to the Signing Secret of the Slack app"
            )
        return given


def _answer(request: AsyncBoltRequest, given: BoltResponse, intake: Intake) -> WebhookResponse:
    """Return what Slack is answered. What has no listener is a press or the like: there is no use in repeating it."""
    if given.status == _UNKNOWN:
        kind = clean(str(request.body.get("type") or "request"))
        intake.report_ignored(CHANNEL, Disposition.UNSUPPORTED, kind[:_KIND_CHARS])
        return ACKNOWLEDGED
    if given.status != _OK:
        return RETRY_LATER
    kind = next(iter(given.headers.get("content-type", [])), "text/plain")
    return WebhookResponse(body=given.body.encode(), headers={"content-type": kind})


def _request(call: WebhookRequest) -> AsyncBoltRequest:
    """Return a request as Bolt reads it. Raises Refused (400)."""
    headers = {name: call.headers[name] for name in _FORWARDED_HEADERS if name in call.headers}
    try:
        return AsyncBoltRequest(body=call.body.decode(), headers=dict(headers))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise WebhookRejected("Slack signed it, and it cannot be read", status=400) from None
