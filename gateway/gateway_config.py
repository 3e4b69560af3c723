"""GatewayConfig: the `gateway` section of the configuration."""

import ipaddress
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gateway.proxies import parse_networks
from gateway.rate_limits import ConnectionConfig, RateLimitConfig

MIN_TOKEN_CHARS = 8
"""Shorter admin tokens are rejected."""

GOOD_TOKEN_CHARS = 20
"""Shorter admin tokens cause a warning."""


def is_sendable_token(token: str) -> bool:
    r"""Return whether every client can send a token in a header.

    >>> is_sendable_token("a-token 1"), is_sendable_token("p\u00e4ss-word"), is_sendable_token("token\n")
    (True, False, False)
    """
    return token.isascii() and token.isprintable() and token == token.strip()


class GatewayConfig(BaseModel):
    """The `gateway` section: address, access control and limits of the HTTP server.

    Attributes:
        port: 0 = any free port.
        auth: `none` is allowed only for loopback addresses.
        admin_token: None = $PARLEY_ADMIN_TOKEN if it is set, else the generated token in the data folder.
        trusted_proxies: Addresses or networks of reverse proxies whose X-Forwarded-For and -Proto are trusted.
        root_path: The path below which a reverse proxy publishes Parley, such as /parley.
        allowed_hosts: Additional names allowed in the Host header.
        cors_origins: Web pages that may call the API from a browser, such as https://chat.example.org.
        webhook_hosts: Private names, addresses or networks that runs may send webhooks to.
        rate_limit: Rate limits of clients.
        connections: Limits of network connections.
        required_channels: Names of channels that must work for the service to be ready. Others may be broken.
        metrics: Who may read /metrics: clients with the token, everyone, or no one.
        stream_end_event: Whether streams of runs end with `event: end`; never for LangGraph's own SDKs.
        watchdog_s: How long the event loop must be blocked before all stacks are logged, seconds; 0 = never.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8001, ge=0, le=65535)
    auth: Literal["token", "none"] = "token"
    admin_token: str | None = Field(default=None, min_length=MIN_TOKEN_CHARS, repr=False)
    trusted_proxies: list[str] = Field(default_factory=list)
    root_path: str = Field(default="", pattern=r"^(/[A-Za-z0-9._~-]+)*$")
    allowed_hosts: list[str] = Field(default_factory=list)
    cors_origins: list[str] = Field(default_factory=list)
    webhook_hosts: list[str] = Field(default_factory=list)
    rate_limit: RateLimitConfig = Field(default_factory=RateLimitConfig)
    connections: ConnectionConfig = Field(default_factory=ConnectionConfig)
    required_channels: list[str] = Field(default_factory=list)
    metrics: Literal["token", "open", "off"] = "token"
    stream_end_event: bool = True
    watchdog_s: float = Field(default=10.0, ge=0)

    @field_validator("admin_token")
    @classmethod
    def _can_be_sent(cls, token: str | None) -> str | None:
        if token is not None and not is_sendable_token(token):
            raise ValueError(
                "must consist of ASCII letters, digits and punctuation without surrounding spaces, as headers require"
            )
        return token

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, entries: list[str]) -> list[str]:
        try:
            parse_networks(entries)
        except ValueError:
            raise ValueError(
                "must be addresses or networks, such as 10.0.0.5 or 10.0.0.0/8"
            ) from None
        return entries

    @field_validator("cors_origins")
    @classmethod
    def _no_wildcard(cls, origins: list[str]) -> list[str]:
        if "*" in origins:
            raise ValueError("`*` would allow every web page: list the origins")
        return origins

    @property
    def is_loopback(self) -> bool:
        """Whether only clients on this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
