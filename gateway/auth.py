"""Access control of the network port: Host header, admin token, Origin, rate limits and body size. Plain ASGI.

Requests made inside the process do not pass through it.
"""

import json
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from hmac import compare_digest
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.api_tokens import TOKEN_SCOPE, ApiTokenLookup
from gateway.audit import ANONYMOUS, token_fingerprint
from gateway.config import Config
from gateway.config_file import ConfigError
from gateway.gateway_config import MIN_TOKEN_CHARS, is_sendable_token
from gateway.middleware import (
    AUTHENTICATED_AS,
    FROM_BROWSER,
    WEBSOCKET_METHOD,
    WRONG_TOKEN_SENT,
)
from gateway.rate_limits import ClientRateLimiter, RateLimitConfig, client_key
from gateway.sessions import CSRF_HEADER, SessionLookup, secret_from_cookie
from gateway.token_revocation import RevocableConnection
from gateway.token_scopes import is_permitted
from store.api_tokens import TokenScope, token_digest
from store.console_sessions import ConsoleSession
from store.data_folder import read_or_create_key

MAX_BODY_BYTES = 10_000_000
"""Largest request body except uploads, bytes."""

MAX_UPLOAD_BYTES = 100 * 1024 * 1024 + MAX_BODY_BYTES
"""Largest body of an upload, bytes: the files and the form around them."""

BODY_IDLE_TIMEOUT_S = 30.0
"""Longest pause in a request body, seconds."""

MIN_BODY_BYTES_PER_S = 1000.0
"""Minimum average rate of a request body after the longest pause. It rejects clients that hold a connection with
single bytes."""

_UPLOADS = re.compile(
    r"/api/threads/[^/]+/uploads|/api/channels/terminal/[^/]+/files|/api/channels/(?:[^/]+/messages|broadcast)"
)

OPEN_PATHS = frozenset({"/health", "/health/ready"})
"""Paths that need no token. Without a token, /health/ready returns fewer details."""

DOCUMENTATION_PREFIX = "/docs"
CONSOLE_PREFIX = "/console"
SESSIONS_PATH = "/api/sessions"
OPENAPI_PATH = "/openapi.json"
"""Pages that need no token, because browsers send none."""

WEBHOOK_PREFIX = "/webhooks/"
INSTALL_PREFIX = "/slack/"
HOOK_PREFIX = "/hooks/"
"""Paths below these need no token: adapters verify the platform's signature or the browser's OAuth state, and hooks
verify their sender's signature."""

WEBSOCKET_TOKEN_PREFIX = "parley.token."  # noqa: S105 - a name
"""How browsers send the token with a WebSocket: `new WebSocket(url, ["parley", "parley.token.<token>"])`."""

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_PAGE_PREFIXES = (f"{DOCUMENTATION_PREFIX}/", f"{CONSOLE_PREFIX}/")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - recognized, not bound

NO_TOKEN = "Send the admin token as `Authorization: Bearer ...` or `X-Api-Key`."  # noqa: S105 - a sentence
WRONG_TOKEN = "The admin token is wrong."  # noqa: S105 - a sentence
FORBIDDEN = "{name} has the scope `{scope}`, which does not permit this request."
WRONG_CSRF = (
    "Send the session's CSRF token as `X-CSRF-Token`: GET /api/sessions/current returns it."
)
ONLY_OPENS = "A sign-in link only opens a session: POST /api/sessions."
CALLER = "parley.caller"
"""Scope key under which `AccessMiddleware` stores the `Caller`."""
TWO_HOSTS = "Send one Host header."
WRONG_HOST = "Unknown Host header: see gateway.allowed_hosts."
NOT_FOUND = "Not Found"
WRONG_ORIGIN = "This origin is not allowed: see gateway.cors_origins."
_CHALLENGE = (b"www-authenticate", b'Bearer realm="parley"')
BODY_TIMEOUT = "The request body arrived too slowly."
RATE_LIMITED = "Too many requests. Try again after the number of seconds in Retry-After."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A response that replaces the application's."""

    status: int
    detail: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminToken:
    """The token of the API; `generated` = it is new and must be shown once."""

    value: str
    generated: bool = False


def load_admin_token(config: Config) -> AdminToken | None:
    """Return the configured token, the stored one, or a new one (file mode 0600). None with `auth: none`.

    Raises:
        ConfigError: The file cannot be read or written, or contains no valid token.
    """
    if config.gateway.auth == "none":
        return None
    if config.gateway.admin_token:
        return AdminToken(value=config.gateway.admin_token)
    try:
        return _read_or_generate_token(config.token_file)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(
            f"{config.token_file}: the admin token cannot be read or written ({reason}):"
            " correct the permissions of the folder, or set PARLEY_HOME to another folder"
        ) from None


