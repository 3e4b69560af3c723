"""Client methods for uploads and artifacts. Results have the same format as in the HTTP API."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.parse import quote

import anyio.to_thread

from agent.artifacts import ArchiveMember, open_artifact
from agent.client.api import ClientApi, JsonObject
from agent.errors import ArchiveMemberTooLarge, PathNotAllowed
from agent.paths import UPLOADS
from agent.thread_storage import ThreadStorage
from agent.uploads.batch import IncomingFile, file_from_path
from agent.uploads.names import suffix_of
from agent.uploads.service import StoredUpload, UploadResult
from store.files.mirror import thread_area


class FilesApi(ClientApi):
    """Uploads and artifacts."""

    async def upload_files(self, thread_id: str, files: Sequence[Path | str]) -> JsonObject:
        """Upload local files to a thread. Documents are converted to text before this returns.

        Args:
            thread_id: The thread; it does not need to exist yet.
            files: Paths of the files to copy.

        Returns:
            `{success, files, message, skipped_files}`. `success` is false if a file could not be written safely.

        Raises:
            FileNotFoundError: A file does not exist. Nothing is copied.
            ValueError: A path is not a file, or `files` is empty. Nothing is copied.
            ThreadIdInvalid: The thread id is not valid.
            UploadTooLarge: The files are too many or too large. Nothing is kept.
            UploadError: A disk error.
            OSError: A file cannot be read.
        """
        if not files:
            raise ValueError("no files were given")
        paths = await anyio.to_thread.run_sync(_existing_files, files)
        accepted = await self._services.uploads.accept(thread_id, _iter_uploads(paths))
        return {
            "success": not accepted.skipped,
            "files": [upload_to_json(thread_id, file) for file in accepted.files],
            "message": upload_message(accepted),
            "skipped_files": list(accepted.skipped),
        }

    async def list_uploads(self, thread_id: str) -> JsonObject:
        """Return a thread's uploads: `{files, count}`. Raises ThreadIdInvalid."""
        found = await self._services.uploads.list_files(thread_id)
        files = [
            {**upload_to_json(thread_id, file), "modified": _modified_at(file)} for file in found
        ]
        return {"files": files, "count": len(files)}

    async def get_upload_limits(self) -> JsonObject:
        """Return the limits of one `upload_files` call: `{max_files, max_file_size, max_total_size}`, in bytes."""
        limits = self._services.uploads.limits
        return {
            "max_files": limits.max_files,
            "max_file_size": limits.max_file_size,
            "max_total_size": limits.max_total_size,
        }

    async def delete_upload(self, thread_id: str, filename: str) -> JsonObject:
        """Delete an upload and the text that was converted from it.

        Raises:
            ThreadIdInvalid: The thread id is not valid.
            UploadNotFound: The file does not exist.
            UploadNotAllowed: The name is a path.
        """
        await self._services.uploads.delete(thread_id, filename)
        return {"success": True, "message": f"Deleted {filename}"}

    async def get_artifact(self, thread_id: str, path: str) -> tuple[bytes, str]:
        """Return the content and MIME type of a thread's file.

        Args:
            thread_id: The thread.
            path: The virtual path, such as `mnt/user-data/outputs/report.md`; the leading slash is optional.

        Raises:
            ThreadIdInvalid: The thread id is not valid.
            FileNotFoundError: The file does not exist.
            ValueError: The path is not allowed, is not a file, or names a file in an archive that is too large.
        """
        services = self._services
        services.folders.folders(thread_id)  # validates the id
        await services.mirror.fetch(thread_area(thread_id))
        try:
            return await anyio.to_thread.run_sync(
                _read_artifact, self._services.folders, thread_id, path
            )
        except FileNotFoundError:
            raise FileNotFoundError(f"There is no file {path}.") from None
        except IsADirectoryError:
            raise ValueError(f"This is not a file: {path}") from None
        except (PathNotAllowed, ArchiveMemberTooLarge) as error:
            raise ValueError(error.user_message) from None


def existing_file(file: Path | str) -> Path:
    """Return a file's path with `~` expanded. Blocking.

    Raises:
        FileNotFoundError: The path does not exist.
        ValueError: The path is not a file.
    """
    path = Path(file).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    if not path.is_file():
        raise ValueError(f"This is not a file: {path}")
    return path


def _existing_files(files: Sequence[Path | str]) -> list[Path]:
    return [existing_file(file) for file in files]


async def _iter_uploads(paths: Sequence[Path]) -> AsyncIterator[IncomingFile]:
    for path in paths:
        yield file_from_path(path)


def _read_artifact(folders: ThreadStorage, thread_id: str, path: str) -> tuple[bytes, str]:
    found = open_artifact(folders, thread_id, f"/{path.lstrip('/')}")
    if isinstance(found, ArchiveMember):
        return found.content, found.mime
    try:
        return found.raw.readall(), found.mime
    finally:
        found.close()


def upload_to_json(thread_id: str, file: StoredUpload) -> JsonObject:
    """Return an uploaded file as the client and the HTTP API describe it."""
    shown: JsonObject = {
        "filename": file.name,
        "size": file.size,
        **_paths_and_url(thread_id, file.name),
        "extension": suffix_of(file.name),
    }
    further = {"original_filename": file.original_name, "markdown_error": file.markdown_error}
    shown.update({key: value for key, value in further.items() if value is not None})
    if file.markdown is not None:
        shown["markdown_file"] = file.markdown
        places = _paths_and_url(thread_id, file.markdown)
        shown.update({f"markdown_{key}": value for key, value in places.items()})
    return shown


def _paths_and_url(thread_id: str, name: str) -> JsonObject:
    path = f"{UPLOADS}/{name}"
    url = f"/api/threads/{thread_id}/artifacts{quote(path)}"
    return {"path": path, "virtual_path": path, "artifact_url": url}


def _modified_at(file: StoredUpload) -> str:
    return file.modified.isoformat().replace("+00:00", "Z")


def upload_message(accepted: UploadResult) -> str:
    """Summarize an upload in a sentence."""
    sentence = f"Successfully uploaded {len(accepted.files)} file(s)"
    if accepted.skipped:
        sentence += f"; skipped {len(accepted.skipped)} that could not be written safely"
    problems = [f"{f.name}: {f.markdown_error}" for f in accepted.files if f.markdown_error]
    return f"{sentence}. No text version: {'; '.join(problems)}" if problems else sentence
