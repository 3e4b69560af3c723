"""Shared parts of the OpenAPI document: security schemes, error responses and the error format."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from gateway.auth import OPEN_PATHS

Responses = dict[int | str, dict[str, Any]]

BAD_REQUEST = 400

DESCRIPTIONS = {
    400: "The request is invalid",
    401: "Missing or wrong token",
    403: "Not allowed",
    404: "Not found",
    408: "The request body arrived too slowly",
    409: "Conflicts with an existing resource",
    413: "The request body is too large",
    421: "Unknown Host header",
    422: "The request is malformed; `detail` names the fields",
    429: "Too many requests; see Retry-After",
    500: "Internal error; see the log",
    501: "Not supported",
    502: "An upstream server failed",
    503: "Temporarily unavailable; see Retry-After",
}


class FieldError(BaseModel):
    """An invalid field; `loc` is its path."""

    loc: list[str | int]
    msg: str
    type: str


class ErrorBody(BaseModel):
    """An error: a sentence, or the invalid fields."""

    detail: str | list[FieldError]


_SCHEMAS = "#/components/schemas/{model}"
_ERROR_CONTENT = {"application/json": {"schema": {"$ref": _SCHEMAS.format(model="ErrorBody")}}}


def error_responses(*statuses: int) -> Responses:
    """Return the descriptions of error responses.

    They refer to the schema by name. For models, FastAPI would build a validator for each status of each route, which
    takes 0.17 s at startup.
    """
    return {
        status: {"content": _ERROR_CONTENT, "description": DESCRIPTIONS[status]}
        for status in statuses
    }


COMMON_RESPONSES = error_responses(401, 413, 421, 422, 429, 503)
"""Responses of access control, and of an unavailable database."""

SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}


def install_openapi(app: FastAPI) -> None:
    """Make the application build its OpenAPI document on first request."""

    def description() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _build_document(app)
        return app.openapi_schema

    app.openapi = description  # type: ignore[method-assign]


def _error_schemas() -> dict[str, Any]:
    schema = ErrorBody.model_json_schema(ref_template=_SCHEMAS)
    return {**schema.pop("$defs"), "ErrorBody": schema}


def _force_json_errors(answers: dict[str, dict[str, Any]]) -> None:
    """Describe errors as JSON, whatever the media type of the response."""
    for status, described in answers.items():
        if int(status) >= BAD_REQUEST and "content" in described:
            described["content"] = {"application/json": next(iter(described["content"].values()))}


def _add_errors(answers: dict[str, dict[str, Any]], *statuses: int) -> None:
    for status, described in error_responses(*statuses).items():
        answers.setdefault(str(status), described)


def _complete_operation(path: str, operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    if "requestBody" in operation:
        _add_errors(answers, 400, 408)
    if "{" in path:  # a name cannot contain a line break
        _add_errors(answers, 404)
    _force_json_errors(answers)
    for response in answers.values():
        if "text/event-stream" in response.get("content", {}):
            response["content"]["text/event-stream"] = {"schema": {}}
    if path in OPEN_PATHS:
        operation["security"] = []
        del answers["401"]
    elif not ("{" in path or operation.get("parameters") or "requestBody" in operation):
        answers.pop("404", None)  # without parameters, a request cannot be invalid


def _build_document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    components = document.setdefault("components", {})
    components["securitySchemes"] = SECURITY_SCHEMES
    components.setdefault("schemas", {}).update(_error_schemas())
    document["security"] = [{name: []} for name in SECURITY_SCHEMES]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _complete_operation(path, operation)
    return document
