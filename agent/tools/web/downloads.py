"""Saves the files that web_fetch finds instead of pages to the workspace, and converts documents to text."""

import os
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from hashlib import sha256
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import anyio.to_thread

from agent.errors import AgentError, ConversionFailed
from agent.paths import WORKSPACE, MountTable
from agent.sandbox import files
from agent.thread_storage import ThreadFolders, create_file
from agent.tools.services import ToolServices
from agent.tools.web.client import WebResponse
from agent.tools.web.page import with_title
from agent.uploads.names import CONVERTIBLE, safe_name

MAX_NAME_CHARS = 100
"""Longest name of a download, characters, without its suffix."""

MAX_REMEMBERED = 1_000
"""Maximum number of saved files to remember."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDownload:
    """A file that web_fetch saved.

    Attributes:
        digest: The hash of its content.
        note: A sentence that says where it is.
        file: Its name in the workspace.
        text_file: The name of the file with its text; None if there is none.
    """

    digest: bytes
    note: str
    file: str
    text_file: str | None = None


class SavedDownloads:
    """Saves files, and remembers the latest by thread and URL, so that each is saved only once."""

    def __init__(self, services: ToolServices) -> None:
        self._services = services
        self._saved: OrderedDict[tuple[str, str], SavedDownload] = OrderedDict()

    async def read_again(self, thread_id: str, url: str) -> str | None:
        """Return where a saved file is, and its text; None if it was not saved or is gone."""
        saved = self._saved.get((thread_id, url))
        if saved is None:
            return None
        return await anyio.to_thread.run_sync(
            _read_saved, saved, self._services.folders.folders(thread_id)
        )

    async def save(self, thread_id: str, url: str, answer: WebResponse) -> str:
        """Save a file in the thread's workspace unless it is already there. Return where it is, and a document's text.

        Raises:
            SandboxError: The thread has no space for it.
            ThreadIdInvalid: The thread cannot have files.
            OSError: The file cannot be written.
        """
        known = self._saved.get((thread_id, url))
        if known is not None and known.digest == sha256(answer.body).digest():
            text = await self.read_again(thread_id, url)
            if text is not None:
                return text
        self._saved[thread_id, url] = await _save_download(answer, self._services, thread_id)
        if len(self._saved) > MAX_REMEMBERED:
            self._saved.popitem(last=False)
        text = await self.read_again(thread_id, url)
        if text is None:
            raise FileNotFoundError
        return text


def _read_saved(saved: SavedDownload, folders: ThreadFolders) -> str | None:
    table = MountTable(folders.mounts())
    try:
        files.require_file(files.resolve_path(table, saved.file))
        if saved.text_file is None:
            return with_title(saved.file, saved.note)
        text = files.read_text(files.resolve_path(table, saved.text_file)).text
    except AgentError:
        return None
    return with_title(saved.file, f"{saved.note}\n\n{text}")


async def _save_download(
    answer: WebResponse, services: ToolServices, thread_id: str
) -> SavedDownload:
    """Save a downloaded file in the thread's workspace, and its text beside it if it is a document."""
    folders = services.folders.folders(thread_id)
    meter = services.folders.open_meter(thread_id)

    def save(name: str, content: bytes) -> tuple[str, int]:
        folders.create()
        if meter is not None:
            meter.require_space(len(content))
        return _create_file(folders.workspace, name, content)

    digest = sha256(answer.body).digest()
    name = file_name(answer)
    saved, descriptor = await anyio.to_thread.run_sync(save, name, answer.body)
    try:
        note = f"[Saved as {WORKSPACE}/{saved}, {len(answer.body):,} bytes."
        suffix = PurePosixPath(saved).suffix
        if suffix not in CONVERTIBLE:
            return SavedDownload(digest=digest, note=f"{note}]", file=saved)
        try:
            text = await services.converter.convert(descriptor, suffix)
        except ConversionFailed as error:
            note = f"{note} It has no text version: {error}.]"
            return SavedDownload(digest=digest, note=note, file=saved)
    finally:
        os.close(descriptor)
    text_name, text_descriptor = await anyio.to_thread.run_sync(save, f"{saved}.md", text.encode())
    os.close(text_descriptor)
    note = f"{note} Its text: {WORKSPACE}/{text_name}]"
    return SavedDownload(digest=digest, note=note, file=saved, text_file=text_name)


def file_name(answer: WebResponse) -> str:
    """Return a file name for a download: the server's name for it, or the end of its URL with the type's suffix.

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
    """Create a file under an unused name. Return the name and the file's descriptor."""
    path = PurePosixPath(name)
    for number in range(1000):
        free = f"{path.stem}_{number}{path.suffix}" if number else name
        with suppress(FileExistsError):
            return free, create_file(folder, free, content)
    raise FileExistsError(name)
