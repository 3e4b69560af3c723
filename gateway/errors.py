"""One table: what went wrong -> HTTP status and {"detail": ...}. No secrets, no paths, no stacks."""

import logging
from collections.abc import Callable, Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from agent.errors import (
    AgentError,
    AgentExists,
    AgentInvalid,
    AgentNotFound,
    CustomAgentError,
    ExtensionsError,
    FactNotFound,
    McpServerNotFound,
    McpSettingsInvalid,
    MemoryInvalid,
    MemoryServiceError,
    SkillError,
    SkillExists,
    SkillNotFound,
    SkillWriteFailed,
)
from bus.errors import DeliveryError, IntakeClosed, IntakeFull, RunError
from store.errors import RowConflict, RowNotFound, StoreError

log = logging.getLogger(__name__)

SERVICE_UNAVAILABLE = 503
Sentence = Callable[[Exception], str]


class ServiceNotRunning(Exception):
    """Channel service is not running."""


def _own(error: Exception) -> str:
    return str(error) or (type(error).__doc__ or "").strip()


def _fixed(text: str) -> Sentence:
    return lambda _error: text


TABLE: Mapping[type[Exception], tuple[int, Sentence]] = {
    RowNotFound: (404, _own),
    RowConflict: (409, _own),
    StoreError: (503, _fixed("The store cannot be used at the moment; see the log.")),
    IntakeFull: (503, _own),
    IntakeClosed: (503, _own),
    DeliveryError: (503, _own),
    RunError: (502, _own),
    ServiceNotRunning: (503, _own),
    AgentError: (500, _fixed("The agent failed; see the log.")),
    CustomAgentError: (500, _own),
    AgentNotFound: (404, _own),
    AgentExists: (409, _own),
    AgentInvalid: (422, _own),
    ExtensionsError: (500, _own),
    McpServerNotFound: (404, _own),
    McpSettingsInvalid: (400, _own),
    MemoryServiceError: (500, _own),
    MemoryInvalid: (400, _own),
    FactNotFound: (404, _own),
    SkillError: (400, _own),
    SkillNotFound: (404, _own),
    SkillExists: (409, _own),
    SkillWriteFailed: (500, _own),
}
"""The most special class of an error decides."""

LOGGED = (StoreError, AgentError)
"""Whose texts are for the log alone."""

RETRY_AFTER_S = 1


def answer(error: Exception) -> JSONResponse:
    """Return the response for an error of the table; what is our own fault is logged with its traceback."""
    kind = next(cls for cls in type(error).__mro__ if cls in TABLE)
    status, sentence = TABLE[kind]
    if kind in LOGGED:
        log.error("a request failed", exc_info=error)
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == SERVICE_UNAVAILABLE else None
    return JSONResponse({"detail": sentence(error)}, status_code=status, headers=headers)


async def unexpected(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that failed in a way that nobody foresaw."""
    response = JSONResponse({"detail": "Internal server error; see the log."}, status_code=500)
    await response(scope, receive, send)


async def malformed(_request: Request, error: Exception) -> JSONResponse:
    """Name the fields of a request that are wrong, without repeating what they hold."""
    found = error.errors() if isinstance(error, RequestValidationError) else ()
    fields = [{name: one[name] for name in ("loc", "msg", "type")} for one in found]
    return JSONResponse({"detail": fields}, status_code=422)


def install(app: FastAPI) -> None:
    """Give an application the table."""

    def handler(_request: Request, error: Exception) -> JSONResponse:
        return answer(error)

    for kind in TABLE:
        app.add_exception_handler(kind, handler)
    app.add_exception_handler(RequestValidationError, malformed)