def _read_or_generate_token(file: Path) -> AdminToken:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content, is_new = read_or_create_key(file, f"{secrets.token_urlsafe(32)}\n".encode())
    value = content.decode().strip()
    if len(value) < MIN_TOKEN_CHARS or not is_sendable_token(value):
        raise ConfigError(
            f"{file}: does not contain an admin token: delete the file to generate a new one"
        )
    return AdminToken(value=value, generated=is_new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The sender of a request with a valid credential.

    Attributes:
        name: The name in the audit log and in errors.
        scope: Which requests are permitted.
        token: The name of the token; "" = the admin token.
        token_digest: SHA-256 of the token, or of the token that opened the session.
        session: The session of its cookie, or the link; None = it sent a token.
    """

    name: str
    scope: TokenScope
    token: str
    token_digest: str
    session: ConsoleSession | None = None


class AccessMiddleware:
    """Passes a request to the application, or rejects it.

    Args:
        token: The admin token; None = no token is required.
        tokens: Finds named tokens; None = no named tokens.
        sessions: Finds the sessions of browsers; None = no sessions.
        hosts: Allowed names in the Host header, besides loopback names. Others are rejected (DNS rebinding).
        origins: Web pages that may send changing requests if no token is required, besides the gateway's own.
        open_paths: Additional paths that need no token.
        rates: Rate limits of clients.
        body_timeout_s: Longest pause in a request body, seconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        tokens: ApiTokenLookup | None = None,
        sessions: SessionLookup | None = None,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        open_paths: Iterable[str] = OPEN_PATHS,
        rates: RateLimitConfig | None = None,
        body_timeout_s: float = BODY_IDLE_TIMEOUT_S,
    ) -> None:
        self._app = app
        self._token = token.encode() if token is not None else None
        self._token_digest = token_digest(token or "")
        self._tokens = tokens
        self._sessions = sessions
        self._hosts = {name.lower() for name in (*LOOPBACK_NAMES, *hosts)} - {*_ANY_ADDRESS}
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._open_paths = frozenset(open_paths)
        self._principal = token_fingerprint(self._token) if self._token is not None else ANONYMOUS
        self._body_timeout_s = body_timeout_s
        rates = rates or RateLimitConfig()
        self._token_limiter = ClientRateLimiter(per_s=rates.requests_per_s, burst=rates.burst)
        self._anonymous_limiter = ClientRateLimiter(
            per_s=rates.strangers_per_s, burst=rates.strangers_burst
        )
        self._webhook_limiter = ClientRateLimiter(per_s=rates.requests_per_s, burst=rates.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a connection, and pass it on or reject it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        caller = await self._find_caller(scope)
        TOKEN_SCOPE.set(caller.scope if caller is not None else "")
        if caller is not None and (has_ended := self._end_of(caller)) is not None:
            revocable = RevocableConnection(receive, send, has_ended)
            receive, send = revocable.receive, revocable.send
        if caller is not None:
            scope[CALLER] = caller
        if scope["type"] == "websocket":
            refusal = self._check_websocket(scope, caller)
            if refusal is not None:
                await _reject_websocket(scope, send, refusal)
                return
            await self._app(scope, receive, send)
            return
        refusal = self._check_request(scope, caller)
        if refusal is not None:
            await _reject(send, refusal)
            return
        await self._app(
            scope, limit_body(receive, _body_limit(scope), pause_s=self._body_timeout_s), send
        )

    async def _find_caller(self, scope: Scope) -> Caller | None:
        """Return the caller whose token or session cookie a request carries; None = it carries no valid one."""
        if self._token is None:
            return None
        given = _given_token(scope)
        if given is None:
            secret = secret_from_cookie(Headers(scope=scope)) if self._sessions else ""
            return await self._find_session(secret, is_link=False)
        if compare_digest(given, self._token):
            digest = self._token_digest
            return Caller(name=self._principal, scope="admin", token="", token_digest=digest)
        value = given.decode("latin-1")
        named = await self._tokens.find(value) if self._tokens is not None else None
        if named is None:
            return await self._find_session(value, is_link=True)
        return Caller(
            name=f"token {named.name}",
            scope=named.scope,
            token=named.name,
            token_digest=named.digest,
        )

    async def _find_session(self, secret: str, *, is_link: bool) -> Caller | None:
        """Return the caller of a session cookie, or of a sign-in link that is sent as a token."""
        session = await self._sessions.find(secret) if self._sessions and secret else None
        if session is None or session.is_link is not is_link:
            return None
        opened_by = f"token {session.token}" if session.token else self._principal
        return Caller(
            name=f"link {session.id}" if is_link else f"session {session.id} of {opened_by}",
            scope=session.scope,
            token=session.token,
            token_digest=session.token_digest,
            session=session,
        )

    def _end_of(self, caller: Caller) -> Callable[[], Awaitable[bool]] | None:
        """Return a function that says whether a caller's credential has ended; None = it never ends."""
        if caller.session is not None and self._sessions is not None:
            return partial(self._sessions.has_ended, caller.session.id)
        if caller.token and self._tokens is not None:
            return partial(self._tokens.has_ended, caller.token_digest)
        return None

    def _check_request(self, scope: Scope, caller: Caller | None) -> Rejection | None:
        """Return why a request is rejected. Marks the scope of requests with a valid credential."""
        headers = Headers(scope=scope)
        if misdirected := self._check_address(scope, headers):
            return misdirected
        if self._is_signed(scope["path"]):
            return _check_rate(scope, self._webhook_limiter) or _check_length(
                headers, MAX_BODY_BYTES
            )
        if self._token is None and self._is_cross_origin(scope["method"], headers):
            return Rejection(status=403, detail=WRONG_ORIGIN)
        without = self._check_token(scope, caller) or self._check_forgery(scope, headers, caller)
        if without is None:
            scope[AUTHENTICATED_AS] = caller.name if caller else self._principal
            if caller is not None and caller.session is not None:
                scope[FROM_BROWSER] = True
        elif without.detail == WRONG_TOKEN:
            scope[WRONG_TOKEN_SENT] = True
        # Count requests with and without the token separately, so that neither can block the other.
        too_fast = _check_rate(
            scope, self._token_limiter if without is None else self._anonymous_limiter
        )
        if too_fast or (without and not self._is_open(scope)):
            return too_fast or without
        return _check_length(headers, _body_limit(scope))

    def _check_address(self, scope: Scope, headers: Headers) -> Rejection | None:
        """Return why a host or path is not served."""
        if len(headers.getlist("host")) > 1:  # A trusted proxy may read either one.
            return Rejection(status=400, detail=TWO_HOSTS)
        if _host_name(headers.get("host", "")) not in self._hosts:
            return Rejection(status=421, detail=WRONG_HOST)
        # A route's `$` also matches before a final line break, but `token_scopes` treats the line break as text.
        return Rejection(status=404, detail=NOT_FOUND) if "\n" in scope["path"] else None

    def _is_signed(self, path: str) -> bool:
        """Return whether requests to a path are signed instead of carrying a token.

        All paths of hooks count, because the configured hooks can change. Their route checks whether a hook exists.
        """
        is_platform = path.startswith((WEBHOOK_PREFIX, INSTALL_PREFIX))
        return path.startswith(HOOK_PREFIX) or (is_platform and path in self._open_paths)

    def _is_open(self, scope: Scope) -> bool:
        path, method = scope["path"], scope["method"]
        is_page = path in {"/", OPENAPI_PATH} or f"{path}/".startswith(_PAGE_PREFIXES)
        return path in self._open_paths or (is_page and method in _SAFE_METHODS)

    def _check_websocket(self, scope: Scope, caller: Caller | None) -> Rejection | None:
        """Return why a WebSocket is rejected. Browsers open them from any page, and CORS does not apply."""
        headers = Headers(scope=scope)
        if misdirected := self._check_address(scope, headers):
            return misdirected
        if self._is_cross_origin("POST", headers):
            return Rejection(status=403, detail=WRONG_ORIGIN)
        without = self._check_token(scope, caller)
        if without is not None and without.detail == WRONG_TOKEN:
            scope[WRONG_TOKEN_SENT] = True
        return (
            _check_rate(scope, self._token_limiter if without is None else self._anonymous_limiter)
            or without
        )

    def _check_token(self, scope: Scope, caller: Caller | None) -> Rejection | None:
        if self._token is None:
            return None
        method, path = scope.get("method", WEBSOCKET_METHOD), scope["path"]
        if caller is None:
            detail = NO_TOKEN if _given_token(scope) is None else WRONG_TOKEN
            return Rejection(status=401, detail=detail, headers=(_CHALLENGE,))
        if caller.session is not None and caller.session.is_link:
            is_opening = (method, path) == ("POST", SESSIONS_PATH)
            return None if is_opening else Rejection(status=403, detail=ONLY_OPENS)
        if is_permitted(caller.scope, method, path, scope["query_string"]):
            return None
        detail = FORBIDDEN.format(name=_capitalized(caller.name), scope=caller.scope)
        return Rejection(status=403, detail=detail)

    def _check_forgery(
        self, scope: Scope, headers: Headers, caller: Caller | None
    ) -> Rejection | None:
        """Return why a request with a cookie may come from another page."""
        session = caller.session if caller is not None else None
        if session is None or session.is_link or scope["method"] in _SAFE_METHODS:
            return None
        if self._is_cross_origin(scope["method"], headers):
            return Rejection(status=403, detail=WRONG_ORIGIN)
        given = headers.get(CSRF_HEADER, "").encode("latin-1")
        is_valid = compare_digest(given, session.csrf.encode())
        return None if is_valid else Rejection(status=403, detail=WRONG_CSRF)

    def _is_cross_origin(self, method: str, headers: Headers) -> bool:
        origin = headers.get("origin", "").lower()
        if method in _SAFE_METHODS or not origin or origin in self._origins:
            return False
        try:
            return urlsplit(origin).netloc != headers.get("host", "").lower()
        except ValueError:  # the connection has no address
            return True


def _capitalized(name: str) -> str:
    return f"The {name}" if name.startswith(("token ", "session ")) else name


def _check_rate(scope: Scope, buckets: ClientRateLimiter) -> Rejection | None:
    """Count a request. Reject it if its client sent too many."""
    wait_s = buckets.acquire(client_key((scope.get("client") or ("",))[0]))
    if not wait_s:
        return None
    after = (b"retry-after", b"%d" % math.ceil(wait_s))
    return Rejection(status=429, detail=RATE_LIMITED, headers=(after,))


def _body_limit(scope: Scope) -> int:
    brings_files = scope["method"] == "POST" and _UPLOADS.fullmatch(scope["path"]) is not None
    return MAX_UPLOAD_BYTES if brings_files else MAX_BODY_BYTES


def _check_length(headers: Headers, limit: int) -> Rejection | None:
    length = headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) <= limit:
        return None
    return Rejection(status=413, detail=too_large_message(limit))


