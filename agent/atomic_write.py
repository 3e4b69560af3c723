"""Replaces a file atomically. Blocking."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file. Readers see either the old or the new content. Follows a symlink, which stays a link.

    Raises:
        OSError: The file cannot be written. The old file is unchanged.
    """
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)
