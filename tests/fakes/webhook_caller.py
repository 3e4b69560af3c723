"""How a platform's server calls the bot over HTTP: one POST, bounded, to a real port or into an application."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import anyio
import httpx

_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Reused for all calls, because creating it would take longer than a call."""


@dataclass(frozen=True, slots=True)
class WebhookReply:
    """What the bot answered; status 0 = nothing in time."""

    status: int
    body: bytes = b""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class WebhookCaller:
    """Posts to one address.

    Attributes:
        url: Where; "" = nowhere yet.
        transport: Instead of the network.
        patience_s: How long an answer may take.
        away: Whether nothing gets through.
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
