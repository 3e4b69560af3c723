"""RemoteFiles: the files of threads on another gateway (`channels.gateway_url`), over its REST API."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from typing_extensions import override

from bus.errors import DeliveryError
from bus.file_form import FileForm
from bus.runs.port import ThreadFile, ThreadFiles, uploaded_file

UPLOAD_TIMEOUT_S = 90.0
"""How long the gateway may be silent before an upload is given up, seconds. It may be converting a document."""

FETCH_TIMEOUT_S = 30.0
"""How long the gateway may be silent before a fetch is given up, seconds."""


class RemoteFiles(ThreadFiles):
    """The files of the threads on one gateway.

    Args:
        gateway: The gateway's REST API; its base URL ends in `/api`.
    """

    def __init__(self, gateway: httpx.AsyncClient) -> None:
        self._gateway = gateway

    @override
    async def put(self, thread_id: str, name: str, source: Path) -> Mapping[str, Any]:
        form = FileForm("files", name, source)
        try:
            answer = await self._gateway.post(
                f"threads/{thread_id}/uploads",
                content=form.chunks(),
                headers=form.headers,
                timeout=UPLOAD_TIMEOUT_S,
            )
        except httpx.HTTPError as error:
            raise _unreachable(error) from error
        if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise DeliveryError("the gateway could not keep it", retryable=True)
        return _parse_upload(answer)

    @override
    @asynccontextmanager
    async def open(self, thread_id: str, path: str) -> AsyncIterator[ThreadFile | None]:
        url = f"threads/{thread_id}/artifacts/{quote(path.lstrip('/'))}"
        try:
            async with self._gateway.stream("GET", url, timeout=FETCH_TIMEOUT_S) as answer:
                if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
                    raise DeliveryError("the gateway could not read the file", retryable=True)
                if answer.is_error:
                    yield None
                else:
                    named = answer.headers.get("content-type", "application/octet-stream")
                    mime = named.partition(";")[0]
                    yield ThreadFile(mime=mime, chunks=answer.aiter_bytes())
        except httpx.HTTPError as error:
            raise _unreachable(error) from error


def _parse_upload(answer: httpx.Response) -> Mapping[str, Any]:
    """Return the file that the gateway kept. Raises DeliveryError if the gateway refused it."""
    try:
        document = answer.json()
    except ValueError:
        document = {}
    if not isinstance(document, dict):
        document = {}
    if answer.is_error:
        detail = document.get("detail")
        raise DeliveryError(detail if isinstance(detail, str) else "the gateway refused it")
    kept = [file for file in document.get("files") or [] if isinstance(file, dict)]
    if not kept or not kept[0].get("filename"):
        raise DeliveryError("the gateway refused its name")
    return uploaded_file(
        str(kept[0]["filename"]),
        kept[0].get("size") or 0,
        str(kept[0].get("virtual_path") or kept[0].get("path") or ""),
    )


def _unreachable(error: httpx.HTTPError) -> DeliveryError:
    reason = f"the gateway cannot be reached ({type(error).__name__})"
    return DeliveryError(reason, retryable=True)
