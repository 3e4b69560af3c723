"""Fetches files that the agent presented from the gateway, to send them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from anyio import to_thread

from bus.errors import DeliveryError
from bus.messages import OutboundFile
from bus.platform import OutgoingFile
from bus.temporary_files import temporary_file_error, temporary_folder

FETCH_TIMEOUT_S = 30.0
"""How long the gateway may send nothing during a fetch, seconds."""


class ArtifactDownloader:
    """The threads' output files, fetched from the gateway's REST API."""

    def __init__(self, gateway: httpx.AsyncClient) -> None:
        self._gateway = gateway

    @asynccontextmanager
    async def download(
        self, body: OutboundFile, *, max_bytes: int
    ) -> AsyncIterator[OutgoingFile | str]:
        """Yield the file in a temporary folder, or a sentence for the user that says why it is missing.

        Raises:
            DeliveryError: The gateway or the disk cannot be used now. Nothing was sent.
        """
        async with temporary_folder() as folder:
            target = folder / "artifact"
            if body.content:
                yield await to_thread.run_sync(_write, body, target)
            else:
                yield await self._fetch(body, target, max_bytes)

    async def _fetch(self, body: OutboundFile, target: Path, max_bytes: int) -> OutgoingFile | str:
        texts = body.reply_target.texts
        path = f"threads/{body.thread_id}/artifacts/{body.path.lstrip('/')}"
        try:
            async with self._gateway.stream("GET", path, timeout=FETCH_TIMEOUT_S) as answer:
                if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
                    raise DeliveryError("the gateway could not read the file", retryable=True)
                if answer.is_error:
                    return texts.artifact_gone.format(name=body.name)
                size = await _save(answer, target, max_bytes)
                mime = answer.headers.get("content-type", "application/octet-stream").partition(
                    ";"
                )[0]
        except OSError as error:
            raise temporary_file_error(error) from error
        except httpx.HTTPError as error:
            reason = f"the gateway cannot be reached ({type(error).__name__})"
            raise DeliveryError(reason, retryable=True) from error
        if size is None:
            return texts.artifact_too_large.format(name=body.name, megabytes=max_bytes // 1_000_000)
        if size == 0:
            return texts.artifact_empty.format(name=body.name)
        return OutgoingFile(path=target, name=body.name, mime=mime, size_bytes=size)


def _write(body: OutboundFile, target: Path) -> OutgoingFile:
    content = body.content.encode("utf-8", "replace")
    try:
        target.write_bytes(content)
    except OSError as error:
        raise temporary_file_error(error) from error
    return OutgoingFile(path=target, name=body.name, mime="text/markdown", size_bytes=len(content))


async def _save(answer: httpx.Response, target: Path, max_bytes: int) -> int | None:
    """Write the body to `target`. Return its size, or None if it is larger than `max_bytes`."""
    size = 0
    # Close the file without awaiting, because a cancelled task cannot await and would leave it open.
    with await to_thread.run_sync(target.open, "wb") as file:
        async for chunk in answer.aiter_bytes():
            size += len(chunk)
            if size > max_bytes:
                return None
            await to_thread.run_sync(file.write, chunk)
    return size
