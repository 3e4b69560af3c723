"""Bucket: the objects of an S3-compatible service, through obstore. Blocking calls, for worker threads."""

import importlib
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

from store.errors import FilesUnavailable, ObjectMissing
from store.files.config import StorageConfig

CHUNK_BYTES = 8 * 1024 * 1024
"""Bytes read or sent in one request; larger files are sent in parts."""

REQUEST_S = 30.0
"""Time limit of one request of at most `CHUNK_BYTES`, seconds."""

CONNECT_S = 3.0
PARALLEL_PARTS = 4
LISTED = 1000

_PROBES = "probes"
"""The folder of the objects that checks store. No row names them, so the sweep deletes what killed processes left."""


class Bucket:
    """The objects below the prefix of a bucket.

    Args:
        config: The `storage` section; its URL names a bucket.
        retry_s: Replaces `retry_s` of the section.

    Raises:
        FilesUnavailable: The settings cannot be used.
    """

    def __init__(self, config: StorageConfig, *, retry_s: float | None = None) -> None:
        retry_s = config.retry_s if retry_s is None else retry_s
        # Imported here because it takes 15 MB that only buckets need.
        self._obstore: ModuleType = importlib.import_module("obstore")
        self._name = config.bucket
        self._place = config.endpoint or "Amazon S3"
        store = importlib.import_module("obstore.store")
        with self._errors():
            self._store: Any = store.S3Store(
                config.bucket,
                prefix=config.prefix or None,
                config=_settings(config),
                client_options={
                    "allow_http": True,  # as the URL of the endpoint says
                    "connect_timeout": timedelta(seconds=CONNECT_S),
                    "timeout": timedelta(seconds=REQUEST_S),
                },
                retry_config={
                    "max_retries": 20 if retry_s else 0,
                    "retry_timeout": timedelta(seconds=retry_s),
                    "backoff": {
                        "init_backoff": timedelta(milliseconds=100),
                        "max_backoff": timedelta(seconds=2),
                        "base": 2,
                    },
                },
            )

    def put(self, name: str, content: Iterator[bytes] | bytes) -> None:
        """Store an object, completely or not at all. Raises FilesUnavailable."""
        with self._errors():
            if isinstance(content, bytes):
                self._obstore.put(self._store, name, content, use_multipart=False)
            else:
                self._obstore.put(
                    self._store,
                    name,
                    content,
                    chunk_size=CHUNK_BYTES,
                    max_concurrency=PARALLEL_PARTS,
                )

    def create(self, name: str, content: bytes) -> bool:
        """Store an object unless one of this name exists; return whether it was stored. Raises FilesUnavailable."""
        with self._errors():
            try:
                self._obstore.put(self._store, name, content, mode="create", use_multipart=False)
            except importlib.import_module("obstore.exceptions").AlreadyExistsError:
                return False
        return True

    def read(self, name: str) -> bytes:
        """Return a small object. Raises FilesUnavailable, ObjectMissing."""
        with self._errors():
            return bytes(self._obstore.get(self._store, name).bytes())

    def chunks(self, name: str, size: int) -> Iterator[bytes]:
        """Yield an object of a known size in pieces. Raises FilesUnavailable, ObjectMissing."""
        for start in range(0, size, CHUNK_BYTES):
            length = min(CHUNK_BYTES, size - start)
            with self._errors():
                yield bytes(self._obstore.get_range(self._store, name, start=start, length=length))

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects if they exist. Raises FilesUnavailable."""
        if names:
            with self._errors():
                self._obstore.delete(self._store, list(names))

    def list_older(self, than: datetime) -> Iterator[list[str]]:
        """Yield batches of names of the objects that were stored before a time. Raises FilesUnavailable."""
        with self._errors():
            for part in self._obstore.list(self._store, chunk_size=LISTED):
                yield [meta["path"] for meta in part if meta["last_modified"] < than]

    def check(self) -> None:
        """Return if objects can be stored, read and deleted now. Raises FilesUnavailable."""
        # Use a unique name. Otherwise another node's check could delete the object before this one reads it.
        name = f"{_PROBES}/{secrets.token_hex(8)}"
        self.put(name, b"parley")
        self.read(name)
        self.delete([name])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the library into ours, with advice for an operator."""
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise FilesUnavailable(
                    f"there is no bucket {self._name} at {self._place}"
                ) from error
            raise ObjectMissing(f"an object is missing in the bucket {self._name}") from error
        except self._obstore.exceptions.BaseError as error:
            raise FilesUnavailable(self._explain(error)) from error
        except ValueError as error:
            raise FilesUnavailable(f"the settings cannot be used ({error})") from error

    def _explain(self, error: Exception) -> str:
        text, kind = str(error), type(error).__name__
        if kind == "UnauthenticatedError" or any(
            code in text for code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken")
        ):
            return f"{self._place} does not accept the credentials: check the access key and its secret"
        if kind == "PermissionDeniedError":
            return (
                f"access to the bucket {self._name} is denied: the credentials need"
                " s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket"
            )
        if "NoSuchBucket" in text:
            return f"there is no bucket {self._name} at {self._place}"
        return f"the bucket {self._name} at {self._place} cannot be used ({_reason(text)})"


def _settings(config: StorageConfig) -> dict[str, Any]:
    """Return the configured settings; the library takes the rest from the environment's AWS_* variables."""
    given: dict[str, Any] = {
        "endpoint": config.endpoint,
        "region": config.region,
        "access_key_id": config.access_key_id,
        "secret_access_key": config.secret_access_key,
    }
    return {key: value for key, value in given.items() if value is not None}


def _reason(text: str) -> str:
    """Return the last cause in a message of the library, without the address of the object.

    >>> _reason("Generic S3 error: Error performing GET http://h/b/k in 1s - HTTP error: error sending request")
    'HTTP error: error sending request'
    """
    first = text.splitlines()[0] if text else "unknown"
    return first.rpartition(" - ")[2][:200]
