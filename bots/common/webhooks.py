"""Webhooks: what an adapter offers, and the gateway mounts without knowing the platform.

A request is bounded before it is read, verified on its raw bytes before it is parsed, and answered with 200
only after the bus committed it. Otherwise the platform sends it again.

To receive by HTTP, an adapter makes one `WebhookReceiver`, returns its `endpoint` as `webhook`, and runs its
connection loop inside `receiver.serving(handler)`; `BaseAdapter` does so. `SignedWebhook` handles signed requests, and
keeps the health of a channel that waits for the platform's first one.
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
"""How old, or how far ahead, the time of a signed request may be (Slack's documentation and SDK: 5 minutes)."""

MAX_BODY_BYTES = 1_000_000
"""Largest request. The largest that a platform makes is a Feishu text of 150 KB, encrypted and in base64."""

_MAX_REMEMBERED = 20_000
_LOG_INTERVAL_S = 60.0
_MAX_DIGITS = 12


def webhook_path(channel: str) -> str:
    """Return where the gateway receives a channel's requests.

    >>> webhook_path("telegram-support")
    '/webhooks/telegram-support'
    """
    return f"/webhooks/{channel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRequest:
    """A request as it arrived.

    Attributes:
        headers: By lower-case name.
        body: Unparsed.
        method: POST; GET where a platform verifies the URL so (WeCom).
        query: Query parameters; WeCom signs there.
    """

    headers: Mapping[str, str]
    body: bytes
    method: str = "POST"
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookResponse:
    """The response. `headers` may name a content type; JSON otherwise."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


ACKNOWLEDGED = WebhookResponse()
"""The platform may forget the request."""

RETRY_LATER = WebhookResponse(
    status=503, body=json.dumps({"detail": "Not accepted now; send it again."}).encode()
)
"""Nothing was kept."""


class WebhookRejected(Exception):
    """The request is not the platform's. The text says why, for the operator; the sender is told nothing.

    Attributes:
        status: 401, or 400 for a verified request that cannot be parsed.
    """

    def __init__(self, reason: str, *, status: int = 401) -> None:
        super().__init__(reason)
        self.status = status


WebhookHandler = Callable[[WebhookRequest], Awaitable[WebhookResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEndpoint:
    """What the gateway mounts.

    Attributes:
        handle: Responds to a request; never raises.
        max_bytes: Largest body.
        read_timeout_s: How long the body may take to arrive, seconds. Nothing is verified by then.
        methods: HTTP methods that the platform uses: POST, and GET if it verifies the URL so.
    """

    handle: WebhookHandler
    max_bytes: int = MAX_BODY_BYTES
    read_timeout_s: float = 10.0
    methods: frozenset[str] = frozenset({"POST"})


@runtime_checkable
class SupportsWebhook(Protocol):
    """An adapter whose platform may call by HTTP."""

    @property
    def webhook(self) -> WebhookEndpoint | None:
        """The endpoint that the gateway mounts at `webhook_path(name)`; None if the configuration asks for none."""
        ...


class WebhookReceiver:
    """Responds to requests while its adapter runs; outside of that, and after any failure, the platform retries.

    Args:
        channel: Instance name, for the log.
        timeout_s: How long one request may take. Slack and Feishu wait 3 s.

    Attributes:
        endpoint: What the gateway mounts.
        on_rejected: Called with the reason of every rejection, so that health can name a wrong secret.
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
        """Respond inside the block; requests still in progress at its end are left to the platform's retry."""
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
        except Exception:  # one request's boundary: the platform still has it
            log.exception("%s: webhook request failed; the platform retries", self._channel)
        return RETRY_LATER

    def _reject(self, reason: str) -> None:
        """Log rejections once a minute: anybody on the internet can cause them."""
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
    """Health of a channel whose platform calls us: connected once a verified request arrived.

    Nothing else shows that the URL is set, reachable and signed with our secret. Until then health shows what
    the operator has to set, and why the last request was rejected.

    Args:
        health: The channel's.
        setup_hint: What the operator does so that the platform calls, as a sentence.
    """

    def __init__(self, health: HealthTracker, setup_hint: str) -> None:
        self._health = health
        self._setup_hint = setup_hint
        self._ready = False
        self._verified = False

    def mark_ready(self) -> None:
        """Record that our side works, such as the token. Call it after every successful check."""
        self._ready = True
        self._show()

    def mark_unready(self) -> None:
        """Record that our side does not work: requests alone do not make the channel connected."""
        self._ready = False

    def mark_verified(self) -> None:
        """Record that a request was the platform's."""
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
    """Signatures of accepted requests: a repeated request within its lifetime changes nothing.

    Args:
        now: Wall clock.
    """

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._expires_at: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, signature: str) -> bool:
        return self._expires_at.get(signature, 0.0) > self._now()

    def add(self, signature: str) -> None:
        """Remember a signature for as long as its time may count as recent."""
        now = self._now()
        self._expires_at[signature] = now + 2 * MAX_AGE_S
        while self._expires_at and (
            len(self._expires_at) > _MAX_REMEMBERED or next(iter(self._expires_at.values())) <= now
        ):
            self._expires_at.popitem(last=False)


class SignedWebhook(ABC, Generic[T]):
    """Responds to signed requests, each one once; health shows whether the platform calls.

    Args:
        channel: Instance name.
        health: The channel's.
        requests: Where the requests arrive.
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
        """Check the bot's account every now and then (see `ConnectionLoop`). Raises what `check` raises."""
        while True:
            try:
                await check()
            except BusError:
                self._health.mark_unready()
                raise
            self._health.mark_ready()
            await anyio.sleep(interval_s)

    async def handle(self, intake: Intake, request: WebhookRequest) -> WebhookResponse:
        """Respond to a request; what was accepted before is acknowledged and counted. Raises WebhookRejected."""
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
        """Return the signature and the content of a recent request of the platform. Raises WebhookRejected."""

    @abstractmethod
    async def accept(self, intake: Intake, content: T) -> WebhookResponse:
        """Hand over the content of a verified request. Raises WebhookRejected."""


def secrets_match(given: str, expected: str) -> bool:
    """Compare a signature or token in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def is_recent(timestamp: str, now: float) -> bool:
    """Return whether a signed time, in Unix seconds, is close enough to the clock.

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
