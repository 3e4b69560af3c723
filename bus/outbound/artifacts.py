"""Files that the agent presented, copied from their thread to be sent on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import to_thread

from bus.messages import OutboundFile
from bus.platform import OutgoingFile
from bus.runs.port import ThreadFile, ThreadFiles
from bus.temporary_files import temporary_file_error, temporary_folder


class ArtifactDownloader:
    """The output files of threads."""

    def __init__(self, files: ThreadFiles) -> None:
        self._files = files

    @asynccontextmanager
    async def download(
        self, body: OutboundFile, *, max_bytes: int
    ) -> AsyncIterator[OutgoingFile | str]:
        """Yield the file in a temporary folder, or a sentence for the user that says why it is missing.

        Raises:
            DeliveryError: the thread's files or the disk cannot be used now; nothing was sent.
        """
        async with temporary_folder() as folder:
            target = folder / "artifact"
            if body.content:
                yield await to_thread.run_sync(_write, body, target)
            else:
                yield await self._fetch(body, target, max_bytes)

    async def _fetch(self, body: OutboundFile, target: Path, max_bytes: int) -> OutgoingFile | str:
        texts = body.reply_target.texts
        try:
            async with self._files.open(body.thread_id, body.path) as file:
                if file is None:
                    return texts.artifact_gone.format(name=body.name)
                size, mime = await _save(file, target, max_bytes), file.mime
        except OSError as error:
            raise temporary_file_error(error) from error
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


async def _save(source: ThreadFile, target: Path, max_bytes: int) -> int | None:
    """Write a file to `target`; return its size, or None if it is larger than `max_bytes`."""
    size = 0
    # Close the file without awaiting, because a canceled task cannot await and would leave it open.
    with await to_thread.run_sync(target.open, "wb") as file:
        async for chunk in source.chunks:
            size += len(chunk)
            if size > max_bytes:
                return None
            await to_thread.run_sync(file.write, chunk)
    return size
