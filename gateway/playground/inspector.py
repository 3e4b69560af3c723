"""The inspector: a log of what people, platforms, the bot and the model do, with requests as curl commands."""

import json
import shlex
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web
from aiohttp.typedefs import Middleware

from gateway.logs import SecretRedactor

MAX_ENTRIES = 3_000
MAX_CHARS = 20_000
"""Longer contents are cut."""

_QUIET_HEADERS = frozenset(
    {"host", "content-length", "accept", "accept-encoding", "connection", "user-agent"}
)


@dataclass(slots=True, kw_only=True)
class InspectorEntry:
    """One line of the inspector.

    Attributes:
        number: Counts the entries.
        revision: Counts additions and updates.
        at: The time of the event, seconds since the epoch.
        source: person, slack, telegram, feishu, model, service or weather.
        kind: event, redelivery, acknowledged, given up, call, decision, log or action.
        title: The event, in one line.
        detail: The event's content.
        outcome: The response of a call.
        curl: The command that repeats a call or an event; "" for other kinds.
    """

    number: int
    revision: int
    at: float
    source: str
    kind: str
    title: str
    detail: str = ""
    outcome: str = ""
    failed: bool = False
    curl: str = ""

    def json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Inspector:
    """Keeps the newest entries. Masks secrets.

    Args:
        changed: Called after each addition.
    """

    changed: Callable[[], object]
    entries: deque[InspectorEntry] = field(default_factory=lambda: deque(maxlen=MAX_ENTRIES))
    _redact: SecretRedactor = field(default_factory=lambda: SecretRedactor(()))
    _revision: int = 0
    _number: int = 0

    def mask(self, secrets: Iterable[str]) -> None:
        """Set the values to hide in all entries."""
        self._redact = SecretRedactor(secrets)

    @property
    def revision(self) -> int:
        """Number of additions and updates so far."""
        return self._revision

    def since(self, revision: int) -> list[dict[str, Any]]:
        """Return the entries that were added or updated after a revision."""
        return [entry.json() for entry in self.entries if entry.revision > revision]

    def add(self, source: str, kind: str, title: str, **more: Any) -> InspectorEntry:  # noqa: ANN401 - fields
        """Add an entry. `more`: detail (any JSON value), curl, failed."""
        self._number += 1
        self._revision += 1
        entry = InspectorEntry(
            number=self._number,
            revision=self._revision,
            at=time.time(),
            source=source,
            kind=kind,
            title=self._redact(title),
            detail=self._redact(as_text(more.get("detail"))),
            curl=self._redact(more.get("curl", "")),
            failed=more.get("failed", False),
        )
        self.entries.append(entry)
        self.changed()
        return entry

    def finish(self, entry: InspectorEntry, outcome: str, *, failed: bool) -> None:
        """Add the response of a call."""
        self._revision += 1
        entry.revision = self._revision
        entry.outcome, entry.failed = self._redact(outcome[:MAX_CHARS]), failed
        self.changed()

    def watch(self, source: str) -> Middleware:
        """Return an aiohttp middleware that adds the calls of a server."""

        @web.middleware
        async def watched(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            body = b"" if request.content_type.startswith("multipart/") else await request.read()
            name = request.path.rpartition("/")[2]
            is_poll = name == "getUpdates"
            entry = None if is_poll else self._called(source, request, body)
            response = await handler(request)
            outcome = _outcome(request, response)
            failed = not outcome.startswith(("200", "101")) or '"ok": false' in outcome
            if is_poll and (failed or '"result": []' not in outcome):
                entry = self._called(source, request, body)
            if entry is not None:
                self.finish(entry, outcome, failed=failed)
            return response

        return watched

    def _called(self, source: str, request: web.Request, body: bytes) -> InspectorEntry:
        is_api = not request.headers.get("Upgrade")
        name = request.path if source == "feishu" else request.path.rpartition("/")[2]
        title = f"{request.method} {name or request.path}" if is_api else "opens its connection"
        shown = as_text(_readable(request, body))
        return self.add(source, "call", title, detail=shown, curl=_curl(request, body))


def as_text(value: object) -> str:
    """Return a value as text: a string as it is, other values as JSON. Cuts long texts."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}… ({len(text)} characters)"


def _readable(request: web.Request, body: bytes) -> object:
    if request.content_type.startswith("multipart/"):
        return f"({request.content_type}, {request.content_length} bytes)"
    text = body.decode("utf-8", "replace")
    if request.content_type == "application/x-www-form-urlencoded":
        return {name: _parsed(value) for name, value in parse_qsl(text, keep_blank_values=True)}
    return _parsed(text)


def _parsed(text: str) -> object:
    """Return the value of a JSON text, or the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _curl(request: web.Request, body: bytes) -> str:
    words = ["curl", "-X", request.method, str(request.url)]
    for name, value in request.headers.items():
        if name.lower() not in _QUIET_HEADERS:
            words += ["-H", f"{name}: {value}"]
    if body:
        words += ["--data-binary", body.decode("utf-8", "replace")]
    return shlex.join(words)


def _outcome(request: web.Request, response: web.StreamResponse) -> str:
    if request.transport is None or request.transport.is_closing():
        return "the connection broke"
    body = response.body if isinstance(response, web.Response) else None
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else ""
    return f"{response.status} {as_text(_parsed(text))}".strip()
