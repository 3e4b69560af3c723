"""EmbeddedFiles: the files of threads, read and written in this process."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from typing_extensions import override

from agent.artifacts import ArchiveMember, ArtifactFile, fetch_artifact
from agent.client.files import upload_to_json
from agent.errors import (
    ArchiveMemberTooLarge,
    PathNotAllowed,
    ThreadIdInvalid,
    UploadError,
    UploadNotAllowed,
    UploadTooLarge,
)
from agent.services import AgentServices
from agent.uploads.batch import IncomingFile, file_from_path
from bus.errors import DeliveryError
from bus.runs.port import ThreadFile, ThreadFiles, uploaded_file
from store.errors import StoreError

_REFUSALS = (ThreadIdInvalid, UploadNotAllowed, UploadTooLarge)
_NO_SUCH_FILE = (
    ThreadIdInvalid,
    PathNotAllowed,
    FileNotFoundError,
    IsADirectoryError,
    ArchiveMemberTooLarge,
)


class EmbeddedFiles(ThreadFiles):
    """The files of this process's threads.

    Args:
        services: The agent's services.
    """

    def __init__(self, services: AgentServices) -> None:
        self._services = services

    @override
    async def put(self, thread_id: str, name: str, source: Path) -> Mapping[str, Any]:
        async def files() -> AsyncIterator[IncomingFile]:
            yield file_from_path(source, name)

        try:
            result = await self._services.uploads.accept(thread_id, files())
        except _REFUSALS as error:
            raise DeliveryError(error.user_message) from error
        except (UploadError, StoreError, OSError) as error:
            raise DeliveryError("the gateway could not keep it", retryable=True) from error
        if not result.files:
            raise DeliveryError("the gateway refused its name")
        kept = upload_to_json(thread_id, result.files[0])
        return uploaded_file(kept["filename"], kept["size"], kept["virtual_path"])

    @override
    @asynccontextmanager
    async def open(self, thread_id: str, path: str) -> AsyncIterator[ThreadFile | None]:
        found = await self._find(thread_id, path)
        if found is None:
            yield None
            return
        try:
            yield ThreadFile(mime=found.mime, chunks=_chunks(found))
        finally:
            if isinstance(found, ArtifactFile):
                found.close()

    async def _find(self, thread_id: str, path: str) -> ArtifactFile | ArchiveMember | None:
        services, virtual = self._services, f"/{path.lstrip('/')}"
        try:
            return await fetch_artifact(services.folders, services.mirror, thread_id, virtual)
        except _NO_SUCH_FILE:
            return None
        except (StoreError, OSError) as error:
            raise _unreadable() from error


async def _chunks(file: ArtifactFile | ArchiveMember) -> AsyncIterator[bytes]:
    if isinstance(file, ArchiveMember):
        yield file.content
        return
    try:
        async for chunk in file.read():
            yield chunk
    except OSError as error:
        raise _unreadable() from error


def _unreadable() -> DeliveryError:
    return DeliveryError("the gateway could not read the file", retryable=True)
