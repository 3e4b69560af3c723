"""Handing out a thread's files over HTTP."""

from collections.abc import Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from agent.artifacts import OpenFile

ACTIVE = frozenset(
    {"text/html", "application/xhtml+xml", "image/svg+xml", "text/xml", "application/xml"}
)
"""What a browser would run: always handed out as a download."""


class OpenFileResponse(StreamingResponse):
    """Streams an open file, and closes it however the response ends."""

    def __init__(self, file: OpenFile, *, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(file.read(), media_type=media_type, headers=headers)
        self._file = file

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()
