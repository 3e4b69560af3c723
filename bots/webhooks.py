"""Deliveries by HTTP: what an adapter offers, and the gateway mounts without knowing the platform.

A delivery is bounded before it is read, proved to be the platform's on its raw bytes before it is parsed, and
answered with 200 only when the bus has kept it; whatever else happens, the platform sends it again.
"""

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

import anyio

from bus.errors import BusError
from bus.platform import Clock

_log: Final = logging.getLogger(__name__)

FRESH_S: Final = 300.0
"""How old, or how far ahead, a signed delivery's time may be (Slack's documents and SDK: 5 minutes)."""

MAX_BODY_BYTES: Final = 1_000_000
"""Largest delivery. The largest that a platform makes is a Feishu text of 150 KB, encrypted and in base64."""

_REMEMBERED: Final = 20_000
_COMPLAIN_EVERY_S: Final = 60.0
_CLOCK_DIGITS: Final = 12


def path_of(channel: str) -> str:
    """Return where the gateway takes a channel's deliveries.

    >>> path_of("slack")
    '/webhooks/slack'
    """
    return f"/webhooks/{channel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A delivery as it arrived; `headers` have lower-case names, `body` is unread."""

    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the platform is answered. `headers` may name a content type; JSON otherwise."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


DONE: Final = Answer()
"""The platform may forget the delivery."""

AGAIN: Final = Answer(
    status=503, body=json.dumps({"detail": "Not taken now; send it again."}).encode()
)
"""Nothing was kept."""


class Refused(Exception):
    """This is not the platform's. The text says why, for the operator; the sender learns nothing.

    Attributes:
        status: 401, or 400 for what the platform proved to be its own and that nobody can read.
    """

    def __init__(self, reason: str, *, status: int = 401) -> None:
        super().__init__(reason)
        self.status = status


Take = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A channel's door.

    Attributes:
        take: Answers a delivery; never raises.
        max_bytes: How large a body may be.
        read_s: How long it may take to arrive, seconds. Nobody has proved anything by then.
    """

    take: Take
    max_bytes: int = MAX_BODY_BYTES
    read_s: float = 10.0


@runtime_checkable
class Webhooks(Protocol):
    """A platform that may deliver by HTTP."""

    @property
    def webhook(self) -> Webhook | None:
        """The door that the gateway mounts at `path_of(name)`; None where the configuration asks for none."""
        ...


class Desk:
    """Takes deliveries while its adapter runs. Outside of that, and for what fails, the platform comes again.

    Args:
        channel: For the log.
        within_s: How long a delivery may take. Slack and Feishu wait 3 s.
        refused: Told why a delivery was not believed, so that health can name a wrong secret.
    """

    def __init__(self, channel: str, *, within_s: float, refused: Callable[[str], None]) -> None:
        self._channel = channel
        self._within_s = within_s
        self._tell = refused
        self._handler: Take | None = None
        self._open: set[anyio.CancelScope] = set()
        self._complained_at = -_COMPLAIN_EVERY_S
        self._unheard = 0

    @contextmanager
    def staffed(self, handler: Take) -> Iterator[None]:
        """Take deliveries inside the block; what is in work at its end is given back to the platform."""
        self._handler = handler
        try:
            yield
        finally:
            self._handler = None
            for scope in self._open:
                scope.cancel()

    async def take(self, call: Call) -> Answer:
        """Answer one delivery. Never raises."""
        handler = self._handler
        if handler is None:
            return AGAIN
        with anyio.move_on_after(self._within_s) as scope:
            self._open.add(scope)
            try:
                return await self._answered(handler, call)
            finally:
                self._open.discard(scope)
        _log.warning("%s: a delivery was not kept in time; it will come again", self._channel)
        return AGAIN

    async def _answered(self, handler: Take, call: Call) -> Answer:
        try:
            return await handler(call)
        except Refused as refusal:
            self._complain(str(refusal))
            return Answer(status=refusal.status, body=b'{"detail": "Refused."}')
        except BusError as error:
            _log.warning(
                "%s: a delivery was not taken, it will come again: %s", self._channel, error
            )
        except Exception:  # noqa: BLE001 - one delivery's boundary: the platform still has it
            _log.exception("%s: a delivery was not kept, it will come again", self._channel)
        return AGAIN

    def _complain(self, reason: str) -> None:
        """Log a refusal, once a minute: anybody on the internet can cause them."""
        self._tell(reason)
        self._unheard += 1
        now = time.monotonic()
        if now - self._complained_at >= _COMPLAIN_EVERY_S:
            _log.warning("%s: %d deliveries were refused: %s", self._channel, self._unheard, reason)
            self._complained_at, self._unheard = now, 0


class Seen:
    """Signatures of deliveries that were taken over: who repeats one within its time changes nothing.

    Args:
        now: The wall clock.
    """

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._until: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, signature: str) -> bool:
        return self._until.get(signature, 0.0) > self._now()

    def add(self, signature: str) -> None:
        """Remember a signature for as long as its time may count as fresh."""
        now = self._now()
        self._until[signature] = now + 2 * FRESH_S
        while self._until and (
            len(self._until) > _REMEMBERED or next(iter(self._until.values())) <= now
        ):
            self._until.popitem(last=False)


def fresh(timestamp: str, now: float) -> bool:
    """Tell whether a signed time, in Unix seconds, is near enough to the clock.

    >>> fresh("1700000000", 1700000200.0), fresh("1700000000", 1700000400.0), fresh("0x1", 1.0), fresh("", 0.0)
    (True, False, False, False)
    """
    plain = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _CLOCK_DIGITS
    return plain and abs(now - int(timestamp)) <= FRESH_S


def json_object(body: bytes) -> dict[str, object]:
    """Return a body's JSON object. Raises Refused (400)."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Refused("the body is not a JSON object", status=400)
    return value
