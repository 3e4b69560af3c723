"""Checkpoints of threads: LangGraph's SQLite saver on a separate file, with group commit and pruning.

LangGraph's saver makes five to seven trips to its connection's worker thread per checkpoint and commits each of them.
Here a call makes one trip, and queued calls share a commit (store/sqlite_writer.py). Long message lists are saved in
chunks that checkpoints share (store/checkpoint_chunks.py).
"""

import json
import logging
import sqlite3
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from contextvars import ContextVar
from functools import partial
from itertools import islice
from pathlib import Path
from random import random
from typing import Any, cast

import anyio
import anyio.to_thread
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.base import id as langgraph_ids
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from typing_extensions import override

from store import checkpoint_sql as sql
from store.blocking_saver import BlockingSaver
from store.checkpoint_chunks import (
    ChunkedValues,
    MessageChunker,
    SavedChunks,
    StoredChunk,
    read_chunks,
    write_chunks,
)
from store.config import CHECKPOINTS_FILE
from store.database import Database
from store.delta_histories import (
    DeltaHistories,
    StoredHistory,
    changed_channels,
    lock_histories,
)
from store.errors import StoreUnavailable
from store.migrations import migrate
from store.owner_loop import in_owner_loop
from store.sqlite_writer import DatabaseWriter
from store.storable import storable
from store.transaction import Row, Transaction, UnitRunner, Value

log = logging.getLogger(__name__)

FILE = CHECKPOINTS_FILE
_ID_VERSION = 6
"""The version of the UUIDs that LangGraph uses as checkpoint IDs."""

KEEP = 20
"""Number of checkpoints to keep per thread, far more than a resume or an undo needs.

Not every turn trims its thread, so a thread may have up to one and a half times as many.
"""

CLOSE_S = 5.0
_PARTS = "message_chunks"
"""Key of a saved checkpoint: the names of the chunks before the rest of each message list, by channel."""

_PLAIN = "msgpack"
_CHUNKED = "msgpack+chunks"
"""Type of a saved checkpoint with chunks: a reader that does not know them fails instead of losing messages."""

_KNOWN_THREADS = 500
"""Number of threads whose checkpoint count is cached, so that trimming does not have to read short threads."""

_PRAGMAS = (
    "PRAGMA busy_timeout = 5000",
    "PRAGMA journal_mode = WAL",
    # A checkpoint must survive a crash of the process, but not a power failure. After one, the turn runs again from the
    # inbox, which uses synchronous=FULL. NORMAL saves one fsync per checkpoint.
    "PRAGMA synchronous = NORMAL",
)


WRITE_RETRY: ContextVar[Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] | None] = (
    ContextVar("parley_write_retry", default=None)
)
"""Awaits a write, repeating it as needed; None = try once.

A context variable, because LangGraph saves checkpoints in its own tasks.
"""


async def submit_with_retry(writer: UnitRunner, work: Callable[[Transaction], None]) -> None:
    """Run `work`, retried by the context's `WRITE_RETRY` if it is set. Raises StoreUnavailable."""
    retry = WRITE_RETRY.get()
    if retry is None:
        await writer.submit(work)
    else:
        await retry(partial(writer.submit, work))


class _Serde(JsonPlusSerializer):
    """LangGraph's serializer. It also reads checkpoints with chunks, and writes values that msgpack refuses."""

    @override
    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        try:
            return super().dumps_typed(obj)
        except (TypeError, ValueError, RecursionError) as error:
            log.warning("Storing a value of a thread as text: %s", error)
            return super().dumps_typed(storable(obj))

    @override
    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, blob = data
        return super().loads_typed((_PLAIN if kind == _CHUNKED else kind, blob))


