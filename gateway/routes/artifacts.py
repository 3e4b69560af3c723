"""GET /api/threads/{id}/artifacts/{path}: the files of a thread."""

from pathlib import Path
from urllib.parse import quote

from anyio import to_thread
from fastapi import APIRouter, HTTPException, Response

from agent.errors import PathRefused, ThreadIdInvalid
from agent.paths import USER_DATA, below, normalise
from gateway.artifacts import (
    ACTIVE,
    Member,
    MemberTooLarge,
    OpenFile,
    OpenFileResponse,
    open_below,
)
from gateway.deps import Parts

router = APIRouter()


@router.get("/threads/{thread_id}/artifacts/{path:path}", response_class=Response)
async def artifact(thread_id: str, path: str, parts: Parts, *, download: bool = False) -> Response:
    """Return one file; `path` is its virtual path without the leading slash, or that of a part of a `.skill` file."""
    way = _way(path)
    try:
        folder = parts.folders.of(thread_id).user_data
        found = await to_thread.run_sync(_found, folder, way)
    except ThreadIdInvalid:
        raise HTTPException(422, "This is not a thread's id.") from None
    except FileNotFoundError:
        raise HTTPException(404, "There is no such file.") from None
    except IsADirectoryError:
        raise HTTPException(400, "This is not a file.") from None
    except MemberTooLarge:
        raise HTTPException(413, "This part of the archive is too large to be shown.") from None
    return _response(found, download=download)


def _way(path: str) -> tuple[str, ...]:
    try:
        way = below(normalise("/" + path), USER_DATA)
    except PathRefused:
        raise HTTPException(403, "This path may not be read.") from None
    if way is None:
        raise HTTPException(403, "Only files below /mnt/user-data can be read.")
    return way


def _split(way: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Divide a path behind the first `.skill` file on the way; the second part is empty where there is none before.

    >>> _split(("outputs", "a.skill", "SKILL.md")), _split(("outputs", "a.skill"))
    ((('outputs', 'a.skill'), ('SKILL.md',)), (('outputs', 'a.skill'), ()))
    """
    for i, part in enumerate(way):
        if part.endswith(".skill"):
            return way[: i + 1], way[i + 1 :]
    return way, ()


def _found(folder: Path, way: tuple[str, ...]) -> OpenFile | Member:
    """Open a file, or unpack a part of a `.skill` file. Blocking."""
    try:
        return open_below(folder, way)
    except FileNotFoundError:
        archive, inner = _split(way)
        if not inner:
            raise
        file = open_below(folder, archive)
    try:
        return file.member("/".join(inner))
    finally:
        file.close()


def _response(found: OpenFile | Member, *, download: bool) -> Response:
    if isinstance(found, OpenFile):
        headers = _headers(found, found.size_bytes, download=download)
        return OpenFileResponse(found, media_type=_media_type(found), headers=headers)
    headers = _headers(found, len(found.content), download=download)
    return Response(found.content, media_type=_media_type(found), headers=headers)


def _media_type(file: OpenFile | Member) -> str:
    return f"{file.mime}; charset={file.charset}" if file.mime.startswith("text/") else file.mime


def _headers(file: OpenFile | Member, size_bytes: int, *, download: bool) -> dict[str, str]:
    is_attachment = download or file.mime in ACTIVE
    return {
        "Content-Length": str(size_bytes),
        "Content-Disposition": _disposition(file.name, attachment=is_attachment),
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }


def _disposition(name: str, *, attachment: bool) -> str:
    kind = "attachment" if attachment else "inline"
    return f"{kind}; filename*=UTF-8''{quote(name, safe='', errors='replace')}"
