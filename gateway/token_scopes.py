"""Named tokens: the request that creates one, and the permissions of each scope. Pure."""

import re
from urllib.parse import parse_qs

from pydantic import BaseModel, Field

from store.api_tokens import TokenScope

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_DAY_S = 86_400.0

_READING = frozenset({"GET", "HEAD", "OPTIONS"})

_QUERIES = re.compile(
    r"/api(?:/langgraph)?/(?:(?:threads|assistants|runs/crons)/(?:search|count)|assistants/[^/]+/versions"
    r"|threads/[^/]+/(?:history|state/checkpoint|stream/events)|store/(?:items/search|namespaces)|markdown|configuration/check(?:/key)?)"
)
"""POST requests that change nothing. LangGraph's API uses POST for searches and for some reads, and texts to parse or
check are long."""

_ADMINISTRATION = re.compile(r"/api/(?:tokens|mcp|skills|agents)(?:/.*)?")
"""Routes that decide who may do something or which code runs. Changing them requires the scope `admin`."""

_SECRETS = re.compile(r"/api/(?:tokens|sessions|configuration|audit)(?:/.*)?")
_OWN_SESSION = frozenset(
    {
        ("POST", "/api/sessions"),
        ("GET", "/api/sessions/current"),
        ("DELETE", "/api/sessions/current"),
    }
)
"""Requests with which every token can open, read and end its own session, which has the token's scope."""

_TERMINALS = re.compile(r"/api/channels/terminal/.*")
"""Terminal sessions. Their output is delivered to one terminal only, so watching a session is not mere reading."""

_CANCELING = "cancel_on_disconnect"
"""A GET with this query parameter cancels a run when its client disconnects."""


class NewTokenRequest(BaseModel):
    """A token to create."""

    name: str = Field(pattern=NAME_PATTERN)
    scope: TokenScope
    days: float | None = Field(
        default=None, gt=0, le=3650, description="Lifetime; null = unlimited"
    )

    @property
    def lifetime_s(self) -> float | None:
        """The lifetime in seconds; None = unlimited."""
        return None if self.days is None else self.days * _DAY_S


def is_reading(method: str, path: str) -> bool:
    """Return whether a request changes nothing.

    >>> is_reading("GET", "/api/memory"), is_reading("POST", "/api/langgraph/threads/search")
    (True, True)
    >>> is_reading("POST", "/api/threads"), is_reading("POST", "/api/configuration/check/key")
    (False, True)
    """
    return method in _READING or (method == "POST" and _QUERIES.fullmatch(path) is not None)


def is_permitted(scope: TokenScope, method: str, path: str, query: bytes = b"") -> bool:
    """Return whether a scope permits a request.

    - `admin`: everything, like the admin token.
    - `operator`: everything but changes of MCP servers, skills and agents, and tokens, sessions, the configuration and
      the audit log.
    - `read`: everything that an operator may do that changes nothing, except terminal sessions.

    Args:
        scope: The scope of the token or session.
        method: The HTTP method. WebSockets have their own, because messages over them start runs and answer
            questions, even if a POST to the same path only reads.
        path: The path as the routes see it, decoded.
        query: The query as it was sent.
    """
    if scope == "admin" or (method, path) in _OWN_SESSION:
        return True
    if _SECRETS.fullmatch(path):
        return False
    is_query = is_reading(method, path)
    if scope == "read":
        return is_query and not _cancels(query) and _TERMINALS.fullmatch(path) is None
    return is_query or _ADMINISTRATION.fullmatch(path) is None


def _cancels(query: bytes) -> bool:
    """Return whether a query cancels a run.

    >>> _cancels(b"a=1&cancel%5Fon_disconnect=1"), _cancels(b"cancel_on_disconnect=false"), _cancels(b"a=1")
    (True, False, False)
    """
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True).get(_CANCELING, ())
    return any(value.lower() != "false" for value in given)
