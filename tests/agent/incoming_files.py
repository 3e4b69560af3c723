"""Incoming files with known content, for upload tests."""

from collections.abc import AsyncIterator

from agent.uploads.batch import IncomingFile


def file_from_bytes(filename: str, content: bytes) -> IncomingFile:
    """Return a file with this content."""

    async def chunks() -> AsyncIterator[bytes]:
        yield content

    return IncomingFile(filename=filename, chunks=chunks())
