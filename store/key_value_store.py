"""LangGraph's key-value store (BaseStore) in the database."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)
from typing_extensions import override

from store.database import Database, Row, Value
from store.owner_loop import OwnerLoop, in_owner_loop
from store.threads import encode

MAX_NAME_BYTES = 2000
"""Maximum length of namespace and key together. PostgreSQL's index accepts about 2,700 bytes."""

_ALIVE = "(expires_at IS NULL OR expires_at > :now)"
_GET = f"SELECT * FROM item WHERE namespace = :namespace AND key = :key AND {_ALIVE}"  # noqa: S608 - literals only
_PUT = """
INSERT INTO item (namespace, key, value, created_at, updated_at, ttl_minutes, expires_at)
VALUES (:namespace, :key, :value, :now, :now, :ttl, :expires)
ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at,
    ttl_minutes = excluded.ttl_minutes, expires_at = excluded.expires_at
"""
_DELETE = "DELETE FROM item WHERE namespace = :namespace AND key = :key"
_TOUCH = """
UPDATE item SET expires_at = :now + ttl_minutes * 60
WHERE namespace = :namespace AND key = :key AND ttl_minutes IS NOT NULL
"""
# One seek for each namespace instead of a scan of all items.
LIST_NAMESPACES = f"""
WITH RECURSIVE found (namespace) AS (
    SELECT min(namespace) FROM item
    UNION ALL
    SELECT (SELECT min(item.namespace) FROM item WHERE item.namespace > found.namespace) FROM found
    WHERE found.namespace IS NOT NULL
)
SELECT namespace FROM found
WHERE EXISTS (SELECT 1 FROM item WHERE item.namespace = found.namespace AND {_ALIVE}) ORDER BY namespace
"""  # noqa: S608 - literals only
_EXPIRED = "DELETE FROM item WHERE expires_at <= :now RETURNING key"