def too_large_message(limit: int) -> str:
    """Return the maximum size of a request's body, bytes."""
    return f"The request body is larger than {limit:,} bytes."


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


def _given_token(scope: Scope) -> bytes | None:
    return _token_from_headers(Headers(scope=scope)) or _token_from_subprotocols(
        scope.get("subprotocols", ())
    )


def _token_from_headers(headers: Headers) -> bytes | None:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip().encode("latin-1")
    value = headers.get("x-api-key", "").strip()
    return value.encode("latin-1") if value else None


def _token_from_subprotocols(offered: Iterable[str]) -> bytes | None:
    """Return the token from a WebSocket's protocols. Pages send it there because they cannot send headers."""
    named = (one for one in offered if one.startswith(WEBSOCKET_TOKEN_PREFIX))
    return next((one.removeprefix(WEBSOCKET_TOKEN_PREFIX).encode("latin-1") for one in named), None)


def limit_body(
    receive: Receive, max_bytes: int, *, pause_s: float = BODY_IDLE_TIMEOUT_S
) -> Receive:
    """Wrap `receive` with limits for the body's actual size, for pauses in it, and for its rate.

    Raises HTTPException (413, 408).
    """
    seen = 0
    waited_s = 0.0
    is_open = True

    async def limited() -> Message:
        nonlocal seen, waited_s, is_open
        if not is_open:
            return await receive()  # Only a disconnect can follow the body.
        since = anyio.current_time()
        with anyio.move_on_after(pause_s) as pause:
            message = await receive()
        waited_s += anyio.current_time() - since
        if pause.cancelled_caught or waited_s > pause_s + seen / MIN_BODY_BYTES_PER_S:
            raise HTTPException(408, BODY_TIMEOUT)
        is_open = message.get("more_body", False)
        seen += len(message.get("body", b""))
        if seen > max_bytes:
            raise HTTPException(413, too_large_message(max_bytes))
        return message

    return limited


async def _reject_websocket(scope: Scope, send: Send, refusal: Rejection) -> None:
    """Reject a WebSocket. Send the response that a request would get, if the server supports it."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    await _reject(send, refusal, prefix="websocket.")


async def _reject(send: Send, refusal: Rejection, *, prefix: str = "") -> None:
    body = json.dumps({"detail": refusal.detail}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *refusal.headers,
    ]
    start = f"{prefix}http.response.start"
    await send({"type": start, "status": refusal.status, "headers": headers})
    await send({"type": f"{prefix}http.response.body", "body": body})
