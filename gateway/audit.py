"""Audit log of changes: a file of JSON lines in the data folder."""

import hashlib
import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import anyio
from anyio import to_thread

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 5_000_000
MAX_READ_BYTES = 2 * MAX_FILE_BYTES
"""Maximum number of bytes to read from one file. A file is rotated before it exceeds `MAX_FILE_BYTES`."""

MAX_ROTATED_FILES = 5
"""Number of rotated files: `audit.log.1` is the newest."""

WRITE_TIMEOUT_S = 5.0
"""Time limit for a write, seconds. A hanging disk must not delay responses."""

MAX_TARGET_CHARS = 500
FIRST_ERROR_STATUS = 400

ANONYMOUS = "anyone on this machine"
"""Value of `who` if `gateway.auth` is `none`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One attempted change.

    Attributes:
        time: ISO 8601 with a time zone.
        who: The fingerprint of the token.
        address: The client's address, or a proxy's.
        request_id: The same ID as in the log.
        action: Method and route.
        target: Path and query as sent, at most `MAX_TARGET_CHARS` characters. Bodies are not logged.
        status: The HTTP status of the response; 0 = no response.
        detail: Text from the route, such as the broadcast and its number of chats; "" = none.
    """

    time: str
    who: str
    address: str
    request_id: str
    action: str
    target: str
    status: int
    detail: str = ""


def token_fingerprint(token: bytes) -> str:
    """Return a short hash that identifies a token without revealing it.

    >>> token_fingerprint(b"test-token-0123")
    'token:761075c7'
    """
    return f"token:{hashlib.sha256(b'parley audit ' + token).hexdigest()[:8]}"


class AuditLog:
    """The audit file. Worker threads append one entry at a time and rotate the file at `max_bytes`."""

    def __init__(self, file: Path, *, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._writer = anyio.CapacityLimiter(1)

    async def append(self, entry: AuditEntry) -> None:
        """Append an entry. Logs errors; raises only on cancellation."""
        line = json.dumps(asdict(entry), ensure_ascii=False).encode() + b"\n"
        with anyio.move_on_after(WRITE_TIMEOUT_S, shield=True) as bound:
            try:
                await to_thread.run_sync(
                    self._append, line, limiter=self._writer, abandon_on_cancel=True
                )
            except OSError as error:
                log.error("the audit log cannot be written (%s)", error.strerror)  # noqa: TRY400
        if bound.cancelled_caught:
            log.error("the audit log was not written in time")

    def _append(self, line: bytes) -> None:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._size() + len(line) > self._max_bytes:
            self._rotate()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(self._file, flags, 0o600)
        with os.fdopen(descriptor, "ab") as target:
            target.write(line)

    def _size(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:
            return 0

    def _rotate(self) -> None:
        """Rename each file to the next number. The oldest file is overwritten."""
        for number in range(MAX_ROTATED_FILES, 0, -1):
            newer = self._numbered(number - 1)
            if newer.exists():
                newer.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._file.with_name(f"{self._file.name}.{number}") if number else self._file


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries to return; "" = all.

    Attributes:
        who: Text that `who` contains.
        words: Text that the entry contains.
        since: ISO 8601 in UTC.
        outcome: `done` = status below 400, `refused` = all other statuses.
    """

    who: str = ""
    words: str = ""
    since: str = ""
    outcome: Literal["", "done", "refused"] = ""

    def accepts(self, entry: AuditEntry) -> bool:
        """Return whether an entry passes the filter."""
        is_done = 0 < entry.status < FIRST_ERROR_STATUS
        return (
            entry.time >= self.since
            and self.who.lower() in entry.who.lower()
            and self.outcome in ("", "done" if is_done else "refused")
        )


def read_entries(
    file: Path, wanted: AuditFilter, *, before: str = "", limit: int | None = None
) -> tuple[list[AuditEntry], str | None]:
    """Return entries, newest first, and the position of the next page (None = this is the last page). Blocking.

    Args:
        file: The audit file; older entries are in the rotated files next to it.
        wanted: The entries to return.
        before: The position of the page: a file's inode and an offset in the file. A rotation changes neither. The
            offset is at most `MAX_READ_BYTES`, because a read reserves that much memory.
        limit: Maximum number of entries; None = all.
    """
    found: list[AuditEntry] = []
    inode, _, offset = before.partition(".")
    for number in range(MAX_ROTATED_FILES + 1):
        part = file.with_name(f"{file.name}.{number}") if number else file
        try:
            with part.open("rb") as source:
                own = str(os.fstat(source.fileno()).st_ino)
                if inode and own != inode:
                    continue
                content = source.read(int(offset) if inode else MAX_READ_BYTES)
        except FileNotFoundError:
            continue
        inode = ""
        end = len(content)
        for line in reversed(content.splitlines(keepends=True)):
            end -= len(line)
            if wanted.words.lower().encode() not in line.lower():
                continue
            if (entry := _parse_entry(line)) is not None and wanted.accepts(entry):
                found.append(entry)
                if len(found) == limit:
                    return found, f"{own}.{end}"
    return found, None


def _parse_entry(line: bytes) -> AuditEntry | None:
    """Return an entry; None for a damaged line."""
    try:
        return AuditEntry(**json.loads(line))
    except (ValueError, TypeError):
        return None
