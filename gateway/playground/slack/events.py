"""The fake's HTTP deliveries: signed requests, retries like Slack's, the check of the URL."""

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlencode

import anyio

from gateway.playground.slack.sockets import SlackEnvelope
from gateway.playground.webhook_caller import WebhookCaller, WebhookReply

SIGNING_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"


class SlackEventsSender:
    """Posts envelopes to the app's request URL.

    Args:
        patience_s: How long a response may take (Slack: 3 s).
        retries_s: The pauses before an event is sent again (Slack: at once, 1 min, 5 min).
        changed: Called after every change.

    Attributes:
        caller: Sends the requests.
        secret: The signing secret.
        replies: The responses, oldest first.
        verified: Whether the app answered the challenge.
    """

    def __init__(
        self, *, patience_s: float, retries_s: Sequence[float], changed: Callable[[], None]
    ) -> None:
        self.caller = WebhookCaller(patience_s=patience_s)
        self.retries_s = tuple(retries_s)
        self.secret = SIGNING_SECRET
        self.replies: list[WebhookReply] = []
        self.verified = False
        self._changed = changed

    def signed(self, body: bytes, *, at: float | None = None) -> dict[str, str]:
        """Return the headers that sign a body."""
        moment = str(int(time.time() if at is None else at))
        words = f"v0:{moment}:".encode() + body
        proof = hmac.new(self.secret.encode(), words, hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": moment, "X-Slack-Signature": f"v0={proof}"}

    async def verify(self) -> None:
        """Check the URL until it responds, like a person who presses Retry in the app's settings."""
        while not self.verified:
            question = {"type": "url_verification", "token": "t", "challenge": "3eZbrw1aB"}
            body = json.dumps(question).encode()
            reply = await self.post(body, {"Content-Type": "application/json"})
            self.verified = reply.ok and b"3eZbrw1aB" in reply.body
            await anyio.sleep(0 if self.verified else 0.02)
        self._changed()

    async def deliver(self, envelope: SlackEnvelope) -> None:
        """Send until it is acknowledged or all retries are used up."""
        body, kind = _encoded(envelope)
        retries = self.retries_s if envelope.kind == "events_api" else ()
        for attempt, pause_s in enumerate((0.0, *retries)):
            await anyio.sleep(pause_s)
            envelope.attempts += 1
            again = {"X-Slack-Retry-Num": str(attempt), "X-Slack-Retry-Reason": "http_error"}
            reply = await self.post(body, {"Content-Type": kind, **(again if attempt else {})})
            if reply.status == 200:
                envelope.acked, envelope.answer = True, reply.body
                self._changed()
                return
        envelope.dropped = True
        self._changed()

    async def post(self, body: bytes, headers: dict[str, str]) -> WebhookReply:
        """Make one signed request."""
        reply = await self.caller.post(body, headers | self.signed(body))
        self.replies.append(reply)
        self._changed()
        return reply


def _encoded(envelope: SlackEnvelope) -> tuple[bytes, str]:
    form = "application/x-www-form-urlencoded"
    match envelope.kind:
        case "events_api":
            return json.dumps(envelope.payload).encode(), "application/json"
        case "slash_commands":
            return urlencode(envelope.payload).encode(), form
        case _:
            return urlencode({"payload": json.dumps(envelope.payload)}).encode(), form
