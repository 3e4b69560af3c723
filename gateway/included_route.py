"""IncludedRoute: a route of a router that is included in others, without what only a router of its own would need."""

from collections.abc import Callable
from typing import Any

from fastapi.routing import APIRoute

_BUILT = (
    "app",
    "body_field",
    "dependant",
    "response_field",
    "response_fields",
    "stream_item_field",
)
"""What FastAPI builds from a route's definition, and builds again for each inclusion: 20 kB a route."""


class IncludedRoute(APIRoute):
    """The definition of a route: all routers of the gateway are included in its application."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401 - FastAPI's
        super().__init__(path, endpoint, **options)
        for name in _BUILT:
            del vars(self)[name]
