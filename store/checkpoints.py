"""Where the threads' state lies: LangGraph's SQLite checkpointer on a file of its own, kept short.

LangGraph's own saver makes five to seven trips to its connection's thread for one checkpoint and commits
each by itself. Here a call is one trip, and calls that wait together share a commit (store/writer.py).
"""

import json
import sqlite3
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiosqlite
import anyio
import anyio.to_thread
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from typing_extensions import override

from store.errors import Unavailable
from store.writer import Row, Transaction, Value, Writer

FILE = "checkpoints.db"
KEEP = 20
"""Checkpoints of a thread that are kept: far more than a resume or an undo needs."""

CLOSE_S = 5.0
_KNOWN_THREADS = 10_000
"""Threads whose number of checkpoints is remembered, so that short ones need no look at the file."""

_PRAGMAS = (
    "PRAGMA busy_timeout = 5000",
    "PRAGMA journal_mode = WAL",
    # A checkpoint must survive the process, not the power: a turn that a power cut takes is run again
    # from the journal, which is synchronous=FULL. NORMAL saves one fsync per checkpoint.
    "PRAGMA synchronous = NORMAL",
)
_PUT = """
INSERT OR REPLACE INTO checkpoints
    (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata)
VALUES (:thread_id, :ns, :id, :parent, :type, :checkpoint, :metadata)
"""
_PUT_WRITE = """
INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value)
VALUES (:thread_id, :ns, :id, :task_id, :task_path, :idx, :channel, :type, :value)
"""
_GET = """
SELECT checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints
WHERE thread_id = :thread_id AND checkpoint_ns = :ns AND (:id IS NULL OR checkpoint_id = :id)
ORDER BY checkpoint_id DESC LIMIT 1
"""
_GET_WRITES = """
SELECT task_id, task_path, idx, channel, type, value FROM writes
WHERE thread_id = :thread_id AND checkpoint_ns = :ns AND checkpoint_id = :id
"""
_COUNT = """
SELECT count(*) AS n FROM checkpoints WHERE thread_id = :thread_id AND checkpoint_ns = ''
"""
_OLDEST_KEPT = """
SELECT checkpoint_id FROM checkpoints WHERE thread_id = :thread_id AND checkpoint_ns = ''
ORDER BY checkpoint_id DESC LIMIT 1 OFFSET :keep - 1
"""
# Ids grow with time over all namespaces. The namespace of a subgraph's run holds a task id after a colon
# and is over when the checkpoint it belongs to is; one without is a subgraph with a memory of its own,
# whose newest checkpoint stays however old it is.
_PRUNE = """
DELETE FROM checkpoints WHERE thread_id = :thread_id AND checkpoint_id < :oldest AND (
    checkpoint_ns = '' OR instr(checkpoint_ns, ':') > 0 OR checkpoint_id < (
        SELECT max(newest.checkpoint_id) FROM checkpoints AS newest
        WHERE newest.thread_id = :thread_id AND newest.checkpoint_ns = checkpoints.checkpoint_ns))
"""
_PRUNE_WRITES = """
DELETE FROM writes WHERE thread_id = :thread_id AND checkpoint_id < :oldest AND NOT EXISTS (
    SELECT 1 FROM checkpoints WHERE checkpoints.thread_id = writes.thread_id
        AND checkpoints.checkpoint_ns = writes.checkpoint_ns
        AND checkpoints.checkpoint_id = writes.checkpoint_id)
"""
_FORGET_RUN = """
DELETE FROM checkpoints WHERE thread_id = :thread_id
    AND json_extract(CAST(metadata AS TEXT), '$.run_id') = :run_id
"""
_ORPHANED_WRITES = """
DELETE FROM writes WHERE thread_id = :thread_id AND checkpoint_id NOT IN (
    SELECT checkpoint_id FROM checkpoints WHERE thread_id = :thread_id)
"""
# What a resumed run left at the checkpoint it resumed from (now the newest again): the answers, and the
# results of the tasks that had asked.
_UNANSWER = """
DELETE FROM writes WHERE thread_id = :thread_id AND checkpoint_id >= (
    SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = :thread_id AND checkpoint_ns = '') AND (
    channel = '__resume__' OR (idx >= 0 AND EXISTS (
        SELECT 1 FROM writes AS asked WHERE asked.thread_id = writes.thread_id
            AND asked.checkpoint_ns = writes.checkpoint_ns
            AND asked.checkpoint_id = writes.checkpoint_id
            AND asked.task_id = writes.task_id AND asked.channel = '__interrupt__')))
"""
_DELETE_THREAD = (
    "DELETE FROM checkpoints WHERE thread_id = :thread_id",
    "DELETE FROM writes WHERE thread_id = :thread_id",
)


