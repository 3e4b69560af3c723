"""Feishu's deliveries over HTTP: signed, encrypted, and with the verification token inside.

Nothing is parsed before its signature was checked on the raw body. The one exception is the question with which
the console checks the address: it may come unsigned, and is answered only to who knows the verification token.
"""

import hmac
import json
from functools import partial
from typing import Final

import anyio

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
    parse_json_object,
    webhook_path,
)
from bots.feishu.api import FeishuApi
from bots.feishu.encryption import DecryptionError, decrypt, sign_request
from bots.feishu.errors import FeishuError
from bots.feishu.events import CHANNEL
from bots.feishu.receiver import FeishuReceiver
from bots.feishu.timeouts import Backoff, FeishuTimeouts
from bots.feishu.vitals import Vitals
from bus.platform import Clock, Disposition, Intake

_MAX_CHALLENGE_BYTES: Final = 4096
"""Largest unsigned body that is looked at: the console's question has some 200 bytes."""

_URL_VERIFICATION: Final = "url_verification"
_WRONG_VERIFICATION: Final = (
    "its token is wrong: set channels.feishu.verification_token to the app's Verification Token"
)


class FeishuWebhookSecrets:
    """What proves a delivery to be Feishu's."""

    def __init__(self, *, encrypt_key: str, verification_token: str) -> None:
        self._key = encrypt_key.strip()
        self._token = verification_token.strip()

    def verify_signature(self, call: WebhookRequest, now: float) -> str:
        """Return the signature of a signed call. Raises Refused."""
        timestamp = call.headers.get("x-lark-request-timestamp", "")
        nonce = call.headers.get("x-lark-request-nonce", "")
        given = call.headers.get("x-lark-signature", "")
        if not (timestamp and nonce and given):
            raise WebhookRejected("it is not signed")
        if not is_recent(timestamp, now):
            raise WebhookRejected("its time is more than 5 minutes off: check this machine's clock")
        expected = sign_request(self._key, timestamp, nonce, call.body)
        if not hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace")):
            raise WebhookRejected(
                "its signature is wrong: set channels.feishu.encrypt_key to the app's Encrypt Key"
            )
        return given

    def decrypt_event(self, body: bytes) -> dict[str, object]:
        """Return the event in a signed body. Raises Refused."""
        sealed = parse_json_object(body).get("encrypt")
        if not isinstance(sealed, str):
            raise WebhookRejected(
                "it is not encrypted: set the Encrypt Key in the developer console"
            )
        return self._verify_token(self._decrypt(sealed))

    def decrypt_challenge(self, body: bytes) -> dict[str, object]:
        """Return the console's unsigned question.

        Raises:
            Refused: whatever else is not signed; always 401, so that no answer tells how far opening it came.
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
                "it cannot be decrypted: set channels.feishu.encrypt_key to the app's Encrypt Key"
            ) from None
        return parse_json_object(plain)

    def _verify_token(self, event: dict[str, object]) -> dict[str, object]:
        header = event.get("header")
        given = header.get("token") if isinstance(header, dict) else event.get("token")
        if not isinstance(given, str):
            raise WebhookRejected(_WRONG_VERIFICATION)
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode()):
            raise WebhookRejected(_WRONG_VERIFICATION)
        return event


class FeishuWebhook:
    """The way events come in over HTTP, and what is known of it.

    It counts as connected once Feishu proved itself: that the address is set, reachable and signed with our key
    shows in nothing else.
    """

    def __init__(
        self,
        api: FeishuApi,
        vitals: Vitals,
        timings: FeishuTimeouts,
        *,
        secrets: FeishuWebhookSecrets,
        now: Clock,
    ) -> None:
        self._api = api
        self._vitals = vitals
        self._timings = timings
        self._secrets = secrets
        self._now = now
        self._seen = ReplayGuard(now)
        self._has_verified_request = False
        self._reachable = False
        self._desk = WebhookReceiver(CHANNEL, timeout_s=timings.ack_s, on_rejected=self._on_refused)
        self.webhook: Final = WebhookEndpoint(handle=self._desk.handle)

    async def run(self, receiver: FeishuReceiver, intake: Intake) -> None:
        """Take deliveries until cancelled; look now and then whether Feishu still knows the app."""
        backoff = Backoff(self._timings)
        self._reachable = True
        with self._desk.serving(partial(self._handle, receiver, intake)):
            while True:
                self._report_state()
                await anyio.sleep(self._timings.check_s)
                await self._check(backoff)

    async def _check(self, backoff: Backoff) -> None:
        """Ask for the bot until Feishu answers."""
        while True:
            try:
                await self._api.get_bot()
            except FeishuError as error:
                self._reachable = False
                refused = error.refused or not error.retryable
                wait_s = self._timings.refused_s if refused else backoff.next_s()
                report = self._vitals.failed if refused else self._vitals.trying
                report(f"{error}; trying again in {wait_s:.0f} s")
                await anyio.sleep(wait_s)
            else:
                self._reachable = True
                backoff.reset()
                return

    def _report_state(self, refused: str = "") -> None:
        if not self._reachable:
            return
        if self._has_verified_request:
            self._vitals.connected()
            return
        why = f" The last one was refused: {refused}." if refused else ""
        self._vitals.waiting(
            "Waiting for Feishu's first request: set the app's Request URL to"
            f" https://<this gateway>{webhook_path(CHANNEL)}.{why}"
        )

    def _on_refused(self, reason: str) -> None:
        if not self._has_verified_request:
            self._report_state(reason)

    async def _handle(
        self, receiver: FeishuReceiver, intake: Intake, call: WebhookRequest
    ) -> WebhookResponse:
        if "x-lark-signature" not in call.headers:
            return _challenge_response(self._secrets.decrypt_challenge(call.body))
        signed = self._secrets.verify_signature(call, self._now())
        event = self._secrets.decrypt_event(call.body)
        self._has_verified_request = True
        self._vitals.seen()
        self._report_state()
        if event.get("type") == _URL_VERIFICATION:
            return _challenge_response(event)
        if signed in self._seen:
            intake.report_ignored(CHANNEL, Disposition.DUPLICATE, "a repeated request")
            return ACKNOWLEDGED
        verdict = await receiver.handle(json.dumps(event).encode())
        if not verdict.accepted:
            return RETRY_LATER
        self._seen.add(signed)
        return (
            WebhookResponse(body=json.dumps(verdict.response).encode())
            if verdict.response
            else ACKNOWLEDGED
        )


def _challenge_response(question: dict[str, object]) -> WebhookResponse:
    """Return the answer to the console's question."""
    return WebhookResponse(body=json.dumps({"challenge": question.get("challenge")}).encode())
