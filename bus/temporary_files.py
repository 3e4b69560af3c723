"""Temporary files on their way between a platform and the gateway: a folder for them, and a disk that takes none."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread

from bus.errors import DeliveryError


@asynccontextmanager
async def temporary_folder() -> AsyncIterator[Path]:
    """Yield a folder, which is deleted with its content after the block. Raises DeliveryError: there is no room."""
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
    """Return the error of a file that cannot be copied because the disk takes no temporary file now."""
    return DeliveryError(f"no temporary file could be written ({error.strerror})", retryable=True)