class Checkpoints(AsyncSqliteSaver):
    """LangGraph's saver with grouped writes, single-trip reads, pruning and rollback."""

    def __init__(self, connection: aiosqlite.Connection, writer: Writer) -> None:
        super().__init__(connection)
        self._writer = writer
        self._counts: OrderedDict[str, int] = OrderedDict()

    @override
    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        key = _key(config)
        key["id"] = get_checkpoint_id(config)

        def work(tx: Transaction) -> tuple[Row, Sequence[Row]] | None:
            rows = tx.run(_GET, key)
            if not rows:
                return None
            return rows[0], tx.run(_GET_WRITES, key | {"id": rows[0]["checkpoint_id"]})

        found = await self._writer.submit(work)
        return self._tuple(key, *found) if found else None

    @override
    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        kind, blob = self.serde.dumps_typed(checkpoint)
        key = _key(config)
        parent = get_checkpoint_id(config)
        details = json.dumps(get_checkpoint_metadata(config, metadata), ensure_ascii=False)
        params = key | {
            "id": checkpoint["id"],
            "parent": parent,
            "type": kind,
            "checkpoint": blob,
            "metadata": details.encode("utf-8", "ignore"),
        }
        await self._writer.submit(lambda tx: tx.run(_PUT, params))
        if not key["ns"]:
            self._count(str(key["thread_id"]), first=parent is None)
        return _config(key, checkpoint["id"])

    @override
    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        special = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        sql = ("INSERT OR REPLACE" if special else "INSERT OR IGNORE") + _PUT_WRITE
        key = _key(config) | {
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
            for row in rows:
                tx.run(sql, row)

        await self._writer.submit(work)

    @override
    async def adelete_thread(self, thread_id: str) -> None:
        """Delete every checkpoint of a thread."""

        def work(tx: Transaction) -> None:
            for sql in _DELETE_THREAD:
                tx.run(sql, {"thread_id": thread_id})

        await self._writer.submit(work)
        self._counts.pop(thread_id, None)

    async def trim(self, thread_id: str, *, keep: int = KEEP) -> None:
        """Delete all but the last `keep` checkpoints of a thread, with what belongs to them."""
        if 0 < self._counts.get(thread_id, keep + 1) <= keep:
            return
        params: dict[str, Value] = {"thread_id": thread_id, "keep": keep}

        def work(tx: Transaction) -> int:
            oldest = tx.run(_OLDEST_KEPT, params)
            if oldest:
                limits = params | {"oldest": oldest[0]["checkpoint_id"]}
                tx.run(_PRUNE, limits)
                tx.run(_PRUNE_WRITES, limits)
            return int(tx.run(_COUNT, params)[0]["n"])

        self._counts[thread_id] = await self._writer.submit(work)

    async def forget_run(self, thread_id: str, run_id: str) -> None:
        """Take a thread back to where it was before a run."""
        params: dict[str, Value] = {"thread_id": thread_id, "run_id": run_id}

        def work(tx: Transaction) -> None:
            for sql in (_FORGET_RUN, _ORPHANED_WRITES, _UNANSWER):
                tx.run(sql, params)

        await self._writer.submit(work)
        self._counts.pop(thread_id, None)

    def _count(self, thread_id: str, *, first: bool) -> None:
        if first:
            self._counts[thread_id] = 1
        elif thread_id in self._counts:
            self._counts[thread_id] += 1
        if len(self._counts) > _KNOWN_THREADS:
            self._counts.popitem(last=False)

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
            config=_config(key, row["checkpoint_id"]),
            checkpoint=self.serde.loads_typed((row["type"], row["checkpoint"])),
            metadata=cast("CheckpointMetadata", json.loads(row["metadata"] or b"{}")),
            parent_config=_config(key, parent) if parent else None,
            pending_writes=pending,
        )


@asynccontextmanager
async def open_checkpointer(home: Path) -> AsyncIterator[Checkpoints]:
    """Open (and make) the checkpoints of the data folder `home`.

    Raises:
        Unavailable: the file cannot be opened or is damaged.
    """
    file = home / FILE
    connection = await anyio.to_thread.run_sync(_connect, file)
    writer = Writer(connection)
    try:
        reader = await aiosqlite.connect(file)
        try:
            saver = Checkpoints(reader, writer)
            await saver.setup()
            yield saver
        finally:
            with anyio.move_on_after(CLOSE_S, shield=True):
                await reader.close()
    finally:
        with anyio.CancelScope(shield=True):
            await writer.close(timeout_s=CLOSE_S)


def _connect(file: Path) -> sqlite3.Connection:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
        connection = sqlite3.connect(
            file, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        for pragma in _PRAGMAS:
            connection.execute(pragma)
    except (OSError, sqlite3.Error) as error:
        raise Unavailable(f"The checkpoints {file} cannot be opened: {error}.") from error
    return connection


def _key(config: RunnableConfig) -> dict[str, Value]:
    options = config["configurable"]
    return {"thread_id": str(options["thread_id"]), "ns": options.get("checkpoint_ns", "")}


def _config(key: dict[str, Value], checkpoint_id: object) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": key["thread_id"],
            "checkpoint_ns": key["ns"],
            "checkpoint_id": checkpoint_id,
        }
    }
