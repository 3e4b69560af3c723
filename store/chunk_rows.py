"""Reads and writes the rows of chunks. They are compressed: messages take a third to a half of their size."""

import json
import zlib
from collections.abc import Mapping, Sequence

from store import checkpoint_sql as sql
from store.chunks import StoredChunk
from store.transaction import Params, Transaction

SavedChunks = Mapping[str, tuple[str, bytes]]
"""The serialized forms of chunks, by name."""


def read_chunks(tx: Transaction, thread_id: str, names: Sequence[str]) -> SavedChunks:
    """Return the saved ones of the named chunks."""
    if not names:
        return {}
    rows = tx.run(sql.GET_CHUNKS, {"thread_id": thread_id, "names": json.dumps(names)})
    return {row["name"]: (row["type"], zlib.decompress(row["value"])) for row in rows}


def write_chunks(
    tx: Transaction, thread_id: str, names: str, chunks: Mapping[str, StoredChunk]
) -> None:
    """Write the chunks that are not saved yet. `names` is the JSON list of all of them."""
    missing = tx.run(sql.MISSING_CHUNKS, {"thread_id": thread_id, "names": names})
    tx.run_all([(sql.PUT_CHUNK, _params(thread_id, chunks[row["name"]])) for row in missing])


def _params(thread_id: str, chunk: StoredChunk) -> Params:
    return {
        "thread_id": thread_id,
        "name": chunk.name,
        "type": chunk.kind,
        "value": zlib.compress(chunk.blob, level=1),
    }
