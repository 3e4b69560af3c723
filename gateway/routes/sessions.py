"""/api/sessions: sign-in of browsers. A token or a one-time link becomes a cookie that scripts cannot read."""

from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from gateway.auth import CALLER, Caller
from gateway.dependencies import ServicesDep
from gateway.openapi import error_responses
from gateway.routes.views import iso_time
from gateway.services import Services
from gateway.sessions import ROTATE_AFTER_S, cookie_name
from store.api_tokens import TokenScope
from store.console_sessions import IDLE_S, ConsoleSession
from store.errors import RowConflict, RowNotFound

router = APIRouter(prefix="/sessions", responses=error_responses(403, 404, 409))

LINK_PATH = "console/#link="
"""The page that a link opens, below the service's address. Browsers never send the part after `#`."""

NO_SIGN_IN = "Nobody signs in here: gateway.auth is `none`."


class CurrentSession(BaseModel):
    """The sender of this request.

    Attributes:
        id: The session; null = a token, or no sign-in is needed.
        csrf: The value that the browser sends as `X-CSRF-Token` with each change; "" = not needed.
        may_change: Whether the scope permits actions, such as sending a delivery again.
        may_administer: Whether it permits changes of tokens, MCP servers, skills and agents.
        can_sign_out: Whether there is a session to end.
    """

    id: str | None
    scope: TokenScope
    csrf: str
    may_change: bool
    may_administer: bool
    can_sign_out: bool


class SessionView(BaseModel):
    """A session of a browser, or a link that was not opened.

    Attributes:
        token: The named token that opened it; "" = the admin token, or a link.
        is_link: Whether it is a link that was not opened.
        is_current: Whether this request belongs to it.
        used_at: When its secret was last replaced; an open page does this every hour.
    """

    id: str
    scope: TokenScope
    token: str
    address: str
    browser: str
    is_link: bool
    is_current: bool
    created_at: str
    used_at: str
    expires_at: str


class SessionList(BaseModel):
    """The sessions and unopened links, newest first."""

    rows: list[SessionView]


class NewLink(BaseModel):
    """A link that opens one session: append `path` to the address of the service."""

    path: str


@router.post("", status_code=201)
async def open_session(
    request: Request, response: Response, services: ServicesDep
) -> CurrentSession:
    """Open a session with the token or link in the header, and set its cookie."""
    caller = _caller(request)
    if caller is None:
        raise RowConflict(NO_SIGN_IN)
    is_link = caller.session is not None and caller.session.is_link
    session, secret = await services.sessions.open(
        scope=caller.scope,
        token=caller.token,
        token_digest=caller.token_digest,
        address=request.client.host if request.client else "",
        browser=request.headers.get("user-agent", "")[:200],
        link_id=caller.session.id if caller.session and is_link else "",
    )
    _set_cookie(request, response, secret)
    return _current(caller.scope, session)


@router.get("/current")
async def read_current_session(
    request: Request, response: Response, services: ServicesDep
) -> CurrentSession:
    """Return the sender of this request. Replaces the secret of a cookie that is older than an hour."""
    caller = _caller(request)
    if caller is None or caller.session is None:
        return _current(caller.scope if caller else "admin", None)
    session = caller.session
    if services.sessions.now() - session.rotated_at > ROTATE_AFTER_S:
        secret = await services.sessions.rotate(session)
        if secret is not None:
            _set_cookie(request, response, secret)
    return _current(caller.scope, session)


@router.delete("/current", status_code=204)
async def sign_out(request: Request, services: ServicesDep) -> Response:
    """End the session of this request, if it has one, and delete its cookie."""
    caller = _caller(request)
    if caller is not None and caller.session is not None:
        with suppress(RowNotFound):  # Another request just ended it.
            await services.sessions.revoke(caller.session.id)
    response = Response(status_code=204)
    response.delete_cookie(cookie_name(request.headers), samesite="strict", httponly=True)
    return response


@router.get("", response_model=SessionList)
async def list_sessions(request: Request, services: ServicesDep) -> dict[str, Any]:
    """List the sessions of browsers and the links that were not opened."""
    caller = _caller(request)
    own = caller.session.id if caller and caller.session else ""
    return {"rows": [_view(one, own) for one in await services.sessions.list_all()]}


@router.post("/links", status_code=201)
async def create_link(request: Request, services: ServicesDep) -> NewLink:
    """Create a link that opens one session with all rights, within 12 hours."""
    caller = _caller(request)
    if caller is None:
        raise RowConflict(NO_SIGN_IN)
    return NewLink(path=await link_path(services, caller.token_digest))


@router.delete("/{session_id}", status_code=204)
async def revoke_session(session_id: str, services: ServicesDep) -> Response:
    """End a session, or withdraw a link."""
    await services.sessions.revoke(session_id)
    return Response(status_code=204)


async def link_path(services: Services, token_digest: str) -> str:
    """Return the path of a new one-time link, relative to the service's address. Raises StoreError."""
    return LINK_PATH + await services.sessions.create_link(token_digest=token_digest)


def _caller(request: Request) -> Caller | None:
    found: Caller | None = request.scope.get(CALLER)
    return found


def _set_cookie(request: Request, response: Response, secret: str) -> None:
    response.set_cookie(
        cookie_name(request.headers),
        secret,
        max_age=int(IDLE_S),
        path=f"{request.scope.get('root_path', '')}/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def _current(scope: TokenScope, session: ConsoleSession | None) -> CurrentSession:
    return CurrentSession(
        id=session.id if session else None,
        scope=scope,
        csrf=session.csrf if session else "",
        may_change=scope != "read",
        may_administer=scope == "admin",
        can_sign_out=session is not None,
    )


def _view(session: ConsoleSession, own: str) -> dict[str, Any]:
    return {
        "id": session.id,
        "scope": session.scope,
        "token": session.token,
        "address": session.address,
        "browser": session.browser,
        "is_link": session.is_link,
        "is_current": session.id == own,
        "created_at": iso_time(session.created_at),
        "used_at": iso_time(session.rotated_at),
        "expires_at": iso_time(session.expires_at),
    }
