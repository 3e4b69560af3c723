"""What every handler of this API shares: reading a body, checking an id, saying what was wrong."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

import orjson
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import override

from gateway.runtime.errors import (
    InvalidRequest,
    RunRequestError,
    RuntimeClosing,
    ThreadBusyError,
    UnknownAssistant,
)
from gateway.runtime.serialization import dumps
from store.errors import RowConflict, RowNotFound

MAX_DEPTH = 100
"""How deep JSON may be nested: it is shown again within further levels, and at 254 the encoder gives up."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Body = TypeVar("Body", bound=BaseModel)

_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (ThreadBusyError, 409),
    (RowConflict, 409),
    (RowNotFound, 404),
    (RuntimeClosing, 503),
)


class ApiError(Exception):
    """A request that cannot be served; carries the answer."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class WireRoute(APIRoute):
    """A route whose errors are `{"detail": text}` with LangGraph's status codes."""

    @override
    def get_route_handler(self) -> Handler:
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await inner(request)
            except ApiError as error:
                return error_json(error.status, error.detail)
            except (RunRequestError, RowNotFound, RowConflict) as error:
                return error_json(error_status(error), str(error))

        return handler


def error_status(error: Exception) -> int:
    """Return the HTTP status of an error of the runtime or the store."""
    if isinstance(error, UnknownAssistant):
        return 422 if error.by_name else 404
    if isinstance(error, InvalidRequest):
        return 422 if error.malformed else 400
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def json_response(
    value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return JSON."""
    return Response(
        dumps(value), status_code=status, headers=headers, media_type="application/json"
    )


def error_json(status: int, detail: str) -> Response:
    """Return an error."""
    return json_response({"detail": detail}, status=status)


async def read_body(request: Request, model: type[Body]) -> Body:
    """Return the request's body as `model`; unknown fields are ignored. Raises Refused (422)."""
    raw = await request.body()
    try:
        given = parse_json(raw) if raw else {}
    except orjson.JSONDecodeError:
        raise ApiError(422, "Invalid JSON in request body") from None
    return validate_body(model, given)


def parse_json(raw: bytes | str) -> object:
    """Return JSON.

    Raises:
        orjson.JSONDecodeError: it is none.
        Refused: it is nested deeper than can be kept and shown again.
    """
    text = raw.encode() if isinstance(raw, str) else raw
    given = orjson.loads(text)
    # What has few brackets is not deep; the others are rare, and looked at.
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _is_nested_too_deep(given):
        raise ApiError(422, f"The body is nested deeper than {MAX_DEPTH} levels.")
    return given


def _is_nested_too_deep(given: object) -> bool:
    level = [given]
    for _ in range(MAX_DEPTH):
        inner = [
            one.values() if isinstance(one, dict) else one
            for one in level
            if isinstance(one, dict | list)
        ]
        level = [value for one in inner for value in one]
        if not level:
            return False
    return any(isinstance(one, dict | list) for one in level)


def validate_body(model: type[Body], given: object) -> Body:
    """Return JSON as `model`. Raises Refused (422)."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise ApiError(422, _format_validation_error(error)) from None


def parse_id(given: str, what: str) -> str:
    """Return a thread's, run's or assistant's id in its canonical form. Raises Refused (422)."""
    try:
        return str(UUID(given))
    except ValueError:
        raise ApiError(422, f"Invalid {what} ID: must be a UUID") from None


def parse_number(text: str | None, *, default: int, most: int) -> int:
    """Return a number of a query, kept between 0 and `most`. Raises Refused (422)."""
    try:
        return max(0, min(int(text or default), most))
    except ValueError:
        raise ApiError(422, "limit and offset must be numbers") from None


def select_fields(view: Mapping[str, Any], select: Sequence[str] | None) -> dict[str, Any]:
    """Return a view with the asked-for fields alone; `values.messages` is one field inside another. None = all.

    Raises:
        Refused: there is no such field.

    >>> select_fields({"values": {"a": 1, "b": 2}, "next": []}, ["values.a"])
    {'values': {'a': 1}}
    """
    if not select:
        return dict(view)
    picked: dict[str, Any] = {}
    for path in select:
        name, _, inner = path.partition(".")
        if name not in view:
            raise ApiError(422, f"select: there is no field {name!r}; there are {', '.join(view)}.")
        whole = view[name]
        if not inner:
            picked[name] = whole
        elif isinstance(whole, Mapping):
            picked.setdefault(name, {})
            picked[name] |= {inner: whole[inner]} if inner in whole else {}
    return picked


def _format_validation_error(error: ValidationError) -> str:
    """Say which fields are wrong and why, without repeating their values."""
    parts = []
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        place = ".".join(str(step) for step in one["loc"]) or "body"
        parts.append(f"{place}: {one['msg']}")
    return "; ".join(parts)
