"""Files that web_fetch finds instead of a page: saves them in the workspace, and converts documents to text."""

import os
from collections.abc import Mapping
from contextlib import suppress
from email.message import Message
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import anyio.to_thread

from agent.errors import ConversionFailed
from agent.paths import WORKSPACE
from agent.thread_storage import create_file
from agent.tools.services import ToolServices
from agent.tools.web.client import WebResponse
from agent.tools.web.page import with_title
from agent.uploads.names import CONVERTIBLE, safe_name

MAX_NAME_CHARS = 100
"""Longest name of a download, characters, without its suffix."""

_SUFFIXES: Mapping[str, str] = {
    "application/pdf": ".pdf",
    "application/msword": ".doc",
    "application/vnd.ms-excel": ".xls",
    "application/vnd.ms-powerpoint": ".ppt",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/webp": ".webp",
    "application/zip": ".zip",
}


async def save_download(answer: WebResponse, services: ToolServices, thread_id: str) -> str:
    """Save a downloaded file in the thread's workspace. Return where it is, and a document's text.

    Raises:
        SandboxError: The thread has no space for it.
        ThreadIdInvalid: The thread cannot have files.
        OSError: The file cannot be written.
    """
    folders = services.folders.folders(thread_id)
    meter = services.folders.open_meter(thread_id)

    def save(name: str, content: bytes) -> tuple[str, int]:
        folders.create()
        if meter is not None:
            meter.require_space(len(content))
        return _create_file(folders.workspace, name, content)

    name = file_name(answer)
    saved, descriptor = await anyio.to_thread.run_sync(save, name, answer.body)
    try:
        note = f"[Saved as {WORKSPACE}/{saved}, {len(answer.body):,} bytes."
        suffix = PurePosixPath(saved).suffix
        if suffix not in CONVERTIBLE:
            return with_title(saved, f"{note}]")
        try:
            text = await services.converter.convert(descriptor, suffix)
        except ConversionFailed as error:
            return with_title(saved, f"{note} It has no text version: {error}.]")
    finally:
        os.close(descriptor)
    text_name, text_descriptor = await anyio.to_thread.run_sync(save, f"{saved}.md", text.encode())
    os.close(text_descriptor)
    return with_title(saved, f"{note} Its text: {WORKSPACE}/{text_name}]\n\n{text}")


def file_name(answer: WebResponse) -> str:
    """Return a file name for a download: the server's name for it or the end of its URL, with the type's suffix.

    >>> from httpx import URL
    >>> def name(url: str, kind: str, disposition: str = "") -> str:
    ...     headers = {"content-disposition": disposition}
    ...     return file_name(WebResponse(url=URL(url), media_type=kind, charset=None, body=b"", headers=headers))
    >>> name("https://a.example/q3%20report?x=1", "application/pdf")
    'q3 report.pdf'
    >>> name("https://a.example/", "image/png", 'attachment; filename="../../etc/x.png"')
    'x.png'
    >>> name("https://a.example/", "application/zip")
    'download.zip'
    """
    header = Message()
    header["content-disposition"] = answer.headers.get("content-disposition", "")
    given = header.get_filename() or unquote(answer.url.path).rstrip("/")
    path = PurePosixPath(safe_name(given) or "download")
    suffix = _SUFFIXES.get(answer.media_type, path.suffix.lower())
    if answer.body.startswith(b"%PDF-"):
        suffix = ".pdf"
    stem = path.stem if path.suffix.lower() in (suffix, ".jpeg") else path.name
    return f"{stem[:MAX_NAME_CHARS]}{suffix}"


def _create_file(folder: Path, name: str, content: bytes) -> tuple[str, int]:
    """Create a file under a name that is free. Return the name and the file's descriptor."""
    path = PurePosixPath(name)
    for number in range(1000):
        free = f"{path.stem}_{number}{path.suffix}" if number else name
        with suppress(FileExistsError):
            return free, create_file(folder, free, content)
    raise FileExistsError(name)
