"""Named tokens: what is asked to create one, and what it may do. Pure."""

import re
from typing import Self
from urllib.parse import parse_qs
from uuid import UUID

from pydantic import BaseModel, Field, field_validator, model_validator

from store.api_tokens import ApiToken, TokenScope

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_DAY_S = 86_400.0

_READING = frozenset({"GET", "HEAD", "OPTIONS"})

_QUERIES = re.compile(
    r"/api(?:/langgraph)?/(?:(?:threads|assistants|runs/crons)/(?:search|count)|assistants/[^/]+/versions"
    r"|threads/[^/]+/(?:history|state/checkpoint|stream/events)|store/(?:items/search|namespaces))"
)
"""POST requests that change nothing: LangGraph's API searches, and reads some things, by POST."""

_ADMINISTRATION = re.compile(r"/api/(?:tokens|mcp|skills|agents)(?:/.*)?")
"""What decides who may do something, or what code runs: to change it takes the scope `admin`."""

_SECRETS = re.compile(r"/api/tokens(?:/.*)?")
_TERMINALS = re.compile(r"/api/channels/terminal/.*")
"""What a session shows to one terminal is delivered, and kept for no other: watching it is no reading."""

_CANCELING = "cancel_on_disconnect"
"""A GET with this in its query cancels a run when its client leaves."""

_THREAD = re.compile(r"/api(?:/langgraph)?/threads/([^/]+)(?:/(?!copy$).*)?")
"""A thread and what belongs to it. A copy of it is another thread."""


class NewTokenRequest(BaseModel):
    """A token to create."""

    name: str = Field(pattern=NAME_PATTERN)
    scope: TokenScope
    thread_id: str = Field(default="", max_length=200, description="Required for scope `thread`")
    days: float | None = Field(
        default=None, gt=0, le=3650, description="Lifetime; null = unlimited"
    )

    @field_validator("thread_id")
    @classmethod
    def _parse_thread_id(cls, given: str) -> str:
        try:
            return given and str(UUID(given))
        except ValueError:
            raise ValueError("must be the UUID of a thread") from None

    @model_validator(mode="after")
    def _thread_fits_scope(self) -> Self:
        if (self.scope == "thread") != bool(self.thread_id):
            raise ValueError("thread_id belongs to the scope `thread`, and only to it")
        return self

    @property
    def lifetime_s(self) -> float | None:
        """The lifetime in seconds; None = unlimited."""
        return None if self.days is None else self.days * _DAY_S


def is_permitted(token: ApiToken, method: str, path: str, query: bytes = b"") -> bool:
    """Return whether a token permits a request.

    - `admin`: everything, like the admin token.
    - `operator`: everything but changes of tokens, MCP servers, skills and agents.
    - `read`: whatever changes nothing, the list of tokens and terminal sessions excepted.
    - `thread`: its thread with runs, state, events and files; not to delete or copy it.

    Args:
        token: The token; whether it has expired is not judged here.
        method: The HTTP method. A WebSocket has another one: what a client sends over it starts runs and answers
            questions, also where a POST to its path only reads.
        path: The path as the routes see it, decoded.
        query: The query as it was sent.
    """
    if token.scope == "admin":
        return True
    if token.scope == "thread":
        match = _THREAD.fullmatch(path)
        is_own = match is not None and match[1] == token.thread_id
        return is_own and not (method == "DELETE" and path.endswith(f"/threads/{token.thread_id}"))
    if _SECRETS.fullmatch(path):
        return False
    is_reading = method in _READING or (method == "POST" and _QUERIES.fullmatch(path) is not None)
    if token.scope == "read":
        return is_reading and not _cancels(query) and _TERMINALS.fullmatch(path) is None
    return is_reading or _ADMINISTRATION.fullmatch(path) is None


def _cancels(query: bytes) -> bool:
    """Return whether a query has a run cancelled.

    >>> _cancels(b"a=1&cancel%5Fon_disconnect=1"), _cancels(b"cancel_on_disconnect=false"), _cancels(b"a=1")
    (True, False, False)
    """
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True).get(_CANCELING, ())
    return any(value.lower() != "false" for value in given)
