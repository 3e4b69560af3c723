"""Errors of the store.

StoreError
├── StoreUnavailable     the data folder or a database file cannot be read or written
│   ├── StoreLocked      another process holds the data folder
│   ├── DatabaseCorrupt  the file is damaged; a copy was kept
│   ├── SchemaMismatch   a newer or an earlier Parley wrote the database
│   └── OutcomeUnknown   the write may or may not have been committed
├── FilesUnavailable     the object storage of files cannot be used
│   └── ObjectMissing        an object that a row names is not there
├── ValueRefused         no database can store a value; repeating the call does not help
├── RowNotFound          no such row
└── RowConflict          the row is in another state than the caller expects
    └── TakenOver            a person answers in the conversation instead of the agent
"""

from typing_extensions import override


class StoreError(Exception):
    """The store failed."""

    @override
    def __str__(self) -> str:
        return super().__str__() or (self.__doc__ or "").strip()


class StoreUnavailable(StoreError):
    """The data folder or a database file cannot be used."""


class StoreLocked(StoreUnavailable):
    """Another Parley process uses this data folder."""


class DatabaseCorrupt(StoreUnavailable):
    """The database file is damaged."""


class SchemaMismatch(StoreUnavailable):
    """A newer or an earlier Parley wrote the database."""


class OutcomeUnknown(StoreUnavailable):
    """The connection broke during a commit; whether it succeeded is unknown."""


class FilesUnavailable(StoreError):
    """The storage of files cannot be used."""

    @property
    def user_message(self) -> str:
        """Return what people and the model may read."""
        return "The storage of files cannot be reached. Try again later."


class ObjectMissing(FilesUnavailable):
    """A stored file is missing in the bucket."""


class ValueRefused(StoreError):
    """A value cannot be stored: half a surrogate pair, an integer beyond 64 bits, or a key that is too long."""


class RowNotFound(StoreError):
    """The row does not exist."""


class RowConflict(StoreError):
    """The row is in another state than expected."""


class TakenOver(RowConflict):
    """A person has taken over this conversation: hand it back first."""
