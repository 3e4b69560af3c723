"""Feishu's webhook: requests are signed and encrypted, and contain the verification token.

Nothing is parsed before its signature is verified on the raw body, with one exception: the developer console checks the
URL with a request that may be unsigned. It is answered only if it contains the verification token.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import anyio

from bots.common.connection import ConnectionFailure
from bots.common.health import HealthTracker
from bots.common.webhooks import (
    ACKNOWLEDGED,
    RETRY_LATER,
    ReplayGuard,
    WebhookEndpoint,
    WebhookHealth,
    WebhookReceiver,
    WebhookRejected,
    WebhookRequest,
    WebhookResponse,
    is_recent,
    parse_json_object,
    secrets_match,
    webhook_path,
)
from bots.feishu.encryption import DecryptionError, decrypt, sign_request
from bots.feishu.receiver import FeishuReceiver
from bots.feishu.timeouts import FeishuTimeouts
from bus.platform import Clock, Disposition, Intake

_MAX_CHALLENGE_BYTES: Final = 4096
"""Largest unsigned body that is looked at: the console's question has some 200 bytes."""

_URL_VERIFICATION: Final = "url_verification"


class FeishuWebhookSecrets:
    """Verifies and decrypts requests.

    Args:
        encrypt_key: Signs and encrypts.
        verification_token: Part of every event.
        section: The channel's section in the configuration, for messages.
    """

    def __init__(
        self, *, encrypt_key: str, verification_token: str, section: str = "channels.feishu"
    ) -> None:
        self._section = section
        self._key = encrypt_key.strip()
        self._token = verification_token.strip()

    def verify_signature(self, call: WebhookRequest, now: float) -> str:
        """Return the signature of a signed call. Raises WebhookRejected."""
        timestamp = call.headers.get("x-lark-request-timestamp", "")
        nonce = call.headers.get("x-lark-request-nonce", "")
        given = call.headers.get("x-lark-signature", "")
        if not (timestamp and nonce and given):
            raise WebhookRejected("it is not signed")
        if not is_recent(timestamp, now):
            raise WebhookRejected("its time is more than 5 minutes off: check this machine's clock")
        if not secrets_match(given, sign_request(self._key, timestamp, nonce, call.body)):
            raise WebhookRejected(
                f"its signature is wrong: set {self._section}.encrypt_key to the app's Encrypt Key"
            )
        return given

    def decrypt_event(self, body: bytes) -> dict[str, object]:
        """Return the event in a signed body. Raises WebhookRejected."""
        sealed = parse_json_object(body).get("encrypt")
        if not isinstance(sealed, str):
            raise WebhookRejected(
                "it is not encrypted: set the Encrypt Key in the developer console"
            )
        return self._verify_token(self._decrypt(sealed))

    def decrypt_challenge(self, body: bytes) -> dict[str, object]:
        """Return the console's unsigned question.

        Raises:
            WebhookRejected: whatever else is not signed; always 401, so that no answer tells how far opening it came.
        """
        try:
            return self._decrypt_challenge(body)
        except WebhookRejected as refusal:
            raise WebhookRejected(str(refusal)) from None

    def _decrypt_challenge(self, body: bytes) -> dict[str, object]:
        if len(body) > _MAX_CHALLENGE_BYTES:
            raise WebhookRejected("it is not signed")
        asked = parse_json_object(body)
        if isinstance(sealed := asked.get("encrypt"), str):
            asked = self._decrypt(sealed)
        if asked.get("type") != _URL_VERIFICATION:
            raise WebhookRejected("it is not signed")
        return self._verify_token(asked)

    def _decrypt(self, sealed: str) -> dict[str, object]:
        try:
            plain = decrypt(self._key, sealed)
        except DecryptionError:
            raise WebhookRejected(
                f"it cannot be decrypted: set {self._section}.encrypt_key to the app's Encrypt Key"
            ) from None
        return parse_json_object(plain)

    def _verify_token(self, event: dict[str, object]) -> dict[str, object]:
        header = event.get("header")
        given = header.get("token") if isinstance(header, dict) else event.get("token")
        if not (isinstance(given, str) and secrets_match(given, self._token)):
            raise WebhookRejected(
                f"its token is wrong: set {self._section}.verification_token to the app's Verification Token"
            )
        return event


class FeishuWebhook:
    """Receives requests, and checks beside it that Feishu still knows the app."""

    def __init__(
        self,
        health: HealthTracker,
        *,
        channel: str,
        timeouts: FeishuTimeouts,
        secrets: FeishuWebhookSecrets,
        now: Clock,
    ) -> None:
        self._channel = channel
        self._timeouts = timeouts
        self._secrets = secrets
        self._now = now
        self._replays = ReplayGuard(now)
        self._health = WebhookHealth(
            health,
            "Waiting for Feishu's first request: set the app's Request URL to"
            f" https://<this gateway>{webhook_path(channel)}.",
        )
        self._receiver = WebhookReceiver(
            channel, timeout_s=timeouts.ack_s, on_rejected=self._health.mark_rejected
        )

    @property
    def endpoint(self) -> WebhookEndpoint:
        """What the gateway mounts."""
        return self._receiver.endpoint

    def serving(self, receiver: FeishuReceiver, intake: Intake) -> AbstractContextManager[None]:
        """Accept requests inside the block."""
        return self._receiver.serving(partial(self._handle, receiver, intake))

    async def check(self, app: Callable[[], Awaitable[object]]) -> None:
        """Ask for the app every now and then (see `ConnectionLoop`); raises what `app` raises."""
        while True:
            try:
                await app()
            except ConnectionFailure:
                self._health.mark_unready()
                raise
            self._health.mark_ready()
            await anyio.sleep(self._timeouts.check_s)

    async def _handle(
        self, receiver: FeishuReceiver, intake: Intake, call: WebhookRequest
    ) -> WebhookResponse:
        if "x-lark-signature" not in call.headers:
            return _challenge_response(self._secrets.decrypt_challenge(call.body))
        signed = self._secrets.verify_signature(call, self._now())
        event = self._secrets.decrypt_event(call.body)
        self._health.mark_verified()
        if event.get("type") == _URL_VERIFICATION:
            return _challenge_response(event)
        if signed in self._replays:
            intake.report_ignored(self._channel, Disposition.DUPLICATE, "a repeated request")
            return ACKNOWLEDGED
        ack = await receiver.handle(json.dumps(event).encode())
        if not ack.accepted:
            return RETRY_LATER
        self._replays.add(signed)
        return _json_response(ack.response) if ack.response else ACKNOWLEDGED


def _challenge_response(challenge: Mapping[str, object]) -> WebhookResponse:
    return _json_response({"challenge": challenge.get("challenge")})


def _json_response(value: Mapping[str, object]) -> WebhookResponse:
    return WebhookResponse(body=json.dumps(value).encode())
