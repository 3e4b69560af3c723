"""Turns rows of a SELECT into dataclasses, and flat dataclasses into parameters."""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar, cast

from store.transaction import Row

R = TypeVar("R")


def from_row(kind: Callable[..., R], row: Row, **values: object) -> R:
    """Return the dataclass `kind` filled from the columns named like its fields; `values` replaces some of them.

    >>> from store.pairings import Pairing
    >>> from_row(Pairing, dict.fromkeys(Pairing.__slots__, "x"), created_at=1.0).created_at
    1.0
    """
    columns = {name: row[name] for name in _field_names(kind) if name in row}
    return kind(**(columns | values))


def to_params(row: object) -> dict[str, Any]:
    """Return a dataclass's fields as parameters of a statement. Unlike `asdict`, it copies no values.

    >>> from store.usage import UsageCounter
    >>> to_params(UsageCounter(scope="person", name="ann", period="2026-01"))
    {'scope': 'person', 'name': 'ann', 'period': '2026-01'}
    """
    kind = cast("Callable[..., object]", type(row))
    return {name: getattr(row, name) for name in _field_names(kind)}


@cache
def _field_names(kind: Callable[..., object]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cast("Any", kind)))
