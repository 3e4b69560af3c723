"""Limits the directory size of ZIP archives, because Python reads the whole directory before it can be checked."""

import struct
from typing import IO

MAX_ENTRIES = 4_096
MAX_DIRECTORY_BYTES = 2 * 1024 * 1024

_END = struct.Struct("<4s4H2LH")
_END_MARK = b"PK\x05\x06"
_MAX_TAIL_BYTES = _END.size + 65_536
"""Number of bytes at the end of a file that Python searches for the end record, which a comment may follow."""

_LOCATOR_MARK, _LOCATOR_BYTES = b"PK\x06\x07", 20
"""A ZIP64 record before the end record overrides its sizes for Python."""


def has_small_directory(source: IO[bytes]) -> bool:
    """Return whether `zipfile` can safely open a file: a directory of 40 MB takes 300 MB and several seconds. Blocking.

    True for files that are not archives. Leaves `source` at its start.
    """
    size = source.seek(0, 2)
    source.seek(max(0, size - _MAX_TAIL_BYTES - _LOCATOR_BYTES))
    tail: bytes = source.read()
    source.seek(0)
    at = tail.rfind(_END_MARK)
    if at < 0:
        return True
    if len(tail) - at < _END.size:
        return False  # the mark is inside another record, and Python may find the real one
    if tail[:at][-_LOCATOR_BYTES:].startswith(_LOCATOR_MARK):
        return False
    fields = _END.unpack_from(tail, at)
    entries: int = fields[4]
    directory_bytes: int = fields[5]
    return entries <= MAX_ENTRIES and directory_bytes <= MAX_DIRECTORY_BYTES
