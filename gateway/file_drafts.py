"""Planned contents of configuration files, and their atomic replacement, with a backup of the previous one."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.config_file import read_config_text

ENV_FILE = ".env"
PRIVATE_MODE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDraft:
    """Planned contents of a file.

    Attributes:
        current_text: Its current text; None = the file does not exist.
        replaced_keys: Names of the keys whose values would be replaced, without the values.
    """

    path: Path
    current_text: str | None
    new_text: str
    replaced_keys: Sequence[str]

    @property
    def changed(self) -> bool:
        """Whether the file needs to be written."""
        return self.current_text != self.new_text


def read_text(path: Path) -> str | None:
    """Return a file's text, or None if the file does not exist. Raises ConfigError."""
    return read_config_text(path) if path.exists() else None


def backup_draft(config: FileDraft) -> FileDraft:
    """Return the backup (`.bak`) of a changed configuration."""
    path = config.path.with_name(f"{config.path.name}.bak")
    return FileDraft(
        path=path,
        current_text=read_text(path),
        new_text=config.current_text or "",
        replaced_keys=(),
    )


def write_drafts(drafts: Sequence[FileDraft]) -> None:
    """Replace each file atomically. Only the owner can read new files and files with secrets.

    Raises:
        OSError: A file cannot be written. None or only the first files were replaced.
    """
    ready: list[tuple[Path, Path]] = []
    try:
        for draft in drafts:
            if draft.changed:
                target = draft.path.resolve()
                handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
                ready.append((Path(name), target))
                _write_draft(handle, draft, target)
        for temporary, target in ready:
            temporary.replace(target)
    finally:
        for temporary, _ in ready:
            temporary.unlink(missing_ok=True)


def _write_draft(handle: int, draft: FileDraft, target: Path) -> None:
    """Write the text to an open file. An existing configuration keeps its mode; all others are private."""
    holds_secrets = target.name == ENV_FILE
    mode = (
        PRIVATE_MODE
        if draft.current_text is None or holds_secrets
        else target.stat().st_mode & 0o777
    )
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(draft.new_text)
        file.flush()
        os.fchmod(handle, mode)
        os.fsync(handle)
