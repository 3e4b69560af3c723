"""Assistants: graphs with their own settings. An assistant has versions, and one version is active."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import anyio
import orjson

from store.database import Database, Row, Transaction, Value
from store.errors import RowConflict, RowNotFound
from store.rows import from_row
from store.threads import encode

MAX_ASSISTANTS = 10_000
"""Maximum number of assistants. All are cached in memory, because every run looks up its assistant."""

MAX_VERSIONS = 1000
"""Maximum number of versions per assistant. Older ones are deleted."""

_JOINED = """
SELECT v.assistant_id, v.version, v.graph_id, v.name, v.description, v.config, v.context, v.metadata,
    v.created_at AS version_created_at, a.created_at, a.updated_at FROM assistant a
JOIN assistant_version v ON v.assistant_id = a.assistant_id AND v.version = a.version
"""
_ALL = f"{_JOINED} ORDER BY a.created_at, a.assistant_id"
_ONE = f"{_JOINED} WHERE a.assistant_id = :assistant_id"
_COUNT = "SELECT count(*) AS n FROM assistant"
_INSERT = """
INSERT INTO assistant (assistant_id, version, created_at, updated_at)
VALUES (:assistant_id, :version, :created_at, :updated_at)
ON CONFLICT (assistant_id) DO UPDATE SET version = excluded.version, updated_at = excluded.updated_at
"""
_INSERT_VERSION = """
INSERT INTO assistant_version
    (assistant_id, version, graph_id, name, description, config, context, metadata, created_at)
VALUES (:assistant_id, :version, :graph_id, :name, :description, :config, :context, :metadata, :version_created_at)
"""
_NEWEST = "SELECT max(version) AS n FROM assistant_version WHERE assistant_id = :assistant_id"
_DROP_OLD = (
    "DELETE FROM assistant_version WHERE assistant_id = :assistant_id AND version <= :oldest"
)
_CHOOSE = """
UPDATE assistant SET version = :version, updated_at = :now
WHERE assistant_id = :assistant_id
    AND EXISTS (SELECT 1 FROM assistant_version WHERE assistant_id = :assistant_id AND version = :version)
RETURNING assistant_id
"""
_VERSIONS = """
SELECT v.assistant_id, v.version, v.graph_id, v.name, v.description, v.config, v.context, v.metadata,
    v.created_at AS version_created_at, a.created_at, v.created_at AS updated_at FROM assistant a
