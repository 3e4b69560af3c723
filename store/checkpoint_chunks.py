"""Splits long message lists into chunks, so that a checkpoint saves and loads only what is new in its thread.

A chunk has `SIZE` messages and is named by the hash of its bytes. A named chunk never changes, so the checkpoints
of a thread share chunks, and a cached chunk is never out of date. The rest of the list stays in the checkpoint.
Saved chunks are compressed, to a third to a half of the messages' size.
"""

import hashlib
import json
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol

from store import checkpoint_sql as sql
from store.message_fingerprint import MessageFingerprint
from store.transaction import Params, Transaction

SIZE = 16
"""Messages per chunk. With fewer, the lists of chunk names grow. With more, each checkpoint saves a longer rest."""

MAX_BYTES = 2 * 1024 * 1024
"""Maximum size of the cached chunks, saved bytes: about 6,000 short messages, which take about 13 MB in memory."""

MAX_IDLE_S = 300.0
"""Seconds without use after which the next change drops a thread. Reading it again takes milliseconds."""

_NAME_BYTES = 16

SavedChunks = Mapping[str, tuple[str, bytes]]
"""The serialized forms of chunks, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChunk:
    """A chunk: its name, its serialized form, and its messages.

    `fingerprint` is None for messages whose changes cannot be detected: they are serialized every time.
    """

    name: str
    kind: str
    blob: bytes
    messages: tuple[Any, ...]
    fingerprint: MessageFingerprint | None

    def matches(self, messages: Sequence[object]) -> bool:
        """Return whether `messages` serialize to this chunk."""
        return self.fingerprint is not None and self.fingerprint.matches(messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedValues:
    """Channel values. Each long list is reduced to its rest, with the names of the chunks that precede the rest."""

    values: dict[str, Any]
    parts: dict[str, list[str]]
    chunks: dict[str, StoredChunk]

    @property
    def names(self) -> list[str]:
        """The names of all chunks."""
        return list(self.chunks)


@dataclass(slots=True, eq=False)
class _HeldChunks:
    """The chunks of one namespace's newest checkpoint. `used_at` is monotonic, seconds."""

    chunks: tuple[StoredChunk, ...] = ()
    by_first: dict[int, StoredChunk] = field(init=False)
    bytes: int = field(init=False)
    used_at: float = 0.0

    def __post_init__(self) -> None:
        self.by_first = {id(chunk.messages[0]): chunk for chunk in self.chunks}
        self.bytes = sum([len(chunk.blob) for chunk in self.chunks])

    def has(self, chunks: Sequence[StoredChunk]) -> bool:
        return len(chunks) == len(self.chunks) and all(map(is_, chunks, self.chunks))


