"""Handing out a thread's files over HTTP."""

from collections.abc import Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from agent.artifacts import ArtifactFile

_ACTIVE = frozenset(
    {
        "text/html",
        "text/xml",
        "text/xsl",
        "application/xml",
        "application/xslt+xml",
        "application/javascript",
        "text/javascript",
        "application/x-shockwave-flash",
        "message/rfc822",
    }
)


def is_active(mime: str) -> bool:
    """Return whether a browser may run what is in a file: such files are always handed out as downloads.

    >>> is_active("image/svg+xml"), is_active("multipart/related"), is_active("image/png")
    (True, True, False)
    """
    return mime in _ACTIVE or mime.endswith("+xml") or mime.startswith("multipart/")


class OpenFileResponse(StreamingResponse):
    """Streams an open file, and closes it however the response ends."""

    def __init__(self, file: ArtifactFile, *, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(file.read(), media_type=media_type, headers=headers)
        self._file = file

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()
