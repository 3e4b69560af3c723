"""The `storage` section of the configuration: where files are that every process of the service needs."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, field_validator


class StorageConfig(BaseModel):
    """The `storage` section.

    Attributes:
        url: `file:///FOLDER`, a folder that all machines mount; None = the data folder.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    url: str | None = None

    @field_validator("url")
    @classmethod
    def _names_a_folder(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            if parts.scheme != "file" or parts.netloc or len(parts.path) < 2:  # noqa: PLR2004 - "/" and a name
                raise ValueError(
                    "must look like file:///mnt/parley: a folder that all machines mount"
                )
        return url

    @property
    def folder(self) -> Path | None:
        """The folder that `url` names.

        >>> StorageConfig(url="file:///mnt/my%20files").folder.as_posix()
        '/mnt/my files'
        """
        return None if self.url is None else Path(unquote(urlsplit(self.url).path))

    def find_problem(self) -> str | None:
        """Return why the folder cannot be used, or None. It is not created: a folder that is not mounted is missing."""
        folder = self.folder
        if folder is None:
            return None
        if not folder.is_dir():
            return f"storage.url: the folder {folder} does not exist: mount it, or create it"
        try:
            probe = folder / f".parley-probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            return f"storage.url: the folder {folder} cannot be written ({error.strerror})"
        return None