class MessageChunker:
    """Splits and joins the message lists of threads; caches the chunks of the most recently used threads.

    Args:
        serde: Serializes messages.
        max_bytes: Maximum size of the cached chunks, saved bytes.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        serde: SerializerProtocol,
        *,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._serde = serde
        self._max_bytes = max_bytes
        self._clock = clock
        self._threads: OrderedDict[str, dict[str, _HeldChunks]] = OrderedDict()
        self._unchanged: set[str] = set()
        self.bytes = 0

    def held(self, thread_id: str, namespace: str) -> dict[str, StoredChunk]:
        """Return the cached chunks, by name."""
        held = self._threads.get(thread_id, {}).get(namespace)
        return {chunk.name: chunk for chunk in held.chunks} if held else {}

    def mark_unchanged(self, thread_id: str) -> None:
        """Record that no step ran since the thread's newest checkpoint was split: its messages equal the saved ones."""
        if thread_id in self._threads:
            self._unchanged.add(thread_id)

    def take_unchanged(self, thread_id: str) -> bool:
        """Return whether the thread was marked, and remove the mark: the caller may change the messages."""
        is_marked = thread_id in self._unchanged
        self._unchanged.discard(thread_id)
        return is_marked

    def split(
        self,
        thread_id: str,
        namespace: str,
        values: Mapping[str, Any],
        *,
        unchanged_since_join: bool = False,
    ) -> ChunkedValues:
        """Split the long message lists among `values`, and cache the chunks.

        Args:
            thread_id: The thread of the lists.
            namespace: The checkpoint namespace.
            values: The channels' values.
            unchanged_since_join: No step has run since the chunks were joined, so compare messages by identity only.
        """
        held = self._threads.get(thread_id, {}).get(namespace)
        known = held.by_first if held else {}
        rest = dict(values)
        parts: dict[str, list[str]] = {}
        cut: list[StoredChunk] = []
        for channel, value in values.items():
            if type(value) is not list or len(value) < SIZE or not _messages(value):
                continue
            end = len(value) // SIZE * SIZE
            found = [
                self._chunk(value[at : at + SIZE], known, unchanged_since_join=unchanged_since_join)
                for at in range(0, end, SIZE)
            ]
            parts[channel] = [chunk.name for chunk in found]
            rest[channel] = value[end:]
            cut += found
        if held or cut:
            self._keep(thread_id, namespace, cut)
        return ChunkedValues(values=rest, parts=parts, chunks={chunk.name: chunk for chunk in cut})

    def join(
        self,
        values: Mapping[str, Any],
        parts: Mapping[str, Sequence[str]],
        *,
        held: Mapping[str, StoredChunk],
        saved: Mapping[str, tuple[str, bytes]],
        unchanged: bool = False,
    ) -> tuple[dict[str, Any], list[StoredChunk]]:
        """Join each list's chunks and its rest.

        Uses cached messages that still equal the saved ones, each only once. Compares them, unless the
        caller knows that they are `unchanged`.

        Raises:
            KeyError: A chunk is neither cached nor saved.
        """
        whole = dict(values)
        used: dict[int, StoredChunk] = {}
        for channel, names in parts.items():
            joined: list[Any] = []
            for name in names:
                chunk = held.get(name)
                if (
                    chunk is None
                    or id(chunk) in used
                    or not (unchanged or chunk.matches(chunk.messages))
                ):
                    form = (chunk.kind, chunk.blob) if chunk else saved[name]
                    chunk = self._loaded(name, *form)
                used[id(chunk)] = chunk
                joined += chunk.messages
            whole[channel] = joined + whole[channel]
        return whole, list(used.values())

    def keep(self, thread_id: str, namespace: str, chunks: Sequence[StoredChunk]) -> None:
        """Cache the chunks of a thread's newest checkpoint instead of earlier ones."""
        if chunks or thread_id in self._threads:
            self._keep(thread_id, namespace, chunks)

    def discard(self, thread_id: str) -> None:
        """Remove a thread from the cache."""
        self._unchanged.discard(thread_id)
        for held in self._threads.pop(thread_id, {}).values():
            self.bytes -= held.bytes

    def _chunk(
        self, messages: list[Any], known: Mapping[int, StoredChunk], *, unchanged_since_join: bool
    ) -> StoredChunk:
        chunk = known.get(id(messages[0]))
        if chunk is not None:
            same = (
                unchanged_since_join
                and chunk.fingerprint
                and all(map(is_, messages, chunk.messages))
            )
            if same or chunk.matches(messages):
                return chunk
        kind, blob = self._serde.dumps_typed(messages)
        name = hashlib.blake2b(blob, digest_size=_NAME_BYTES).hexdigest()
        return StoredChunk(
            name=name,
            kind=kind,
            blob=blob,
            messages=tuple(messages),
            fingerprint=MessageFingerprint.from_messages(messages),
        )

    def _loaded(self, name: str, kind: str, blob: bytes) -> StoredChunk:
        messages = tuple(self._serde.loads_typed((kind, blob)))
        return StoredChunk(
            name=name,
            kind=kind,
            blob=blob,
            messages=messages,
            fingerprint=MessageFingerprint.from_messages(messages),
        )

    def _keep(self, thread_id: str, namespace: str, chunks: Sequence[StoredChunk]) -> None:
        places = self._threads.setdefault(thread_id, {})
        before = places.get(namespace)
        now = self._clock()
        if before is not None and before.has(chunks):
            before.used_at = now
        else:
            held = _HeldChunks(tuple(chunks), used_at=now)
            if held.bytes > self._max_bytes:
                held = _HeldChunks(used_at=now)
            self.bytes += held.bytes - (before.bytes if before else 0)
            places[namespace] = held
        self._threads.move_to_end(thread_id)
        self._evict(now)

    def _evict(self, now: float) -> None:
        while self._threads:
            thread_id, places = next(iter(self._threads.items()))
            used_at = max(held.used_at for held in places.values())
            if self.bytes <= self._max_bytes and now - used_at <= MAX_IDLE_S:
                return
            self.discard(thread_id)


def _messages(values: Iterable[object]) -> bool:
    return all(issubclass(kind, BaseMessage) for kind in set(map(type, values)))


def read_chunks(tx: Transaction, thread_id: str, names: Sequence[str]) -> SavedChunks:
    """Return the named chunks that are saved."""
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
