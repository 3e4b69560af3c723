"""The fake's HTTP deliveries.

They are encrypted, signed, and repeated until accepted.
"""

import base64
import hashlib
import json
import os
import time

import anyio
from Crypto.Cipher import AES
from Crypto.Util.Padding import pad

from gateway.playground.feishu.state import FeishuEvent, FeishuState
from gateway.playground.webhook_caller import WebhookCaller, WebhookReply

ENCRYPT_KEY = "feishu-encrypt-key"
VERIFICATION_TOKEN = "feishu-verification-token"


class FeishuWebhookSender:
    """Posts each event repeatedly until the answer is 200.

    Attributes:
        caller: Sends the requests.
        encrypt_key: The app's Encrypt Key; "" = none is set in the console.
        token: The app's Verification Token.
        verified: Whether the app answered the console's question.
    """

    def __init__(self, state: FeishuState, *, ack_s: float, redeliver_s: float) -> None:
        self.caller = WebhookCaller(patience_s=ack_s)
        self.encrypt_key = ENCRYPT_KEY
        self.token = VERIFICATION_TOKEN
        self.verified = False
        self._state = state
        self._redeliver_s = redeliver_s

    def sealed(self, plain: bytes) -> bytes:
        """Return an encrypted body with this content."""
        if not self.encrypt_key:
            return plain
        iv = os.urandom(AES.block_size)
        cipher = AES.new(hashlib.sha256(self.encrypt_key.encode()).digest(), AES.MODE_CBC, iv=iv)
        data = iv + cipher.encrypt(pad(plain, AES.block_size))
        return json.dumps({"encrypt": base64.b64encode(data).decode()}).encode()

    def signed(self, body: bytes, *, at: float | None = None) -> dict[str, str]:
        """Return the headers that sign a body."""
        moment, nonce = str(int(time.time() if at is None else at)), os.urandom(8).hex()
        words = (moment + nonce + self.encrypt_key).encode() + body
        return {
            "Content-Type": "application/json",
            "X-Lark-Request-Timestamp": moment,
            "X-Lark-Request-Nonce": nonce,
            "X-Lark-Signature": hashlib.sha256(words).hexdigest(),
        }

    async def post(self, event: object) -> WebhookReply:
        """Send an event once, encrypted and signed."""
        body = self.sealed(_json(event))
        return await self.caller.post(body, self.signed(body))

    async def ask(self, **more: str) -> WebhookReply:
        """Send the console's question, which is encrypted and not signed."""
        question = {"type": "url_verification", "token": self.token, "challenge": "c-1", **more}
        return await self.caller.post(
            self.sealed(_json(question)), {"Content-Type": "application/json"}
        )

    async def verify(self) -> None:
        """Ask until the app answers, like a person who presses Save in the console. Then send a signed request."""
        while not self.verified:
            asked = await self.ask()
            known = asked.ok and json.loads(asked.body) == {"challenge": "c-1"}
            event = {"header": {"event_type": "im.chat.updated_v1", "token": self.token}}
            self.verified = known and (await self.post(event)).ok
            await anyio.sleep(0 if self.verified else 0.02)
        self._state.changed()

    async def deliver(self, event: FeishuEvent) -> None:
        """Post an event until it is accepted."""
        while not event.acked:
            event.pushes += 1
            body = self.sealed(event.raw or _json(event.payload))
            reply = await self.caller.post(body, self.signed(body))
            event.codes.append(reply.status)
            event.acked = reply.status == 200
            if event.acked and reply.body:
                event.answer = json.loads(reply.body)
            self._state.changed()
            if event.once:
                return
            if not event.acked:
                await anyio.sleep(self._redeliver_s)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