class CheckpointSaver(BlockingSaver):
    """A LangGraph saver with grouped writes, single-trip reads, shared messages, pruning and rollback.

    Args:
        writer: Runs units of work on the tables of `checkpoint_sql`.
    """

    def __init__(self, writer: UnitRunner) -> None:
        super().__init__(serde=_Serde())
        self._writer = writer
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._chunks = MessageChunker(self.serde)
        self._input_ids: dict[str, str] = {}
        self._histories = DeltaHistories(self.serde, self._read_values)

    @override
    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return the next version: a number that sorts as text, and a fraction that distinguishes forks."""
        number = int(current.partition(".")[0]) if current else 0
        return f"{number + 1:032}.{random():016}"  # noqa: S311 - no secret

    @override
    @in_owner_loop
    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        key = _row_key(config)
        key["id"] = get_checkpoint_id(config)
        where = str(key["thread_id"]), str(key["ns"])
        loaded = await self._load(key, self._chunks.held(*where))
        if loaded is None:
            return None
        whole, chunks = loaded
        if key["id"] is None:
            _advance_checkpoint_ids(whole.checkpoint["id"])
            self._chunks.keep(*where, chunks)
        else:
            # It may be forked: the fork becomes the newest one.
            for row in await self._writer.submit(lambda tx: tx.run(sql.NEWEST_ID, key)):
                _advance_checkpoint_ids(str(row["checkpoint_id"]))
        return whole

    @override
    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """List checkpoints, newest first. One that is deleted at the same time may be missing."""
        if not self.owner.is_current():
            for one in self.list(config, filter=filter, before=before, limit=limit):
                yield one
            return
        options = config["configurable"] if config else {}
        params: dict[str, Value] = {
            "thread_id": str(options["thread_id"]) if config else None,
            "ns": options.get("checkpoint_ns"),
            "id": get_checkpoint_id(config) if config else None,
            "before": get_checkpoint_id(before) if before else None,
        }
        statement = sql.LIST_THREAD if config else sql.LIST
        rows = await self._writer.submit(lambda tx: tx.run(statement, params))
        matching = (row for row in rows if _has_metadata(row, filter or {}))
        held: dict[str, StoredChunk] = {}
        for row in islice(matching, limit):
            key = {
                "thread_id": row["thread_id"],
                "ns": row["checkpoint_ns"],
                "id": row["checkpoint_id"],
            }
            if (loaded := await self._load(key, held)) is not None:
                held = {chunk.name: chunk for chunk in loaded[1]}
                yield loaded[0]

    @override
    @in_owner_loop
    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the histories from which LangGraph computes the DeltaChannels that a checkpoint lacks."""
        key = _row_key(config)
        checkpoint_id = get_checkpoint_id(config)

        def work(tx: Transaction) -> Mapping[str, StoredHistory]:
            found = checkpoint_id
            if found is None:
                rows = tx.run(sql.NEWEST_ID, key)
                found = rows[0]["checkpoint_id"] if rows else None
            return self._histories.read(tx, key | {"id": found}, channels)

        found = await self._writer.submit(work)
        return {channel: one.loaded(channel, self.serde) for channel, one in found.items()}

    async def _load(
        self, key: dict[str, Value], held: Mapping[str, StoredChunk]
    ) -> tuple[CheckpointTuple, list[StoredChunk]] | None:
        """Return a checkpoint and its chunks; None if it does not exist, or is being deleted."""
        is_newest = key["id"] is None and not key["ns"]
        unchanged = is_newest and self._chunks.take_unchanged(str(key["thread_id"]))

        def work(tx: Transaction) -> tuple[Row, Sequence[Row], SavedChunks] | None:
            rows = tx.run(sql.GET, key)
            if not rows:
                return None
            names = [n for n in json.loads(rows[0]["chunks"] or "[]") if n not in held]
            saved = read_chunks(tx, str(key["thread_id"]), names)
            if len(saved) < len(names):
                return None
            return rows[0], tx.run(sql.GET_WRITES, key | {"id": rows[0]["checkpoint_id"]}), saved

        found = await self._writer.submit(work)
        if found is None:
            return None
        row, writes, saved = found
        return self._join_chunks(self._tuple(key, row, writes), held, saved, unchanged=unchanged)

    @override
    @in_owner_loop
    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        key = _row_key(config)
        thread_id = str(key["thread_id"])
        parent = get_checkpoint_id(config)
        # No step of the graph runs between loading and the checkpoint after the input. Later checkpoints compare in
        # full.
        is_input = metadata.get("source") == "input"
        split = self._chunks.split(
            thread_id,
            str(key["ns"]),
            checkpoint["channel_values"],
            unchanged_since_join=is_input or self._input_ids.pop(thread_id, "") == parent,
        )
        if is_input and split.parts:
            self._input_ids[thread_id] = checkpoint["id"]
        names = json.dumps(split.names) if split.parts else None
        kind, blob = self._dumped(checkpoint, split)
        details = json.dumps(get_checkpoint_metadata(config, metadata), ensure_ascii=False)
        params = key | {
            "id": checkpoint["id"],
            "parent": parent,
            "type": kind,
            "checkpoint": blob,
            "metadata": details.encode("utf-8", "ignore").decode(),
            "chunks": names,
        }

        def work(tx: Transaction) -> None:
            if names is not None:
                write_chunks(tx, thread_id, names, split.chunks)
            tx.run(sql.PUT, params)

        await submit_with_retry(self._writer, work)
        if not key["ns"]:
            self._count(thread_id, first=parent is None)
        return _row_config(key, checkpoint["id"])

    @override
    @in_owner_loop
    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        special = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        put = sql.REPLACE_WRITE if special else sql.PUT_WRITE
        key = _row_key(config) | {
            "id": get_checkpoint_id(config),
            "task_id": task_id,
            "task_path": task_path,
        }
        rows: list[dict[str, Value]] = []
        for number, (channel, value) in enumerate(writes):
            kind, blob = self.serde.dumps_typed(value)
            index = WRITES_IDX_MAP.get(channel, number)
            rows.append(key | {"idx": index, "channel": channel, "type": kind, "value": blob})

        def work(tx: Transaction) -> None:
            tx.run_all([(put, row) for row in rows])

        await submit_with_retry(self._writer, work)

    @override
    @in_owner_loop
    async def adelete_thread(self, thread_id: str) -> None:
        """Delete every checkpoint of a thread."""

        def work(tx: Transaction) -> None:
            for statement in sql.DELETE_THREAD:
                tx.run(statement, {"thread_id": thread_id})

        await self._writer.submit(work)
        self._chunks.discard(thread_id)
        self._counts.pop(thread_id, None)
        self._input_ids.pop(thread_id, None)

    @override
    @in_owner_loop
    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy the checkpoints of a thread to one that has none."""
        both: dict[str, Value] = {"source": source_thread_id, "target": target_thread_id}

        def work(tx: Transaction) -> None:
            for statement in sql.COPY_THREAD:
                tx.run(statement, both)

        await self._writer.submit(work)

    def mark_unchanged(self, thread_id: str) -> None:
        """Record that a run ended with the newest checkpoint, so that the next run does not compare all messages."""
        self._chunks.mark_unchanged(thread_id)

    async def trim_thread(self, thread_id: str, *, keep: int = KEEP) -> None:
        """If a thread has many more than `keep` checkpoints, delete the oldest, and the rows that only they need."""
        most = keep + keep // 2
        if 0 < self._counts.get(thread_id, most + 1) <= most:
            return
        params: dict[str, Value] = {"thread_id": thread_id, "keep": keep}

        def work(tx: Transaction) -> int:
            lock_histories(tx, thread_id)
            oldest = tx.run(sql.OLDEST_KEPT, params)
            if not oldest:
                return int(tx.run(sql.COUNT, params)[0]["n"])
            limits = params | {"oldest": oldest[0]["checkpoint_id"]}
            for row in tx.run(sql.PRUNED_PARENTS, limits):
                if changed := changed_channels(json.loads(row["metadata"] or "{}")):
                    self._histories.save(tx, _place(thread_id, row), changed)
            statements = (sql.PRUNE, sql.PRUNE_WRITES, sql.MAY_HAVE_ORPHANED_CHUNKS)
            *_, chunks = tx.run_all([(statement, limits) for statement in statements])
            if chunks[0]["may"]:
                tx.run(sql.ORPHANED_CHUNKS, params)
            return keep

        self._counts[thread_id] = await self._writer.submit(work)

    async def rollback_run(self, thread_id: str, run_id: str) -> None:
        """Restore the state that a thread had before a run."""
        params: dict[str, Value] = {"thread_id": thread_id, "run_id": run_id}

        def work(tx: Transaction) -> None:
            for statement in sql.ROLLBACK:
                tx.run(statement, params)

        await self._writer.submit(work)
        self._counts.pop(thread_id, None)

    def _count(self, thread_id: str, *, first: bool) -> None:
        if first:
            self._counts[thread_id] = 1
        elif thread_id in self._counts:
            self._counts[thread_id] += 1
        if len(self._counts) > _KNOWN_THREADS:
            self._counts.popitem(last=False)

    def _dumped(self, checkpoint: Checkpoint, split: ChunkedValues) -> tuple[str, bytes]:
        if not split.parts:
            return self.serde.dumps_typed(checkpoint)
        lean = {**checkpoint, "channel_values": split.values, _PARTS: split.parts}
        return _CHUNKED, self.serde.dumps_typed(lean)[1]

    def _join_chunks(
        self,
        found: CheckpointTuple,
        held: Mapping[str, StoredChunk],
        saved: SavedChunks,
        *,
        unchanged: bool,
    ) -> tuple[CheckpointTuple, list[StoredChunk]]:
        """Return a checkpoint with its message lists joined, and their chunks."""
        parts = _parts(found.checkpoint)
        if not parts:
            return found, []
        stored = found.checkpoint["channel_values"]
        values, chunks = self._chunks.join(
            stored, parts, held=held, saved=saved, unchanged=unchanged
        )
        plain = {key: value for key, value in found.checkpoint.items() if key != _PARTS}
        whole = cast("Checkpoint", plain | {"channel_values": values})
        return found._replace(checkpoint=whole), chunks

    def _read_values(self, tx: Transaction, thread_id: str, row: Row) -> Mapping[str, Any]:
        """Return the values of a saved checkpoint."""
        checkpoint = self.serde.loads_typed((row["type"], row["checkpoint"]))
        parts = _parts(checkpoint)
        names = [name for part in parts.values() for name in part]
        saved = read_chunks(tx, thread_id, names)
        return self._chunks.join(checkpoint["channel_values"], parts, held={}, saved=saved)[0]

    def _tuple(self, key: dict[str, Value], row: Row, writes: Sequence[Row]) -> CheckpointTuple:
        ordered = sorted(
            writes, key=lambda w: writes_sort_key(w["task_path"], w["task_id"], w["idx"])
        )
        pending: list[PendingWrite] = [
            (w["task_id"], w["channel"], self.serde.loads_typed((w["type"], w["value"])))
            for w in ordered
        ]
        parent = row["parent_checkpoint_id"]
        return CheckpointTuple(
            config=_row_config(key, row["checkpoint_id"]),
            checkpoint=self.serde.loads_typed((row["type"], row["checkpoint"])),
            metadata=cast("CheckpointMetadata", json.loads(row["metadata"] or "{}")),
            parent_config=_row_config(key, parent) if parent else None,
            pending_writes=pending,
        )


@asynccontextmanager
async def open_checkpointer(
    home: Path, database: Database | None = None
) -> AsyncIterator[CheckpointSaver]:
    """Open (create) the checkpoints: in `database` if that is PostgreSQL, else in a file of the data folder `home`.

    Raises:
        StoreUnavailable: the file cannot be opened or is damaged.
    """
    if database is not None and database.engine.has_checkpoints:
        yield CheckpointSaver(database.engine)
        return
    file = home / FILE
    connection = await anyio.to_thread.run_sync(connect_checkpoints, file)
    writer = DatabaseWriter(connection, file)
    try:
        yield CheckpointSaver(writer)
    finally:
        with anyio.CancelScope(shield=True):
            await writer.close(timeout_s=CLOSE_S)


def connect_checkpoints(file: Path) -> sqlite3.Connection:
    """Open (create, migrate) the SQLite file of the checkpoints. Blocks.

    Raises:
        SchemaMismatch: A newer or an earlier Parley wrote it.
        StoreUnavailable: It cannot be opened.
    """
    with ExitStack() as stack:
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600)
            connection = sqlite3.connect(
                file, isolation_level=None, check_same_thread=False, cached_statements=64
            )
            stack.callback(connection.close)
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            migrate(connection, "checkpoints", f"The database {file}")
        except (OSError, sqlite3.Error) as error:
            raise StoreUnavailable(f"The checkpoints {file} cannot be opened: {error}.") from error
        stack.pop_all()
    return connection


def _place(thread_id: str, row: Row) -> dict[str, Value]:
    return {
        "thread_id": thread_id,
        "ns": row["checkpoint_ns"],
        "id": row["checkpoint_id"],
    }


def _parts(checkpoint: Checkpoint) -> dict[str, list[str]]:
    """Return the names of the chunks that a saved checkpoint needs, by channel."""
    parts: dict[str, list[str]] = cast("dict[str, Any]", checkpoint).get(_PARTS, {})
    return parts


def _has_metadata(row: Row, wanted: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint's metadata has these values."""
    metadata = json.loads(row["metadata"] or "{}") if wanted else {}
    return all(metadata.get(key) == value for key, value in wanted.items())


def _row_key(config: RunnableConfig) -> dict[str, Value]:
    """Return the thread and the namespace that a config names, as parameters of statements."""
    options = config["configurable"]
    return {"thread_id": str(options["thread_id"]), "ns": options.get("checkpoint_ns", "")}


def _row_config(key: dict[str, Value], checkpoint_id: object) -> RunnableConfig:
    """Return the config that names a checkpoint."""
    return {
        "configurable": {
            "thread_id": key["thread_id"],
            "checkpoint_ns": key["ns"],
            "checkpoint_id": checkpoint_id,
        }
    }


def _advance_checkpoint_ids(checkpoint_id: str) -> None:
    """Give all later checkpoints of this process greater IDs than this one.

    The newest checkpoint of a thread is the one with the greatest ID, and an ID is a time. After a checkpoint made
    while the clock was ahead, later ones would count as older.
    """
    try:
        known = langgraph_ids.UUID(hex=checkpoint_id)
    except ValueError:
        return  # Not a LangGraph ID.
    # LangGraph's generator has no setter.
    newest = vars(langgraph_ids)["_last_v6_timestamp"] or 0
    if known.version == _ID_VERSION and known.time > newest:
        vars(langgraph_ids)["_last_v6_timestamp"] = known.time
