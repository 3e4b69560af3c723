"""What the OpenAPI document says of every route alike: the token, the guard's answers, what a problem looks like."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from gateway.auth import OPEN_PATHS

Responses = dict[int | str, dict[str, Any]]

BAD_REQUEST = 400

DESCRIPTIONS = {
    400: "The request cannot be served as it is",
    401: "No token, or a wrong one",
    403: "This may not be done",
    404: "There is no such thing",
    408: "The body came too slowly",
    409: "It stands in the way of something that is there",
    413: "The body is too large",
    421: "The gateway is not addressed by that name",
    422: "The request is malformed; the fields are named",
    429: "Too many requests; see Retry-After",
    500: "It could not be done; see the log",
    501: "This server has no such thing",
    502: "A server behind this one failed",
    503: "Not now; see Retry-After",
}


class FieldError(BaseModel):
    """What is wrong with one field; `loc` is the way to it."""

    loc: list[str | int]
    msg: str
    type: str


class ErrorBody(BaseModel):
    """Why a request was not served: a sentence, or the fields that are wrong."""

    detail: str | list[FieldError]


_SCHEMAS = "#/components/schemas/{model}"
_ERROR_CONTENT = {"application/json": {"schema": {"$ref": _SCHEMAS.format(model="ErrorBody")}}}


def error_responses(*statuses: int) -> Responses:
    """Return the description of answers that are problems.

    The schema is named instead of the model: for a model the framework builds a validator for each status of each
    route, which took a sixth of a second at every start.
    """
    return {
        status: {"content": _ERROR_CONTENT, "description": DESCRIPTIONS[status]}
        for status in statuses
    }


COMMON_RESPONSES = error_responses(401, 413, 421, 422, 429, 503)
"""The guard's answers, and those of a store that cannot be used."""

SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}


def install_openapi(app: FastAPI) -> None:
    """Let an application describe itself, when it is first asked to."""

    def description() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _build_document(app)
        return app.openapi_schema

    app.openapi = description  # type: ignore[method-assign]


def _error_schemas() -> dict[str, Any]:
    schema = ErrorBody.model_json_schema(ref_template=_SCHEMAS)
    return {**schema.pop("$defs"), "ErrorBody": schema}


def _force_json_errors(answers: dict[str, dict[str, Any]]) -> None:
    """Problems are JSON, also where the answer itself is something else."""
    for status, described in answers.items():
        if int(status) >= BAD_REQUEST and "content" in described:
            described["content"] = {"application/json": next(iter(described["content"].values()))}


def _add_body_errors(answers: dict[str, dict[str, Any]]) -> None:
    """What has a body may have one that is no text, or that does not come."""
    for status, described in error_responses(400, 408).items():
        answers.setdefault(str(status), described)


def _build_document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    components = document.setdefault("components", {})
    components["securitySchemes"] = SECURITY_SCHEMES
    components.setdefault("schemas", {}).update(_error_schemas())
    document["security"] = [{name: []} for name in SECURITY_SCHEMES]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if "requestBody" in operation:
                _add_body_errors(operation["responses"])
            _force_json_errors(operation["responses"])
            for response in operation["responses"].values():
                if "text/event-stream" in response.get("content", {}):
                    response["content"]["text/event-stream"] = {"schema": {}}
            if path in OPEN_PATHS:
                operation["security"] = []
                del operation["responses"]["401"]
            elif not operation.get("parameters") and "requestBody" not in operation:
                # What is asked for without a name is there.
                operation["responses"].pop("404", None)
    return document
