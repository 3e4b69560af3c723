"""Calls the bot over HTTP like a platform's server: one POST with a time limit, to a port or an application."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import anyio
import httpx

_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Reused for all calls, because creating it would take longer than a call."""


@dataclass(frozen=True, slots=True)
class WebhookReply:
    """The bot's response; status 0 = no response in time."""

    status: int
    body: bytes = b""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class WebhookCaller:
    """Posts to one URL.

    Attributes:
        url: The URL; "" = not known yet.
        transport: Replaces the network.
        patience_s: How long a response may take, seconds.
        away: Whether the network is down.
    """

    def __init__(self, *, patience_s: float) -> None:
        self.url = ""
        self.transport: httpx.AsyncBaseTransport | None = None
        self.patience_s = patience_s
        self.away = False

    async def post(self, body: bytes, headers: Mapping[str, str]) -> WebhookReply:
        """Make one call."""
        if self.away or not self.url:
            return WebhookReply(0)
        with anyio.move_on_after(self.patience_s):
            try:
                async with httpx.AsyncClient(
                    transport=self.transport, verify=_TLS, trust_env=False, timeout=self.patience_s
                ) as client:
                    answer = await client.post(self.url, content=body, headers=dict(headers))
            except httpx.HTTPError:
                return WebhookReply(0)
            return WebhookReply(answer.status_code, answer.content)
        return WebhookReply(0)
