"""GET /api/threads/{id}/artifacts/{path}: files of a thread."""

from collections.abc import Mapping
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from agent.artifacts import ArchiveMember, ArtifactFile, fetch_artifact
from agent.errors import ArchiveMemberTooLarge, PathNotAllowed, ThreadIdInvalid
from agent.paths import USER_DATA
from gateway.dependencies import AgentServicesDep
from gateway.openapi import error_responses

router = APIRouter(responses=error_responses(400, 403, 404, 413))


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
    """Return whether a browser might run code in a file. Such files are always sent as downloads.

    >>> is_active("image/svg+xml"), is_active("multipart/related"), is_active("image/png")
    (True, True, False)
    """
    return mime in _ACTIVE or mime.endswith("+xml") or mime.startswith("multipart/")


class OpenFileResponse(StreamingResponse):
    """Streams an open file, and closes it when the response ends in any way."""

    def __init__(self, file: ArtifactFile, *, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(file.read(), media_type=media_type, headers=headers)
        self._file = file

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


@router.get("/threads/{thread_id}/artifacts/{path:path}", response_class=Response)
async def get_artifact(
    thread_id: str, path: str, agent_services: AgentServicesDep, *, download: bool = False
) -> Response:
    """Return a file, or a file inside a `.skill` archive. `path` is its virtual path without the leading slash."""
    try:
        found = await fetch_artifact(
            agent_services.folders, agent_services.mirror, thread_id, f"/{path}"
        )
    except ThreadIdInvalid:
        raise HTTPException(422, "Invalid thread ID.") from None
    except PathNotAllowed:
        raise HTTPException(403, f"Only files below {USER_DATA} can be read.") from None
    except FileNotFoundError:
        raise HTTPException(404, "The file does not exist.") from None
    except IsADirectoryError:
        raise HTTPException(400, "The path is not a file.") from None
    except ArchiveMemberTooLarge:
        raise HTTPException(413, "The file in the archive is too large to return.") from None
    return _response(found, download=download)


def _response(found: ArtifactFile | ArchiveMember, *, download: bool) -> Response:
    if isinstance(found, ArtifactFile):
        headers = _headers(found, found.size_bytes, download=download)
        return OpenFileResponse(found, media_type=_media_type(found), headers=headers)
    headers = _headers(found, len(found.content), download=download)
    return Response(found.content, media_type=_media_type(found), headers=headers)


def _media_type(file: ArtifactFile | ArchiveMember) -> str:
    return f"{file.mime}; charset={file.charset}" if file.mime.startswith("text/") else file.mime


def _headers(
    file: ArtifactFile | ArchiveMember, size_bytes: int, *, download: bool
) -> dict[str, str]:
    is_attachment = download or is_active(file.mime)
    return {
        "Content-Length": str(size_bytes),
        "Content-Disposition": _disposition(file.name, attachment=is_attachment),
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }


def _disposition(name: str, *, attachment: bool) -> str:
    kind = "attachment" if attachment else "inline"
    return f"{kind}; filename*=UTF-8''{quote(name, safe='', errors='replace')}"
