"""Slack's Events API over HTTP: events, slash commands and button presses arrive as signed requests.

The signature is verified on the raw body before anything is parsed. Dispatch and acknowledgements are the same as in
Socket Mode. Protocol: docs.slack.dev, "Verifying requests from Slack" and "Using HTTP Request URLs".
"""

import hashlib
import hmac
import logging

from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from typing_extensions import override

from bots.common.health import HealthTracker
from bots.common.webhooks import (
    ACKNOWLEDGED,
    RETRY_LATER,
    SignedWebhook,
    WebhookReceiver,
    WebhookRejected,
    WebhookRequest,
    WebhookResponse,
    is_recent,
    secrets_match,
)
from bots.slack.api import SlackApi
from bus.characters import clean
from bus.platform import Clock, Disposition, Intake

log = logging.getLogger(__name__)

_FORWARDED_HEADERS = ("content-type", "x-slack-retry-num", "x-slack-retry-reason")
"""The only headers that Bolt gets. Headers are not signed, and other headers could switch Bolt to other modes."""

_OK = 200
_NOT_FOUND = 404
_TYPE_CHARS = 80

_URL_VERIFICATION = "url_verification"
"""Type of Slack's test of a Request URL. With OAuth, it may come before any workspace has installed the app."""


def sign_request(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a request.

    >>> sign_request("8f742231b10e8888abcd99yyyzzz85a5", "1531420618", b"token=xyzz0WbapA4vBCDEFasx0q6G")[:11]
    'v0=8a2b7124'
    """
    signed = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


class SlackWebhook(SignedWebhook[WebhookRequest]):
    """Receives events, commands and button presses.

    Attributes:
        app: Handles them; None until the adapter runs.
    """

    def __init__(
        self,
        api: SlackApi,
        health: HealthTracker,
        requests: WebhookReceiver,
        *,
        channel: str,
        secret: str,
        now: Clock,
    ) -> None:
        hint = "Waiting for Slack's first request: set the app's Request URLs"
        super().__init__(channel, health, requests, setup_hint=hint, now=now)
        self.app: AsyncApp | None = None
        self._api = api
        self._secret = secret.strip()

    @override
    def verify(self, request: WebhookRequest) -> tuple[str, WebhookRequest]:
        timestamp = request.headers.get("x-slack-request-timestamp", "")
        given = request.headers.get("x-slack-signature", "")
        if not (timestamp and given):
            raise WebhookRejected("it is not signed")
        if not is_recent(timestamp, self._now()):
            raise WebhookRejected("its timestamp is over 5 minutes off: check this machine's clock")
        if not secrets_match(given, sign_request(self._secret, timestamp, request.body)):
            raise WebhookRejected(
                f"its signature is wrong: set channels.{self._channel}.signing_secret to the Signing Secret"
                " of the Slack app"
            )
        return given, request

    @override
    async def accept(self, intake: Intake, content: WebhookRequest) -> WebhookResponse:
        if self.app is None:
            return RETRY_LATER
        parsed = parse_request(content)
        if not self._api.bots and parsed.body.get("type") != _URL_VERIFICATION:
            return RETRY_LATER  # Without the bot's own IDs, mentions cannot be recognized.
        if reason := content.headers.get("x-slack-retry-reason"):
            log.info("%s: Slack resent a request: %.40r", self._channel, reason)
        return self._respond(parsed, await self.app.async_dispatch(parsed), intake)

    def _respond(
        self, request: AsyncBoltRequest, response: BoltResponse, intake: Intake
    ) -> WebhookResponse:
        """Return the response for Slack. A 404 means that nothing handles the request, so Slack need not retry it."""
        if response.status == _NOT_FOUND:
            kind = clean(str(request.body.get("type") or "request"))
            intake.report_ignored(self._channel, Disposition.UNSUPPORTED, kind[:_TYPE_CHARS])
            return ACKNOWLEDGED
        if response.status != _OK:
            return RETRY_LATER
        kind = next(iter(response.headers.get("content-type", [])), "text/plain")
        return WebhookResponse(body=response.body.encode(), headers={"content-type": kind})


def parse_request(request: WebhookRequest) -> AsyncBoltRequest:
    """Convert a request for Bolt. Raises WebhookRejected (400)."""
    headers = {
        name: request.headers[name] for name in _FORWARDED_HEADERS if name in request.headers
    }
    try:
        return AsyncBoltRequest(body=request.body.decode(), headers=dict(headers))
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        raise WebhookRejected("it is signed, but cannot be parsed", status=400) from None
