"""Parts shared by all routes of the LangGraph API: request parsing, error format, IDs, `select`, JSON responses."""

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any, TypeVar
from uuid import UUID

import orjson
from fastapi import Depends, HTTPException, Query
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import override

from gateway.runtime.serialization import dumps

MAX_DEPTH = 100
"""Maximum nesting of JSON. Responses add levels around it, and the encoder fails at 254."""

MAX_CONTAINERS = 1_000_000
"""Maximum number of lists and objects in JSON. Millions of empty ones fit into a body, and each takes time."""

_INVALID_JSON = "Invalid JSON in request body"

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Body = TypeVar("Body", bound=BaseModel)

LOCATION_HEADERS: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            name: {"schema": {"type": "string"}} for name in ("Location", "Content-Location")
        }
    }
}
PAGINATION_HEADERS: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            name: {"schema": {"type": "string"}}
            for name in ("X-Pagination-Total", "X-Pagination-Next")
        }
    }
}


class WireRequest(Request):
    """A request whose body is JSON regardless of its Content-Type. An empty body means `{}`."""

    @override
    async def body(self) -> bytes:
        return await super().body() or b"{}"

    @override
    async def json(self) -> Any:
        return parse_json(await self.body())


class WireRoute(APIRoute):
    """A route that reads JSON with orjson, and reports invalid requests like LangGraph Server: `{"detail": text}`."""

    @override
    def get_route_handler(self) -> Handler:
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            headers = [item for item in request.scope["headers"] if item[0] != b"content-type"]
            headers.append((b"content-type", b"application/json"))
            try:
                return await inner(
                    WireRequest({**request.scope, "headers": headers}, request.receive)
                )
            except RequestValidationError as error:
                raise HTTPException(422, _format_errors(error.errors())) from None

        return handler


def json_response(
    value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON response."""
    return Response(
        dumps(value), status_code=status, headers=headers, media_type="application/json"
    )


def parse_json(raw: bytes | str) -> object:
    """Parse JSON.

    Raises:
        orjson.JSONDecodeError: It is not JSON.
        HTTPException: 422, it is nested deeper than `MAX_DEPTH`, or has more than `MAX_CONTAINERS`.
    """
    text = raw.encode() if isinstance(raw, str) else raw
    # Brackets inside strings also count.
    opened = text.count(b"[") + text.count(b"{")
    if opened > MAX_CONTAINERS:
        raise HTTPException(422, f"The body has more than {MAX_CONTAINERS:,} lists and objects.")
    value = orjson.loads(text)
    # Text with few brackets cannot be deep. Other texts are rare and are checked.
    if opened > MAX_DEPTH and _is_too_deep(value):
        raise HTTPException(422, f"The body is nested deeper than {MAX_DEPTH} levels.")
    return value


def _is_too_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        containers = [
            item.values() if isinstance(item, dict) else item
            for item in level
            if isinstance(item, dict | list)
        ]
        level = [child for container in containers for child in container]
        if not level:
            return False
    return any(isinstance(item, dict | list) for item in level)


async def read_body(request: Request, model: type[Body]) -> Body:
    """Return a request's JSON body as `model`. Raises HTTPException (422)."""
    try:
        value = await request.json()
    except json.JSONDecodeError:
        raise HTTPException(422, _INVALID_JSON) from None
    return validate_body(model, value)


def validate_body(model: type[Body], value: object) -> Body:
    """Return JSON as `model`. Raises HTTPException (422)."""
    try:
        return model.model_validate(value, from_attributes=True)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise HTTPException(422, _format_errors(found)) from None


def parse_id(value: str, kind: str) -> str:
    """Return the ID of a thread, run or assistant in canonical form. Raises HTTPException (422)."""
    try:
        return str(UUID(value))
    except ValueError:
        raise HTTPException(422, f"Invalid {kind} ID: must be a UUID") from None


def parse_names(values: Sequence[str]) -> list[str]:
    """Return the names in a query parameter: repeated keys, JSON lists, or comma-separated names.

    Raises:
        HTTPException: 422 if a value starts like a JSON list but is not valid JSON.
    """
    names: list[str] = []
    for value in values:
        names += _parse_json_list(value) if value.startswith("[") else value.split(",")
    return [name.strip() for name in names if name.strip()]


def _parse_json_list(text: str) -> list[str]:
    try:
        return [str(name) for name in json.loads(text)]
    except ValueError:
        raise HTTPException(422, "A list in the query is not valid JSON.") from None


async def _parse_select(
    select: Annotated[
        list[str],
        Query(
            default_factory=list,
            description="Return only these fields; `values.messages` names a nested field",
        ),
    ],
) -> list[str]:
    return parse_names(select)


SelectDep = Annotated[list[str], Depends(_parse_select)]


def select_fields(view: Mapping[str, Any], select: Sequence[str] | None) -> dict[str, Any]:
    """Return only the selected fields of a view; all fields if none are selected.

    Raises:
        HTTPException: 422 if a field does not exist.

    >>> select_fields({"values": {"a": 1, "b": 2}, "next": []}, ["values.a"])
    {'values': {'a': 1}}
    """
    if not select:
        return dict(view)
    picked: dict[str, Any] = {}
    for path in select:
        name, _, inner = path.partition(".")
        if name not in view:
            raise HTTPException(
                422, f"select: there is no field {name!r}; available: {', '.join(view)}."
            )
        whole = view[name]
        if not inner:
            picked[name] = whole
        elif isinstance(whole, Mapping):
            picked.setdefault(name, {})
            picked[name] |= {inner: whole[inner]} if inner in whole else {}
    return picked


def _format_errors(errors: Sequence[Any]) -> str:
    """Return the invalid fields with reasons, without repeating their values."""
    parts = []
    for error in errors:
        if error["type"] == "json_invalid":
            return _INVALID_JSON
        steps = error["loc"][1:] if error["loc"][:1] in (("body",), ("query",)) else error["loc"]
        parts.append(f"{'.'.join(map(str, steps)) or 'body'}: {error['msg']}")
    return "; ".join(parts)