_COMPARISONS = {"$eq": "=", "$ne": "<>", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


class ItemStore(BaseStore):
    """Items by namespace and key, each a JSON object, newest first when searched.

    There is no vector index: the `query` of a search is ignored, as in LangGraph's stores without one.

    Args:
        database: The database.
        now: The wall clock, Unix seconds.
    """

    supports_ttl = True

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now
        self.owner = OwnerLoop()

    @override
    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations from a worker thread, as synchronous tools do. Raises RuntimeError in the event loop."""
        return self.owner.wait(self.abatch(ops))

    @override
    @in_owner_loop
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in order.

        Raises:
            StoreError: the database cannot be read or written.
            ValueError: a filter has an operator that does not exist, or a namespace and a key are too long.
        """
        return [await self._run(op) for op in ops]

    async def delete_expired(self) -> int:
        """Delete expired items. Return their number."""
        params: dict[str, Value] = {"now": self._now()}
        return len(await self._database.transaction(lambda tx: tx.run(_EXPIRED, params)))

    async def _run(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            return await self._get(op)
        if isinstance(op, PutOp):
            await self._put(op)
            return None
        if isinstance(op, SearchOp):
            return await self._search(op)
        return await self._namespaces(op)

    async def _get(self, op: GetOp) -> Item | None:
        key: dict[str, Value] = {"namespace": _joined(op.namespace), "key": op.key}
        rows = await self._database.read(_GET, key | {"now": self._now()})
        if not rows:
            return None
        if op.refresh_ttl:
            await self._touch(rows)
        return _item(rows[0])

    async def _put(self, op: PutOp) -> None:
        if len(f"{_joined(op.namespace)}{op.key}".encode()) > MAX_NAME_BYTES:
            raise ValueError(f"namespace and key have at most {MAX_NAME_BYTES:,} bytes together.")
        key: dict[str, Value] = {"namespace": _joined(op.namespace), "key": op.key}
        if op.value is None:
            await self._database.transaction(lambda tx: tx.run(_DELETE, key))
            return
        now = self._now()
        row = key | {
            "value": encode(op.value),
            "now": now,
            "ttl": op.ttl,
            "expires": None if op.ttl is None else now + op.ttl * 60,
        }
        await self._database.transaction(lambda tx: tx.run(_PUT, row))

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        prefix = _joined(op.namespace_prefix)
        params: dict[str, Value] = {
            "now": self._now(),
            "limit": op.limit,
            "offset": op.offset,
        }
        clauses = [_ALIVE]
        if prefix:
            # From "users.1." up to, but excluding, "users.1/": "/" is the character after ".".
            clauses.append("namespace >= :prefix AND namespace < :prefix_end")
            params |= {"prefix": prefix, "prefix_end": f"{prefix[:-1]}/"}
        for key, wanted in (op.filter or {}).items():
            clauses += _condition(key, wanted, params)
        sql = (
            f"SELECT * FROM item WHERE {' AND '.join(clauses)} "  # noqa: S608 - literals only
            "ORDER BY updated_at DESC, namespace, key LIMIT :limit OFFSET :offset"
        )
        rows = await self._database.read(sql, params)
        if op.refresh_ttl:
            await self._touch(rows)
        return [_found(row) for row in rows]

    async def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        rows = await self._database.read(LIST_NAMESPACES, {"now": self._now()})
        found = (tuple(row["namespace"].split(".")[:-1]) for row in rows)
        conditions = op.match_conditions or ()
        matching = [one for one in found if all(_matches(one, c) for c in conditions)]
        cut = dict.fromkeys(one[: op.max_depth] for one in matching)
        return list(cut)[op.offset : op.offset + op.limit]

    async def _touch(self, rows: Sequence[Row]) -> None:
        """Restart the TTL of items that were read."""
        now = self._now()
        touched = [
            {"namespace": row["namespace"], "key": row["key"], "now": now}
            for row in rows
            if row["ttl_minutes"] is not None
        ]
        if touched:
            await self._database.transaction(lambda tx: [tx.run(_TOUCH, one) for one in touched])


def _joined(labels: Sequence[str]) -> str:
    """Return a namespace as it is stored.

    >>> _joined(("users", "1")), _joined(())
    ('users.1.', '')
    """
    return "".join(f"{label}." for label in labels)


def _condition(key: str, wanted: object, params: dict[str, Value]) -> list[str]:
    """Return the conditions of one key of a filter: equal to a value, or compared by `$gt` and the like.

    Raises:
        ValueError: the operator does not exist.
    """
    path = f"path{len(params)}"
    params[path] = f"$.{encode(key)}"
    compared = _comparison(wanted) or {"$eq": wanted}
    clauses = []
    for operator, value in compared.items():
        if operator not in _COMPARISONS:
            raise ValueError(f"There is no filter operator {operator!r}.")
        name = f"value{len(params)}"
        sign = _COMPARISONS[operator]
        if operator in {"$eq", "$ne"}:
            # Compares JSON text: `->` returns the value's JSON, and json() writes ours the same way.
            params[name] = encode(value)
            clauses.append(f"coalesce(json(value -> :{path}), 'null') {sign} json(:{name})")
        else:
            # Compares numbers with numbers and texts with texts.
            if isinstance(value, int | float):
                params[name] = float(value)
                types, member = "'integer', 'real'", f"CAST(value ->> :{path} AS DOUBLE PRECISION)"
            else:
                params[name] = str(value)
                types, member = "'text'", f"value ->> :{path}"
            typed = f"CASE WHEN json_type(value, :{path}) IN ({types}) THEN {member} END"
            clauses.append(f"{typed} {sign} :{name}")
    return clauses


def _comparison(wanted: object) -> Mapping[str, object] | None:
    """Return the operators of a filter, if any."""
    if isinstance(wanted, Mapping) and all(str(key).startswith("$") for key in wanted):
        return wanted
    return None


def _matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Return whether a namespace begins, or ends, with a path; `*` matches any label."""
    path = condition.path
    if len(path) > len(namespace):
        return False
    part = (
        namespace[: len(path)]
        if condition.match_type == "prefix"
        else namespace[len(namespace) - len(path) :]
    )
    return all(wanted in {"*", label} for wanted, label in zip(path, part, strict=True))


def _fields(row: Row) -> dict[str, Any]:
    return {
        "namespace": tuple(row["namespace"].split(".")[:-1]),
        "key": row["key"],
        "value": orjson.loads(row["value"]),
        "created_at": datetime.fromtimestamp(row["created_at"], UTC),
        "updated_at": datetime.fromtimestamp(row["updated_at"], UTC),
    }


def _item(row: Row) -> Item:
    return Item(**_fields(row))


def _found(row: Row) -> SearchItem:
    return SearchItem(**_fields(row), score=None)
