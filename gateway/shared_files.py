"""SharedFilesRoute: updates custom skills and agents before a request, and stores the request's changes."""

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from typing_extensions import override

from agent.services import AgentServices
from store.files.mirror import SHARED_AREA

_READING = frozenset({"GET", "HEAD"})


class SharedFilesRoute(APIRoute):
    """A route that reads or changes files that all nodes share. Other nodes see a change once the response is sent.

    It refuses JSON that a file cannot hold.
    """

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_shared(request: Request) -> Response:
            await _check_storable(request)
            services: AgentServices = request.app.state.agent_services
            await services.mirror.fetch(SHARED_AREA)
            response = await handle(request)
            if request.method not in _READING:
                await services.mirror.store(SHARED_AREA)
            return response

        return handle_shared


async def _check_storable(request: Request) -> None:
    """Refuse JSON that cannot be written into a file and read again. Raises HTTPException (422)."""
    if "json" not in request.headers.get("content-type", "").lower():
        return
    try:
        value = await request.json()
    except (ValueError, RecursionError):
        return  # The route says what is wrong.
    try:
        orjson.dumps(value)
    except TypeError:
        raise HTTPException(
            422,
            "The body has half a surrogate pair, an integer beyond 64 bits, or too many levels.",
        ) from None
