"""Opens the storage that `storage.url` names, and shares key files between nodes. Functions without `async` block."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import anyio.to_thread

from store.credentials import KEY_FILE, new_key
from store.data_folder import read_or_create_key
from store.database import Database
from store.errors import FilesUnavailable, ObjectMissing
from store.files.bucket import Bucket
from store.files.bucket_mirror import RECEIVED_FOLDER, BucketMirror
from store.files.config import StorageConfig
from store.files.mirror import KEYS, FileMirror, SharedFolder
from store.files.rows import StoredFileRows


async def open_mirror(config: StorageConfig, home: Path, database: Database) -> FileMirror:
    """Return the mirror that copies files. `home`: the data folder. Sends no requests yet.

    Raises:
        FilesUnavailable: The settings cannot be used.
    """
    if not config.is_bucket:
        return SharedFolder()
    return await anyio.to_thread.run_sync(_open_bucket, config, home, StoredFileRows(database))


def _open_bucket(config: StorageConfig, home: Path, rows: StoredFileRows) -> BucketMirror:
    files = config.folder(home)
    files.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.rmtree(files / RECEIVED_FOLDER, ignore_errors=True)
    return BucketMirror(files, rows, Bucket(config), Bucket(config, retry_s=0))


def find_storage_problem(config: StorageConfig) -> str | None:
    """Return why the storage cannot be used, in one line, or None."""
    if not config.is_bucket:
        return config.find_folder_problem()
    try:
        Bucket(config, retry_s=0).check()
    except FilesUnavailable as error:
        return f"storage.url: {error}"
    return None


def share_keys(config: StorageConfig, home: Path, keys: Mapping[str, bytes]) -> str | None:
    """Write the key files of the service into the local copy; the first node stores them in the bucket.

    Args:
        config: The `storage` section, which names a bucket.
        home: The data folder.
        keys: The names of the files, and the content for those that do not exist yet; the key of stored
            credentials is always included.

    Returns:
        Why the bucket cannot be used, in one line, or None.
    """
    if problem := find_storage_problem(config):
        return problem
    bucket, files = Bucket(config), config.folder(home)
    try:
        files.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, new in {**keys, KEY_FILE: new_key()}.items():
            _write_key(files / name, _read_or_create(bucket, f"{KEYS}/{name}", new))
    except FilesUnavailable as error:
        return f"storage.url: {error}"
    except OSError as error:
        return f"{files}: cannot be written ({error.strerror})"
    return None


def _write_key(file: Path, key: bytes) -> None:
    if not file.is_file() or file.read_bytes() != key:
        file.unlink(missing_ok=True)
        read_or_create_key(file, key)


def _read_or_create(bucket: Bucket, name: str, new: bytes) -> bytes:
    """Return an object; create it if missing. If several nodes create it at once, all return the first content."""
    try:
        return bucket.read(name)
    except ObjectMissing:
        bucket.create(name, new)
        return bucket.read(name)
