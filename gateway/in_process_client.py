"""InProcessLangGraphClient: the SDK's client of an application in this process; streams of runs do without HTTP.

The SDK hands paths and bodies to its HTTP client, and gets the parts of streams back. Here that client starts runs and
reads their events itself: nothing becomes a request, a response and an event stream only to be taken apart again.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

import httpx
import orjson
from fastapi import HTTPException
from langgraph_sdk._async.client import LangGraphClient
from langgraph_sdk._async.http import HttpClient
from langgraph_sdk._async.runs import RunsClient
from langgraph_sdk.schema import QueryParamTypes, StreamPart
from typing_extensions import override

from gateway.app import Application
from gateway.errors import STATUS_BY_ERROR
from gateway.langgraph.request_models import RunCreate
from gateway.langgraph.responses import INTERRUPT, ON_NODE_LOSS
from gateway.langgraph.route import parse_json, validate_body
from gateway.langgraph.runs import start_run
from gateway.runtime.live_run import LiveRun

_STREAM = re.compile(r"/threads/([^/?%]+)/runs/stream")
_REFUSALS: tuple[type[Exception], ...] = (HTTPException, TypeError, *STATUS_BY_ERROR)


class InProcessLangGraphClient(LangGraphClient):
    """The SDK's client of this process.

    Args:
        client: Makes all requests except the common start of a run.
        app: The application that `client` calls.
    """

    def __init__(self, client: httpx.AsyncClient, app: Application) -> None:
        super().__init__(client)
        self.runs = RunsClient(_RunStreams(client, app))


class _RunStreams(HttpClient):
    """Starts runs on threads and yields their events; whatever is not that, or is refused, is requested over HTTP."""

    def __init__(self, client: httpx.AsyncClient, app: Application) -> None:
        super().__init__(client)
        self._app = app
        self._restartable = client.headers.get(ON_NODE_LOSS) != INTERRUPT

    @override
    async def stream(
        self,
        path: str,
        method: str,
        *,
        json: dict[str, Any] | None = None,
        params: QueryParamTypes | None = None,
        headers: Mapping[str, str] | None = None,
        on_response: Callable[[httpx.Response], None] | None = None,
    ) -> AsyncIterator[StreamPart]:
        live: LiveRun | None = None
        if method == "POST" and not (params or headers or on_response):
            live = await self._start(path, json)
        if live is not None:
            reader = live.log.subscribe()
            while (events := await reader.receive()) is not None:
                for event in events:
                    yield StreamPart(event.name, orjson.loads(event.data), str(event.id))
            return
        parts = super().stream(
            path, method, json=json, params=params, headers=headers, on_response=on_response
        )
        async with aclosing(cast("Any", parts)) as stream:
            async for part in stream:
                yield part

    async def _start(self, path: str, body: dict[str, Any] | None) -> LiveRun | None:
        """Start a run; None = it is to be requested over HTTP, also for the error that this answers."""
        found = _STREAM.fullmatch(path)
        if found is None or self._app.by_node is not None:
            return None
        try:
            # As over the wire: the run shares no object with its caller.
            request = validate_body(RunCreate, parse_json(orjson.dumps(body)))
            if request.on_disconnect == "cancel":
                return None
            return await start_run(
                self._app.state.services, found[1], request, restartable=self._restartable
            )
        except _REFUSALS:
            return None
