"""Memory in a bucket: each node reads and lists the memories of other nodes."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync

from agent.errors import MemoryUnavailable
from agent.memory.schema import MemoryDocument, MemoryFact
from agent.memory.scope import memory_scope
from agent.memory.shared import shared_memory
from agent.memory.store import MemoryStore
from store.config import StoreConfig
from store.database import Database
from store.files.config import StorageConfig
from store.files.opening import open_mirror
from tests.fakes.s3 import S3Bucket

ANN, BEN = memory_scope("person:slack:T1:ann"), memory_scope("person:slack:T1:ben")
TEA = MemoryDocument(facts=(MemoryFact(id="f1", content="likes tea", number=1),), last_number=1)


def with_fact(document: MemoryDocument, *, fact: MemoryFact) -> MemoryDocument:
    return replace(document, facts=(*document.facts, fact))


async def memory_of(home: Path, bucket: S3Bucket, database: Database) -> MemoryStore:
    """Return the memory of a node."""
    mirror = await open_mirror(StorageConfig(**bucket.storage()), home, database)
    root = home / "files" / "memory"
    return MemoryStore(root, shared_memory(mirror, home / "files", root))


async def test_a_node_lists_and_reads_what_another_one_has_learned(
    tmp_path: Path, bucket: S3Bucket
) -> None:
    async with Database.open(StoreConfig(), tmp_path) as database:
        one, two = [await memory_of(tmp_path / name, bucket, database) for name in ("1", "2")]
        for scope in (ANN, BEN):
            await run_sync(partial(one.update, scope, lambda _: TEA))
        assert [info.scope for info in await run_sync(two.list_scopes)] == [ANN.scope, BEN.scope]
        assert await run_sync(two.read, BEN) == TEA
        await run_sync(two.delete, BEN)
        assert [info.scope for info in await run_sync(one.list_scopes)] == [ANN.scope]
    with pytest.raises(MemoryUnavailable):
        await run_sync(two.read, ANN)
    with pytest.raises(MemoryUnavailable):
        await run_sync(two.list_scopes)


async def test_facts_that_two_nodes_learn_at_once_are_all_kept(
    tmp_path: Path, bucket: S3Bucket
) -> None:
    async with Database.open(StoreConfig(), tmp_path) as database:
        nodes = [await memory_of(tmp_path / name, bucket, database) for name in ("1", "2")]

        async def learn(node: MemoryStore, name: str) -> None:
            for number in range(10):
                fact = MemoryFact(id=f"{name}{number}", content=f"{name} {number}")
                await run_sync(partial(node.update, ANN, partial(with_fact, fact=fact)))

        async with anyio.create_task_group() as tasks:
            for node, name in zip(nodes, "ab", strict=True):
                tasks.start_soon(learn, node, name)
        ids = {f"{name}{number}" for name in "ab" for number in range(10)}
        for node in nodes:
            assert {fact.id for fact in (await run_sync(node.read, ANN)).facts} == ids


async def test_a_deletion_beside_a_change_of_another_node_is_made(
    tmp_path: Path, bucket: S3Bucket
) -> None:
    async with Database.open(StoreConfig(), tmp_path) as database:
        one, two = [await memory_of(tmp_path / name, bucket, database) for name in ("1", "2")]
        await run_sync(partial(one.update, ANN, lambda _: TEA))

        def change(document: MemoryDocument) -> MemoryDocument:
            if document.facts:
                two.delete(ANN)  # both nodes change the document at once
            return with_fact(document, fact=MemoryFact(id="f2", content="likes cake"))

        after = await run_sync(partial(one.update, ANN, change))
        assert [fact.id for fact in after.facts] == ["f2"]
        assert await run_sync(two.read, ANN) == after
