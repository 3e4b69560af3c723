"""The webhook of a `TelegramServer`. It posts updates in order, each until the response is 2xx."""

import json
import re
import time

import anyio

from gateway.playground.telegram.chats import Json, TelegramApiError
from gateway.playground.telegram.state import TelegramState
from gateway.playground.webhook_caller import WebhookCaller

_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")


class TelegramWebhookSender:
    """Delivers while a webhook is set.

    Attributes:
        caller: Posts the updates. Its URL is the webhook's.
        secret: The secret of setWebhook.
        retry_s: The pause after a failed delivery.
    """

    def __init__(
        self, state: TelegramState, *, patience_s: float = 1.0, retry_s: float = 0.05
    ) -> None:
        self.caller = WebhookCaller(patience_s=patience_s)
        self.secret = ""
        self.retry_s = retry_s
        self._state = state
        self._failed_at = 0
        self._failure = ""

    def set(self, url: str, *, secret: str) -> None:
        """Set the webhook, as setWebhook does."""
        if not url.startswith(("https://", "http://127.0.0.1", "http://localhost")):
            raise TelegramApiError(
                400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook"
            )
        if secret and not _SECRET.fullmatch(secret):
            raise TelegramApiError(400, "Bad Request: secret token contains unallowed characters")
        self._state.webhook, self.caller.url, self.secret = url, url, secret
        self._failed_at, self._failure = 0, ""
        self._state.changed()

    def info(self) -> Json:
        """Return a WebhookInfo."""
        told: Json = {
            "url": self._state.webhook,
            "has_custom_certificate": False,
            "pending_update_count": self._state.backlog,
        }
        failed = {"last_error_date": self._failed_at, "last_error_message": self._failure}
        return told | (failed if self._failed_at else {})

    async def run(self) -> None:
        """Deliver until canceled."""
        while True:
            update = self._state.oldest() if self._state.webhook else None
            if update is None:
                await self._state.change()
                continue
            if await self._delivered(update):
                self._state.confirm(update["update_id"] + 1)
                self._state.changed()
            else:
                await anyio.sleep(self.retry_s)

    async def _delivered(self, update: Json) -> bool:
        body = json.dumps(update, ensure_ascii=False).encode("utf-8", "surrogatepass")
        headers = {"Content-Type": "application/json"}
        if self.secret:
            headers["X-Telegram-Bot-Api-Secret-Token"] = self.secret
        reply = await self.caller.post(body, headers)
        if not reply.ok:
            wrong = f"Wrong response from the webhook: {reply.status} Refused"
            self._failed_at, self._failure = (
                int(time.time()),
                wrong if reply.status else "Connection timed out",
            )
            self._state.changed()
        return reply.ok
