"""Webhooks: the endpoints of adapters, which the gateway mounts without knowing the platform.

A request's size is limited before its body is read, and its raw bytes are verified before they are parsed. The response
is 200 only after the bus has committed the event. Otherwise the platform sends the request again.

To receive HTTP requests, an adapter creates a `WebhookReceiver`, returns its `endpoint` as `webhook`, and runs its
connection loop inside `receiver.serving(handler)`. `BaseAdapter` does this. `SignedWebhook` handles signed requests,
and tracks the health of a channel until the platform's first one.
"""

import hmac
import json
import logging
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar, runtime_checkable

import anyio

from bots.common.health import HealthTracker
from bus.errors import BusError
from bus.platform import Clock, Disposition, Intake

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_AGE_S = 300.0
"""Maximum age (or lead) of a signed request, seconds (Slack's documentation and SDK: 5 minutes)."""

MAX_BODY_BYTES = 1_000_000
"""Maximum size of a request, bytes. The largest request is an encrypted Feishu text of 150 KB in base64."""

_MAX_REMEMBERED = 20_000
_LOG_INTERVAL_S = 60.0
_MAX_DIGITS = 12


def webhook_path(channel: str) -> str:
    """Return the URL path at which the gateway receives a channel's requests.

    >>> webhook_path("telegram-support")
    '/webhooks/telegram-support'
    """
    return f"/webhooks/{channel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRequest:
    """A received request.

    Attributes:
        headers: Headers by lower-case name.
        body: The raw body.
        method: POST, or GET if the platform verifies the URL with it (WeCom).
        query: Query parameters. WeCom puts its signature there.
    """

    headers: Mapping[str, str]
    body: bytes
    method: str = "POST"
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookResponse:
    """The response. `headers` may set a content type; the default is JSON."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


ACKNOWLEDGED = WebhookResponse()
"""The platform may forget the request."""

RETRY_LATER = WebhookResponse(
    status=503, body=json.dumps({"detail": "Not accepted now; send it again."}).encode()
)
"""The request was not stored."""


class WebhookRejected(Exception):
    """The request does not come from the platform. The text says why, for the operator only.

    Attributes:
        status: 401, or 400 for a verified request that cannot be parsed.
    """

    def __init__(self, reason: str, *, status: int = 401) -> None:
        super().__init__(reason)
        self.status = status


WebhookHandler = Callable[[WebhookRequest], Awaitable[WebhookResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEndpoint:
    """The endpoint that the gateway mounts.

    Attributes:
        handle: Responds to a request. Never raises.
        max_bytes: Maximum size of a body, bytes.
        read_timeout_s: Time limit for the body to arrive, seconds. Until then, the request is unverified.
        methods: HTTP methods that the platform uses: POST, and GET if it verifies the URL with it.
    """

    handle: WebhookHandler
    max_bytes: int = MAX_BODY_BYTES
    read_timeout_s: float = 10.0
    methods: frozenset[str] = frozenset({"POST"})


@runtime_checkable
class SupportsWebhook(Protocol):
    """An adapter whose platform can send HTTP requests."""

    @property
    def webhook(self) -> WebhookEndpoint | None:
        """The endpoint that the gateway mounts at `webhook_path(name)`; None if the configuration needs none."""
        ...


class WebhookReceiver:
    """Responds to requests while its adapter runs. At other times, and after failures, the platform retries.

    Args:
        channel: Instance name, for the log.
        timeout_s: Time limit of one request, seconds. Slack and Feishu wait 3 s.

    Attributes:
        endpoint: The endpoint for the gateway.
        on_rejected: Called with the reason of each rejection, so that health can report a wrong secret.
    """

    def __init__(self, channel: str, *, timeout_s: float) -> None:
        self.on_rejected: Callable[[str], None] | None = None
        self._channel = channel
        self._timeout_s = timeout_s
        self._handler: WebhookHandler | None = None
        self._running: set[anyio.CancelScope] = set()
        self._logged_at = -_LOG_INTERVAL_S
        self._unlogged = 0
        self.endpoint = WebhookEndpoint(handle=self.handle)

    @contextmanager
    def serving(self, handler: WebhookHandler) -> Iterator[None]:
        """Respond inside the block. The platform retries requests that are in progress when the block ends."""
        self._handler = handler
        try:
            yield
        finally:
            self._handler = None
            for scope in self._running:
                scope.cancel()

    async def handle(self, request: WebhookRequest) -> WebhookResponse:
        """Respond to one request. Never raises."""
        handler = self._handler
        if handler is None:
            return RETRY_LATER
        with anyio.move_on_after(self._timeout_s) as scope:
            self._running.add(scope)
            try:
                return await self._respond(handler, request)
            finally:
                self._running.discard(scope)
        log.warning("%s: webhook request timed out; the platform retries", self._channel)
        return RETRY_LATER

    async def _respond(self, handler: WebhookHandler, request: WebhookRequest) -> WebhookResponse:
        try:
            return await handler(request)
        except WebhookRejected as rejection:
            self._reject(str(rejection))
            return WebhookResponse(status=rejection.status, body=b'{"detail": "Refused."}')
        except BusError as error:
            log.warning(
                "%s: webhook request not accepted; the platform retries: %s", self._channel, error
            )
        except Exception:  # The boundary of one request, which the platform will retry.
            log.exception("%s: webhook request failed; the platform retries", self._channel)
        return RETRY_LATER

    def _reject(self, reason: str) -> None:
        """Log rejections once a minute, because anyone on the internet can cause them."""
        if self.on_rejected is not None:
            self.on_rejected(reason)
        self._unlogged += 1
        now = time.monotonic()
        if now - self._logged_at >= _LOG_INTERVAL_S:
            log.warning(
                "%s: rejected %d webhook requests: %s", self._channel, self._unlogged, reason
            )
            self._logged_at, self._unlogged = now, 0


class WebhookHealth:
    """Health of a channel whose platform sends HTTP requests. It is connected after the first verified request.

    Only such a request shows that the operator has set the URL, that the platform can reach it, and that the secret is
    right. Until then, health shows what the operator must set and why the last request was rejected.

    Args:
        health: The channel's health.
        setup_hint: A sentence that says what the operator must set.
    """

    def __init__(self, health: HealthTracker, setup_hint: str) -> None:
        self._health = health
        self._setup_hint = setup_hint
        self._ready = False
        self._verified = False

    def mark_ready(self) -> None:
        """Record that our side works, for example that the token is valid. Call it after every successful check."""
        self._ready = True
        self._show()

    def mark_unready(self) -> None:
        """Record that our side does not work. Until it does, requests do not make the channel connected."""
        self._ready = False

    def mark_verified(self) -> None:
        """Record a verified request from the platform."""
        self._verified = True
        self._health.mark_event()
        self._show()

    def mark_rejected(self, reason: str) -> None:
        """Record why a request was rejected."""
        if not self._verified:
            self._show(f" The last request was rejected: {reason}.")

    def _show(self, rejected: str = "") -> None:
        if self._ready and self._verified:
            self._health.mark_connected()
        elif self._ready:
            self._health.mark_waiting(self._setup_hint + rejected)


class ReplayGuard:
    """Remembers the signatures of accepted requests while they are recent, so that a repeated request has no effect.

    Args:
        now: Wall clock.
    """

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._expires_at: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, signature: str) -> bool:
        return self._expires_at.get(signature, 0.0) > self._now()

    def add(self, signature: str) -> None:
        """Remember a signature while its time can count as recent."""
        now = self._now()
        self._expires_at[signature] = now + 2 * MAX_AGE_S
        while self._expires_at and (
            len(self._expires_at) > _MAX_REMEMBERED or next(iter(self._expires_at.values())) <= now
        ):
            self._expires_at.popitem(last=False)


class SignedWebhook(ABC, Generic[T]):
    """Handles each signed request once. Health shows whether the platform sends requests.

    Args:
        channel: Instance name.
        health: The channel's health.
        requests: Receives the requests.
        setup_hint: As for `WebhookHealth`.
        now: Wall clock.
    """

    def __init__(
        self,
        channel: str,
        health: HealthTracker,
        requests: WebhookReceiver,
        *,
        setup_hint: str,
        now: Clock,
    ) -> None:
        self._channel = channel
        self._now = now
        self._replays = ReplayGuard(now)
        url = f"https://<this gateway>{webhook_path(channel)}"
        self._health = WebhookHealth(health, f"{setup_hint} to {url}.")
        requests.on_rejected = self._health.mark_rejected

    async def check_regularly(
        self, check: Callable[[], Awaitable[object]], *, interval_s: float
    ) -> None:
        """Check the bot's account periodically. See `ConnectionLoop`. Raises what `check` raises."""
        while True:
            try:
                await check()
            except BusError:
                self._health.mark_unready()
                raise
            self._health.mark_ready()
            await anyio.sleep(interval_s)

    async def handle(self, intake: Intake, request: WebhookRequest) -> WebhookResponse:
        """Respond to a request. Acknowledges and counts a repeated one. Raises WebhookRejected."""
        signature, content = self.verify(request)
        self._health.mark_verified()
        if signature in self._replays:
            intake.report_ignored(self._channel, Disposition.DUPLICATE, "a repeated request")
            return ACKNOWLEDGED
        response = await self.accept(intake, content)
        if response.status == ACKNOWLEDGED.status:
            self._replays.add(signature)
        return response

    @abstractmethod
    def verify(self, request: WebhookRequest) -> tuple[str, T]:
        """Return the signature and the content of a recent request from the platform. Raises WebhookRejected."""

    @abstractmethod
    async def accept(self, intake: Intake, content: T) -> WebhookResponse:
        """Process the content of a verified request. Raises WebhookRejected."""


def secrets_match(given: str, expected: str) -> bool:
    """Compare a signature or token in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def is_recent(timestamp: str, now: float) -> bool:
    """Return whether a signed time (Unix seconds) is close enough to the clock.

    >>> [is_recent(text, 1700000200.0) for text in ("1700000000", "1699999800", "0x1", "")]
    [True, False, False, False]
    """
    digits = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _MAX_DIGITS
    return digits and abs(now - int(timestamp)) <= MAX_AGE_S


def parse_json_object(body: bytes) -> dict[str, object]:
    """Return the JSON object of a body. Raises WebhookRejected (400)."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise WebhookRejected("the body is not a JSON object", status=400)
    return value
