"""Error responses: maps exceptions to an HTTP status and {"detail": ...}, without secrets, paths and stack traces."""

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
from bots.terminal.received_files import AttachedFileMissing
from bus.errors import (
    ConversationFull,
    DeliveryError,
    FileTooLarge,
    HookMalformed,
    HookRejected,
    IntakeClosed,
    IntakeFull,
    InvalidChoice,
    RunError,
)
from bus.recurrence import InvalidTimes
from gateway.runtime.errors import (
    InvalidRequest,
    RunRequestError,
    RuntimeClosing,
    ThreadBusyError,
    UnknownAssistant,
)
from store.errors import RowConflict, RowNotFound, StoreError, ValueRefused

log = logging.getLogger(__name__)

SERVICE_UNAVAILABLE = 503
TOO_MANY_REQUESTS = 429
DetailText = Callable[[Exception], str]


class ServiceNotRunning(Exception):
    """Channel service is not running."""


def _error_text(error: Exception) -> str:
    return str(error) or (type(error).__doc__ or "").strip()


def _fixed_text(text: str) -> DetailText:
    return lambda _error: text


STATUS_BY_ERROR: Mapping[type[Exception], tuple[int, DetailText]] = {
    RowNotFound: (404, _error_text),
    InvalidTimes: (422, _error_text),
    InvalidChoice: (422, _error_text),
    RowConflict: (409, _error_text),
    ValueRefused: (422, _error_text),
    StoreError: (503, _fixed_text("The database is not available; see the log.")),
    IntakeFull: (503, _error_text),
    IntakeClosed: (503, _error_text),
    ConversationFull: (429, _error_text),
    HookRejected: (
        401,
        _fixed_text("There is no such hook, or the signature is wrong; see the log."),
    ),
    HookMalformed: (400, _error_text),
    DeliveryError: (503, _error_text),
    FileTooLarge: (413, _error_text),
    AttachedFileMissing: (404, _error_text),
    RunError: (502, _error_text),
    ServiceNotRunning: (503, _error_text),
    RunRequestError: (500, _error_text),
    RuntimeClosing: (503, _error_text),
    ThreadBusyError: (409, _error_text),
    UnknownAssistant: (404, _error_text),
    InvalidRequest: (400, _error_text),
    AgentError: (500, _fixed_text("The agent failed; see the log.")),
    CustomAgentError: (500, _error_text),
    AgentNotFound: (404, _error_text),
    AgentExists: (409, _error_text),
    AgentInvalid: (422, _error_text),
    ExtensionsError: (500, _error_text),
    McpServerNotFound: (404, _error_text),
    McpSettingsInvalid: (400, _error_text),
    MemoryServiceError: (500, _error_text),
    MemoryInvalid: (400, _error_text),
    FactNotFound: (404, _error_text),
    SkillError: (400, _error_text),
    SkillNotFound: (404, _error_text),
    SkillExists: (409, _error_text),
    SkillWriteFailed: (500, _error_text),
    MemoryError: (503, _fixed_text("There is not enough memory for this now; try again later.")),
}
"""HTTP status and text for each error. The most specific class of an error decides."""

UNPROCESSABLE = 422

LOGGED_ERRORS = (StoreError, AgentError, MemoryError)
"""Errors whose texts are logged but not sent."""

RETRY_AFTER_S: Mapping[int, int] = {SERVICE_UNAVAILABLE: 1, TOO_MANY_REQUESTS: 30}
"""When clients may try again, by status, seconds."""


def describe_error(error: Exception) -> tuple[int, str]:
    """Return the HTTP status of an error in the table, and the text for clients."""
    status, detail = STATUS_BY_ERROR[_kind(error)]
    if (isinstance(error, UnknownAssistant) and error.by_name) or (
        isinstance(error, InvalidRequest) and error.malformed
    ):
        status = UNPROCESSABLE
    return status, detail(error)


def _kind(error: Exception) -> type[Exception]:
    return next(cls for cls in type(error).__mro__ if cls in STATUS_BY_ERROR)


def error_response(error: Exception) -> JSONResponse:
    """Return the response for an error in the table. Logs internal errors with their traceback."""
    status, detail = describe_error(error)
    if _kind(error) in LOGGED_ERRORS:
        log.error("request failed", exc_info=error)
    wait_s = RETRY_AFTER_S.get(status)
    headers = {"Retry-After": str(wait_s)} if wait_s else None
    return JSONResponse({"detail": detail}, status_code=status, headers=headers)


async def send_internal_error(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that failed with an unexpected exception."""
    response = JSONResponse({"detail": "Internal server error; see the log."}, status_code=500)
    await response(scope, receive, send)


async def validation_error_response(_request: Request, error: Exception) -> JSONResponse:
    """Return 422 with the invalid fields, without their values."""
    found = error.errors() if isinstance(error, RequestValidationError) else ()
    fields = [{name: one[name] for name in ("loc", "msg", "type")} for one in found]
    return JSONResponse({"detail": fields}, status_code=422)


def install_error_handlers(app: FastAPI) -> None:
    """Install the handlers for all errors of the table."""

    def handler(_request: Request, error: Exception) -> JSONResponse:
        return error_response(error)

    for kind in STATUS_BY_ERROR:
        app.add_exception_handler(kind, handler)
    app.add_exception_handler(RequestValidationError, validation_error_response)