JOIN assistant_version v ON v.assistant_id = a.assistant_id
WHERE a.assistant_id = :assistant_id ORDER BY v.version DESC
"""
_DELETE = "DELETE FROM assistant WHERE assistant_id = :assistant_id RETURNING assistant_id"


_JSON = ("config", "context", "metadata")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant:
    """One version of an assistant. Times are Unix seconds.

    Attributes:
        version_created_at: When this version was created.
    """

    assistant_id: str
    graph_id: str
    name: str
    description: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    created_at: float = 0.0
    updated_at: float = 0.0
    version_created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantUpdate:
    """Changes for the next version; None = unchanged. Metadata is merged, other fields are replaced."""

    graph_id: str | None = None
    name: str | None = None
    description: str | None = None
    config: Mapping[str, Any] | None = None
    context: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None

    def apply(self, before: Assistant) -> Assistant:
        """Return a version with the changes applied."""
        given = {
            name: value
            for name in ("graph_id", "name", "description", "config", "context")
            if (value := getattr(self, name)) is not None
        }
        return replace(before, **given, metadata={**before.metadata, **(self.metadata or {})})


class AssistantStore:
    """The assistant tables. Active versions are cached in memory after the first read."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, Assistant] | None = None
        self._lock = anyio.Lock()

    async def find(self, assistant_id: str) -> Assistant | None:
        """Return the active version of an assistant."""
        return (await self._all()).get(assistant_id)

    async def list_all(self) -> list[Assistant]:
        """Return all assistants, the oldest first."""
        return list((await self._all()).values())

    async def create(self, assistant: Assistant) -> Assistant:
        """Add an assistant. Raises RowConflict if the ID exists, or if there are too many assistants."""
        params = _params(assistant)

        def work(tx: Transaction) -> Row:
            tx.lock("assistant")
            if tx.run(_ONE, params):
                raise RowConflict(f"Assistant with ID {assistant.assistant_id} already exists")
            if tx.run(_COUNT, {})[0]["n"] >= MAX_ASSISTANTS:
                raise RowConflict(
                    f"There are {MAX_ASSISTANTS} assistants already: delete some first."
                )
            return _put(tx, params)

        return await self._write(assistant.assistant_id, work)

    async def update(
        self, assistant_id: str, change: AssistantUpdate, *, base: Assistant | None, now: float
    ) -> Assistant:
        """Create the next version and activate it.

        Args:
            assistant_id: The assistant.
            change: What to change.
            base: The first version if the assistant has no row, as is true of a graph's default assistant.
            now: The time.

        Raises:
            RowNotFound: The assistant does not exist.
        """

        def work(tx: Transaction) -> Row:
            tx.lock("assistant")
            rows = tx.run(_ONE, {"assistant_id": assistant_id})
            if not rows and base is not None:
                rows = [_put(tx, _params(base))]
            if not rows:
                raise missing_assistant(assistant_id)
            newest = int(tx.run(_NEWEST, {"assistant_id": assistant_id})[0]["n"])
            following = change.apply(_assistant(rows[0]))
            made = replace(following, version=newest + 1, updated_at=now, version_created_at=now)
            written = _put(tx, _params(made))
            oldest: dict[str, Value] = {"oldest": made.version - MAX_VERSIONS}
            tx.run(_DROP_OLD, oldest | {"assistant_id": assistant_id})
            return written

        return await self._write(assistant_id, work)

    async def set_version(self, assistant_id: str, version: int, *, now: float) -> Assistant:
        """Activate a version. Raises RowNotFound."""
        params: dict[str, Value] = {"assistant_id": assistant_id, "version": version, "now": now}

        def work(tx: Transaction) -> Row:
            if not tx.run(_CHOOSE, params):
                raise RowNotFound(f"Assistant {assistant_id} has no version {version}.")
            return tx.run(_ONE, params)[0]

        return await self._write(assistant_id, work)

    async def list_versions(self, assistant_id: str) -> list[Assistant]:
        """Return all versions, newest first; empty for an assistant without a row."""
        rows = await self._database.read(_VERSIONS, {"assistant_id": assistant_id})
        return [_assistant(row) for row in rows]

    async def delete(self, assistant_id: str) -> bool:
        """Delete an assistant with its versions. False if it does not exist."""
        await self._all()
        params: dict[str, Value] = {"assistant_id": assistant_id}
        async with self._lock:
            gone = bool(await self._database.transaction(lambda tx: tx.run(_DELETE, params)))
            if self._known is not None:
                self._known.pop(assistant_id, None)
        return gone

    async def _all(self) -> dict[str, Assistant]:
        if self._known is None:
            async with self._lock:
                if self._known is None:
                    found = [_assistant(row) for row in await self._database.read(_ALL)]
                    self._known = {one.assistant_id: one for one in found}
        return self._known

    async def _write(self, assistant_id: str, work: Callable[[Transaction], Row]) -> Assistant:
        """Write and update the cache, one call at a time, so that the cache contains the last write."""
        known = await self._all()
        async with self._lock:
            # Shielded: a canceled caller must not leave the cache out of date.
            with anyio.CancelScope(shield=True):
                written = _assistant(await self._database.transaction(work))
            known[assistant_id] = written
        return written


def missing_assistant(assistant_id: str) -> RowNotFound:
    """Return the error for an assistant that does not exist."""
    return RowNotFound(f"Assistant with ID {assistant_id} not found")


def _put(tx: Transaction, params: dict[str, Value]) -> Row:
    tx.run(_INSERT, params)
    tx.run(_INSERT_VERSION, params)
    return tx.run(_ONE, params)[0]


def _params(one: Assistant) -> dict[str, Value]:
    return asdict(one) | {name: encode(getattr(one, name)) for name in _JSON}


def _assistant(row: Row) -> Assistant:
    return from_row(Assistant, row, **{name: orjson.loads(row[name]) for name in _JSON})
