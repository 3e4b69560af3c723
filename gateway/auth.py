"""The guard at the port: host names, admin token, foreign web pages, body sizes. Plain ASGI, nothing is buffered.

Requests made inside the process do not pass here.
"""

import json
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from hmac import compare_digest
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.config import MIN_TOKEN_CHARS, Config, ConfigError

MAX_BODY_BYTES = 10_000_000
"""Largest request body, uploads excepted."""

MAX_UPLOAD_BYTES = 100 * 1024 * 1024 + MAX_BODY_BYTES
"""Largest body of a request that brings files: what these may have together, and the form around them."""

_UPLOADS = re.compile(r"/api/threads/[^/]+/uploads")

OPEN_PATHS = frozenset({"/health"})
"""What is answered without a token."""

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - recognised, not bound

NO_TOKEN = "Send the admin token as `Authorization: Bearer ...` or `X-Api-Key`."  # noqa: S105 - a sentence
WRONG_TOKEN = "The admin token is wrong."  # noqa: S105 - a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminToken:
    """The token that opens the API; `generated` = it was made just now and must be shown once."""

    value: str
    generated: bool = False


def admin_token(config: Config) -> AdminToken | None:
    """Return the configured token, the kept one, or a new one (written with mode 0600); None with `auth: none`.

    Raises:
        ConfigError: the file cannot be read or written, or holds no usable token.
    """
    if config.gateway.auth == "none":
        return None
    if config.gateway.admin_token:
        return AdminToken(value=config.gateway.admin_token)
    try:
        return _kept(config.token_file) or _generated(config.token_file)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            f"{config.token_file}: the admin token cannot be read or written ({reason}):"
            " correct the folder's rights, or set PARLEY_HOME to another folder"
        ) from None


def _kept(file: Path) -> AdminToken | None:
    try:
        value = file.read_text("utf-8").strip()
    except FileNotFoundError:
        return None
    if len(value) < MIN_TOKEN_CHARS:
        raise ConfigError(f"{file}: holds no admin token: remove the file, a new one will be made")
    return AdminToken(value=value)


def _generated(file: Path) -> AdminToken:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    value = secrets.token_urlsafe(32)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as target:
        target.write(value + "\n")
    return AdminToken(value=value, generated=True)


class Guard:
    """Lets a request through to the application, or answers it.

    Args:
        token: The admin token; None = nobody is asked for one.
        hosts: Names under which the gateway may be addressed, besides this machine's loopback names:
            a web page that points its own name at this machine gets no answer (DNS rebinding).
        origins: Where nobody is asked for a token, the web pages that may send requests which change
            something, besides the gateway's own. A page that has the token was given it.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._app = app
        self._token = token.encode() if token is not None else None
        self._hosts = {name.lower() for name in (*LOOPBACK_NAMES, *hosts)} - {*_ANY_ADDRESS}
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Guard one connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        await self._app(scope, _limited(receive, self._body_limit(scope)), send)

    def _body_limit(self, scope: Scope) -> int:
        brings_files = scope["method"] == "POST" and _UPLOADS.fullmatch(scope["path"]) is not None
        return MAX_UPLOAD_BYTES if brings_files else self._max_body_bytes

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return why a request is not let through: status and a sentence."""
        headers = Headers(scope=scope)
        host = _host_name(headers.get("host", ""))
        if host not in self._hosts:
            return 421, "This gateway is not addressed by that name: see gateway.allowed_hosts."
        if self._token is None and self._is_foreign(scope["method"], headers):
            return 403, "This web page may not call the gateway: see gateway.cors_origins."
        if scope["path"] not in OPEN_PATHS and (refusal := self._without_token(headers)):
            return refusal
        length, limit = headers.get("content-length", "0"), self._body_limit(scope)
        if not (length.isascii() and length.isdigit()) or int(length[:20]) > limit:
            return 413, f"The request body is larger than {limit:,} bytes."
        return None

    def _without_token(self, headers: Headers) -> tuple[int, str] | None:
        if self._token is None:
            return None
        given = _given_token(headers)
        if given is None:
            return 401, NO_TOKEN
        return None if compare_digest(given, self._token) else (401, WRONG_TOKEN)

    def _is_foreign(self, method: str, headers: Headers) -> bool:
        origin = headers.get("origin", "").lower()
        if method in _SAFE_METHODS or not origin or origin in self._origins:
            return False
        return urlsplit(origin).netloc != headers.get("host", "").lower()


def _host_name(host: str) -> str:
    """Return the name in a Host header, without port and brackets.

    >>> _host_name("LocalHost:8001"), _host_name("[::1]:80"), _host_name("a:b:c"), _host_name("x@localhost")
    ('localhost', '::1', '', 'x@localhost')
    """
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, _, port = host.partition(":")
    return name if not port or port.isdigit() else ""


def _given_token(headers: Headers) -> bytes | None:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip().encode("latin-1")
    value = headers.get("x-api-key", "").strip()
    return value.encode("latin-1") if value else None


def _limited(receive: Receive, max_bytes: int) -> Receive:
    """Return `receive` that gives up on a body which is longer than it may be, whatever was announced."""
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > max_bytes:
            raise HTTPException(413, f"The request body is larger than {max_bytes:,} bytes.")
        return message

    return limited


async def _refuse(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 401:  # noqa: PLR2004 - Unauthorized
        headers.append((b"www-authenticate", b'Bearer realm="parley"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
