"""The `storage` section of the configuration: where to keep the files that every process of the service needs."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

LOCAL_COPY = "files"
"""Folder inside the data folder with this node's copy of the files in a bucket."""

_EXPECTED = "must look like file:///mnt/parley, a folder that all machines mount, or like s3://bucket/prefix"


class StorageConfig(BaseModel):
    """The `storage` section.

    Attributes:
        url: `file:///FOLDER`, a folder that all machines mount; `s3://BUCKET/PREFIX`, the prefix being optional;
            None = the data folder.
        endpoint: The S3-compatible service, `https://HOST:PORT`; None = $AWS_ENDPOINT_URL, else Amazon's.
        region: None = $AWS_REGION, else us-east-1.
        access_key_id: Set it with `secret_access_key`; None = $AWS_ACCESS_KEY_ID, else the role of the machine or pod.
        secret_access_key: None = $AWS_SECRET_ACCESS_KEY.
        retry_s: How long to repeat a request while the bucket does not answer, seconds; 0 = send it once.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    url: str | None = None
    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    retry_s: float = Field(
        default=20.0,
        ge=0,
        le=300,
        description="how long to retry a request to a bucket that does not answer, seconds",
    )

    @field_validator("url")
    @classmethod
    def _names_a_place(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            names_folder = parts.scheme == "file" and not parts.netloc and len(parts.path) > 1
            if not names_folder and not (parts.scheme == "s3" and parts.netloc):
                raise ValueError(_EXPECTED)
        return url

    @field_validator("endpoint")
    @classmethod
    def _is_http(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and not endpoint.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        if endpoint is not None and "@" in urlsplit(endpoint).netloc:
            raise ValueError("must not contain a user: use access_key_id and secret_access_key")
        return endpoint

    @property
    def is_bucket(self) -> bool:
        """Whether `url` names a bucket."""
        return self.url is not None and self.url.startswith("s3:")

    @property
    def bucket(self) -> str:
        """The bucket that `url` names."""
        return urlsplit(self.url or "").netloc

    @property
    def prefix(self) -> str:
        """The beginning of all object names, without slashes at its ends.

        >>> StorageConfig(url="s3://files/parley/").prefix
        'parley'
        """
        return unquote(urlsplit(self.url or "").path).strip("/")

    def folder(self, home: Path) -> Path:
        """Return the folder in which this process finds the files. `home`: the data folder.

        >>> StorageConfig(url="file:///mnt/my%20files").folder(Path("/data")).as_posix()
        '/mnt/my files'
        >>> StorageConfig(url="s3://bucket").folder(Path("/data")).as_posix()
        '/data/files'
        """
        if self.is_bucket:
            return home / LOCAL_COPY
        return Path(unquote(urlsplit(self.url).path)) if self.url else home

    def find_folder_problem(self) -> str | None:
        """Return why the shared folder cannot be used, or None. It is not created: a mount may be missing. Blocking."""
        if self.url is None or self.is_bucket:
            return None
        folder = self.folder(Path())
        if not folder.is_dir():
            return f"storage.url: the folder {folder} does not exist: mount it, or create it"
        try:
            probe = folder / f".parley-probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            return f"storage.url: the folder {folder} cannot be written ({error.strerror})"
        return None
