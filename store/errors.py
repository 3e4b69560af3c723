"""What can go wrong on disk.

StoreError
├── Unavailable        the file or its folder cannot be read or written
│   ├── Locked         another process holds the data folder
│   ├── Corrupt        the file is damaged; a copy was kept
│   └── SchemaTooNew   written by a newer Parley
├── NotFound           no such row
└── Conflict           the row is in another state than the caller expects
"""

from typing_extensions import override


class StoreError(Exception):
    """Something on disk is not as it should be."""

    @override
    def __str__(self) -> str:
        return super().__str__() or (self.__doc__ or "").strip()


class Unavailable(StoreError):
    """The data folder or a database file cannot be used."""


class Locked(Unavailable):
    """Another Parley process uses this data folder."""


class Corrupt(Unavailable):
    """The database file is damaged."""


class SchemaTooNew(Unavailable):
    """The database was written by a newer Parley."""


class NotFound(StoreError):
    """There is no such row."""


class Conflict(StoreError):
    """The row is in another state than expected."""
