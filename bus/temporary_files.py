"""Temporary files on their way between a platform and the gateway."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread

from bus.errors import DeliveryError


@asynccontextmanager
async def temporary_folder() -> AsyncIterator[Path]:
    """Yield a folder, which is deleted with its content after the block. Raises DeliveryError if the disk is full."""
    try:
        folder = await to_thread.run_sync(lambda: tempfile.TemporaryDirectory(prefix="parley-"))
    except OSError as error:
        raise temporary_file_error(error) from error
    try:
        yield Path(folder.name)
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(folder.cleanup)


def temporary_file_error(error: OSError) -> DeliveryError:
    """Return the DeliveryError for a temporary file that cannot be written."""
    return DeliveryError(f"no temporary file could be written ({error.strerror})", retryable=True)
