"""Files to send, copied into a temporary folder: from the agent's threads, or from the journal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import to_thread

from bus.errors import DeliveryError
from bus.messages import OutboundFile
from bus.platform import OutgoingFile
from bus.runs.port import ThreadFiles
from bus.temporary_files import temporary_file_error, temporary_folder
from store.errors import StoreError
from store.outbox_files import OutboxFiles


class ArtifactDownloader:
    """The output files of threads, and the files of notifications (`stored`)."""

    def __init__(self, files: ThreadFiles, stored: OutboxFiles) -> None:
        self._files = files
        self._stored = stored

    @asynccontextmanager
    async def download(
        self, body: OutboundFile, *, max_bytes: int
    ) -> AsyncIterator[OutgoingFile | str]:
        """Yield the file in a temporary folder, or a sentence that tells the user why it is missing.

        Raises:
            DeliveryError: the thread's files, the journal or the disk cannot be used now, or the journal does not have
                the file; nothing was sent.
        """
        async with temporary_folder() as folder:
            target = folder / "artifact"
            if body.content:
                yield await to_thread.run_sync(_write, body, target)
            elif body.file_id:
                yield await self._read(body, target)
            else:
                yield await self._fetch(body, target, max_bytes)

    async def _fetch(self, body: OutboundFile, target: Path, max_bytes: int) -> OutgoingFile | str:
        texts = body.reply_target.texts
        try:
            async with self._files.open(body.thread_id, body.path) as file:
                if file is None:
                    return texts.artifact_gone.format(name=body.name)
                size, mime = await _save(file.chunks, target, max_bytes), file.mime
        except OSError as error:
            raise temporary_file_error(error) from error
        if size is None:
            return texts.artifact_too_large.format(name=body.name, megabytes=max_bytes // 1_000_000)
        if size == 0:
            return texts.artifact_empty.format(name=body.name)
        return OutgoingFile(path=target, name=body.name, mime=mime, size_bytes=size)

    async def _read(self, body: OutboundFile, target: Path) -> OutgoingFile:
        try:
            size = await _save(self._stored.read(body.file_id), target, None)
        except OSError as error:
            raise temporary_file_error(error) from error
        except StoreError as error:
            raise DeliveryError("the journal cannot be read", retryable=True) from error
        if not size:
            raise DeliveryError("the file is no longer stored")
        return OutgoingFile(path=target, name=body.name, mime=body.mime, size_bytes=size)


def _write(body: OutboundFile, target: Path) -> OutgoingFile:
    content = body.content.encode("utf-8", "replace")
    try:
        target.write_bytes(content)
    except OSError as error:
        raise temporary_file_error(error) from error
    return OutgoingFile(path=target, name=body.name, mime="text/markdown", size_bytes=len(content))


async def _save(chunks: AsyncIterator[bytes], target: Path, max_bytes: int | None) -> int | None:
    """Write a file to `target`; return its size, or None if it is larger than `max_bytes` (None = no limit)."""
    size = 0
    # Close the file without awaiting, because a canceled task cannot await and would leave it open.
    with await to_thread.run_sync(target.open, "wb") as file:
        async for chunk in chunks:
            size += len(chunk)
            if max_bytes is not None and size > max_bytes:
                return None
            await to_thread.run_sync(file.write, chunk)
    return size
