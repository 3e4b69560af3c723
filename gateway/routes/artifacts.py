"""GET /api/threads/{id}/artifacts/{path}: the files of a thread."""

from urllib.parse import quote

from anyio import to_thread
from fastapi import APIRouter, HTTPException

from agent.errors import PathRefused, ThreadIdInvalid
from agent.paths import USER_DATA, below, normalise
from gateway.artifacts import ACTIVE, OpenFile, OpenFileResponse, open_below
from gateway.deps import Parts

router = APIRouter()


@router.get("/threads/{thread_id}/artifacts/{path:path}")
async def artifact(
    thread_id: str, path: str, parts: Parts, *, download: bool = False
) -> OpenFileResponse:
    """Return one file; `path` is its virtual path without the leading slash."""
    file = await _opened(parts, thread_id, path)
    is_attachment = download or file.mime in ACTIVE
    mime = f"{file.mime}; charset=utf-8" if file.mime.startswith("text/") else file.mime
    return OpenFileResponse(
        file,
        media_type=mime,
        headers={
            "Content-Length": str(file.size_bytes),
            "Content-Disposition": _disposition(file.name, attachment=is_attachment),
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; sandbox",
        },
    )


async def _opened(parts: Parts, thread_id: str, path: str) -> OpenFile:
    try:
        way = below(normalise("/" + path), USER_DATA)
        folder = parts.folders.of(thread_id).user_data
    except PathRefused:
        raise HTTPException(403, "This path may not be read.") from None
    except ThreadIdInvalid:
        raise HTTPException(422, "This is not a thread's id.") from None
    if way is None:
        raise HTTPException(403, "Only files below /mnt/user-data can be read.")
    try:
        return await to_thread.run_sync(open_below, folder, way)
    except FileNotFoundError:
        raise HTTPException(404, "There is no such file.") from None
    except IsADirectoryError:
        raise HTTPException(400, "This is not a file.") from None


def _disposition(name: str, *, attachment: bool) -> str:
    kind = "attachment" if attachment else "inline"
    return f"{kind}; filename*=UTF-8''{quote(name, safe='', errors='replace')}"
