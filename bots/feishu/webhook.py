"""Feishu's webhook: requests are signed and encrypted, and contain the verification token.

The signature of a raw body is verified before the body is parsed, with one exception: the developer console checks the
    URL with a request that may be unsigned. That request is answered only if it contains the verification token.
"""

import json
from collections.abc import Mapping

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
    parse_json_object,
    secrets_match,
)
from bots.feishu.encryption import DecryptionError, decrypt, sign_request
from bots.feishu.json_node import JsonNode
from bots.feishu.receiver import FeishuReceiver
from bus.platform import Clock, Intake

_MAX_CHALLENGE_BYTES = 4096
"""Maximum size of an unsigned body, bytes. The console's request has about 200."""

_URL_VERIFICATION = "url_verification"


class FeishuWebhookSecrets:
    """Verifies and decrypts requests.

    Args:
        encrypt_key: The key of signatures and encryption.
        verification_token: Part of every event.
        section: The channel's section in the configuration, for messages.
    """

    def __init__(
        self, *, encrypt_key: str, verification_token: str, section: str = "channels.feishu"
    ) -> None:
        self._section = section
        self._key = encrypt_key.strip()
        self._token = verification_token.strip()

    def verify_signature(self, request: WebhookRequest, now: float) -> str:
        """Return the signature of a signed request. Raises WebhookRejected."""
        timestamp = request.headers.get("x-lark-request-timestamp", "")
        nonce = request.headers.get("x-lark-request-nonce", "")
        given = request.headers.get("x-lark-signature", "")
        if not (timestamp and nonce and given):
            raise WebhookRejected("it is not signed")
        if not is_recent(timestamp, now):
            raise WebhookRejected("its timestamp is over 5 minutes off: check this machine's clock")
        if not secrets_match(given, sign_request(self._key, timestamp, nonce, request.body)):
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
        """Return the console's unsigned request.

        Raises:
            WebhookRejected: It is some other unsigned request. The status is always 401, so that it does not reveal how
                far decryption got.
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


class FeishuWebhook(SignedWebhook[Mapping[str, object]]):
    """Receives events and button presses.

    Attributes:
        receiver: Handles them; None until the adapter runs.
    """

    def __init__(
        self,
        health: HealthTracker,
        requests: WebhookReceiver,
        *,
        channel: str,
        secrets: FeishuWebhookSecrets,
        now: Clock,
    ) -> None:
        hint = "Waiting for Feishu's first request: set the app's Request URL"
        super().__init__(channel, health, requests, setup_hint=hint, now=now)
        self.receiver: FeishuReceiver | None = None
        self._secrets = secrets

    @override
    async def handle(self, intake: Intake, request: WebhookRequest) -> WebhookResponse:
        if "x-lark-signature" not in request.headers:
            return _challenge_response(self._secrets.decrypt_challenge(request.body))
        return await super().handle(intake, request)

    @override
    def verify(self, request: WebhookRequest) -> tuple[str, Mapping[str, object]]:
        signature = self._secrets.verify_signature(request, self._now())
        return signature, self._secrets.decrypt_event(request.body)

    @override
    async def accept(self, intake: Intake, content: Mapping[str, object]) -> WebhookResponse:
        if content.get("type") == _URL_VERIFICATION:
            return _challenge_response(content)
        if self.receiver is None:
            return RETRY_LATER
        ack = await self.receiver.handle(JsonNode(content))
        if not ack.accepted:
            return RETRY_LATER
        return _json_response(ack.response) if ack.response else ACKNOWLEDGED


def _challenge_response(challenge: Mapping[str, object]) -> WebhookResponse:
    return _json_response({"challenge": challenge.get("challenge")})


def _json_response(value: Mapping[str, object]) -> WebhookResponse:
    return WebhookResponse(body=json.dumps(value).encode())
