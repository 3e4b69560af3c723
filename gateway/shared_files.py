"""SharedFilesRoute: updates custom skills and agents before a request, and stores the request's changes."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from typing_extensions import override

from agent.services import AgentServices
from store.files.mirror import SHARED_AREA

_READING = frozenset({"GET", "HEAD"})


class SharedFilesRoute(APIRoute):
    """A route that reads or changes files that all nodes share. Other nodes see a change once the response is sent."""

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_shared(request: Request) -> Response:
            services: AgentServices = request.app.state.agent_services
            await services.mirror.fetch(SHARED_AREA)
            response = await handle(request)
            if request.method not in _READING:
                await services.mirror.store(SHARED_AREA)
            return response

        return handle_shared
