"""What a unit of work may do."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Value = str | int | float | bytes | None
Params = Mapping[str, Value]
Row = Mapping[str, Any]


class Transaction(Protocol):
    """What a unit of work may do. Valid only inside `Database.transaction`."""

    def run(self, sql: str, params: Params | None = None) -> Sequence[Row]:
        """Execute one statement with `:name` parameters; rows of a SELECT or RETURNING, else empty."""
        ...
