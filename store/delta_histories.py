"""Histories of LangGraph's DeltaChannels: reads them from checkpoints, and keeps them when the checkpoints are deleted.

A DeltaChannel saves its value only in some checkpoints (a snapshot). In all others it has no value: LangGraph computes
it from the newest ancestor with a value (the seed), and from the writes that its descendants made, oldest first.
Before ancestors are deleted, their part of the history is saved at the oldest descendant that stays, in rows of
`writes` that belong to no task.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from store import checkpoint_sql as sql
from store.transaction import Row, Transaction, Value

_COUNTERS = "counters_since_delta_snapshot"
"""Key in a checkpoint's metadata: the DeltaChannels whose values it lacks."""

_FIRST_IDX = -1000
"""Number of the first row of a checkpoint's saved histories. Rollbacks keep it: they delete numbers from 0 on."""

ValuesReader = Callable[[Transaction, str, Row], Mapping[str, Any]]
"""Returns the values of a thread's checkpoint, from the row with its `type` and `checkpoint`."""

Place = dict[str, Value]
"""`thread_id`, `ns` and `id` of a checkpoint."""

_Form = tuple[str, bytes]


def changed_channels(metadata: Mapping[str, Any]) -> list[str]:
    """Return the DeltaChannels whose values a checkpoint lacks, from its metadata."""
    return sorted(metadata.get(_COUNTERS) or ())


def has_deltas(found: CheckpointTuple) -> bool:
    """Return whether a checkpoint lacks the values of DeltaChannels, which only the graph can compute."""
    values = found.checkpoint["channel_values"].values()
    return bool(changed_channels(found.metadata)) or any(
        isinstance(value, _DeltaSnapshot) for value in values
    )


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """The history of a channel, serialized: its seed, if it has one, and its writes by task id, oldest first."""

    seed: _Form | None
    writes: tuple[tuple[str, _Form], ...]

    def loaded(self, channel: str, serde: SerializerProtocol) -> DeltaChannelHistory:
        """Return the history as LangGraph reads it."""
        history: DeltaChannelHistory = {
            "writes": [(task, channel, serde.loads_typed(form)) for task, form in self.writes]
        }
        if self.seed is not None:
            history["seed"] = serde.loads_typed(self.seed)
        return history


def lock_histories(tx: Transaction, thread_id: str) -> None:
    """Keep other transactions from reading or deleting a thread's histories until this one ends."""
    tx.lock(f"histories of {thread_id}")


class DeltaHistories:
    """Reads and saves the histories of channels.

    Args:
        serde: Serializes values.
        read_values: Returns the values of a checkpoint.
    """

    def __init__(self, serde: SerializerProtocol, read_values: ValuesReader) -> None:
        self._serde = serde
        self._read_values = read_values

    def read(
        self, tx: Transaction, place: Place, channels: Sequence[str]
    ) -> dict[str, StoredHistory]:
        """Return the histories of channels at a checkpoint. Until this transaction ends, no other can trim the thread.

        Args:
            tx: The transaction.
            place: The checkpoint.
            channels: The channels' names.
        """
        lock_histories(tx, str(place["thread_id"]))
        lineage = list(_lineage(tx, place))
        params = place | {
            "ids": json.dumps([row["checkpoint_id"] for row in lineage]),
            "channels": json.dumps(list(channels)),
        }
        writes: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in tx.run(sql.GET_CHANNEL_WRITES, params):
            writes[row["channel"], row["checkpoint_id"]].append(row)
        return {name: self._history(tx, place, lineage, writes, name) for name in channels}

    def save(self, tx: Transaction, place: Place, channels: Sequence[str]) -> None:
        """Save the histories of channels at a checkpoint whose ancestors are about to be deleted."""
        found = self.read(tx, place, channels)
        for number, (channel, history) in enumerate(found.items()):
            kind, blob = self._serde.dumps_typed(
                [list(history.seed or ()), [[task, *form] for task, form in history.writes]]
            )
            row: Place = {"task_id": sql.HISTORY, "task_path": "", "idx": _FIRST_IDX - number}
            tx.run(
                sql.REPLACE_WRITE, place | row | {"channel": channel, "type": kind, "value": blob}
            )

    def _history(
        self,
        tx: Transaction,
        place: Place,
        lineage: Sequence[Row],
        writes: Mapping[tuple[str, str], Sequence[Row]],
        channel: str,
    ) -> StoredHistory:
        """Return the history of one channel, from the checkpoint back to the newest ancestor with a value."""
        collected: list[tuple[str, _Form]] = []
        for depth, checkpoint in enumerate(lineage):
            rows = writes.get((channel, checkpoint["checkpoint_id"]), ())
            if depth:
                collected[:0] = _in_order(rows)
                if (seed := self._seed(tx, place, checkpoint, channel)) is not None:
                    return StoredHistory(seed, tuple(collected))
            for row in rows:
                if row["task_id"] == sql.HISTORY:
                    seed, earlier = self._serde.loads_typed((row["type"], row["value"]))
                    ordered = [(task, (kind, blob)) for task, kind, blob in earlier]
                    return StoredHistory(tuple(seed) or None, (*ordered, *collected))
        return StoredHistory(None, tuple(collected))

    def _seed(self, tx: Transaction, place: Place, checkpoint: Row, channel: str) -> _Form | None:
        if channel in changed_channels(json.loads(checkpoint["metadata"] or "{}")):
            return None
        rows = tx.run(sql.GET, place | {"id": checkpoint["checkpoint_id"]})
        values = self._read_values(tx, str(place["thread_id"]), rows[0])
        return self._serde.dumps_typed(values[channel]) if channel in values else None


def _lineage(tx: Transaction, place: Place) -> Iterator[Row]:
    """Yield a checkpoint and its ancestors, newest first; each once, even if the chain is a loop."""
    rows = {row["checkpoint_id"]: row for row in tx.run(sql.LINEAGE, place)}
    checkpoint = rows.pop(place["id"], None)
    while checkpoint is not None:
        yield checkpoint
        checkpoint = rows.pop(checkpoint["parent_checkpoint_id"], None)


def _in_order(rows: Sequence[Row]) -> list[tuple[str, _Form]]:
    """Return the writes of a checkpoint's tasks in the order in which LangGraph applied them."""
    of_tasks = [row for row in rows if row["task_id"] != sql.HISTORY]
    of_tasks.sort(key=lambda row: writes_sort_key(row["task_path"], row["task_id"], row["idx"]))
    return [(row["task_id"], (row["type"], row["value"])) for row in of_tasks]
