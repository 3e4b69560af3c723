"""Files in a bucket: one node gets the files that another one stored, whatever the agent does to its folder."""

import os
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from store.database import Database
from store.errors import FilesUnavailable
from store.files.bucket import CHUNK_BYTES, Bucket
from store.files.bucket_mirror import BucketMirror
from store.files.config import StorageConfig
from store.files.mirror import FileArea, FileMirror, SharedFolder, thread_area
from store.files.opening import open_mirror
from tests.fakes.s3 import S3Bucket

AREA = thread_area("t1")


class MirroredNode:
    """A node: its copy of a thread's folder, and its mirror."""

    def __init__(self, home: Path, bucket: S3Bucket, database: Database) -> None:
        self._home = home
        self._config = StorageConfig(**bucket.storage())
        self._database = database
        self.folder = home / "files" / AREA.folder
        self.mirror: FileMirror = SharedFolder()

    async def start(self) -> None:
        """Continue with the files on disk, as a new process would."""
        self.mirror = await open_mirror(self._config, self._home, self._database)

    def write(self, path: str, text: str) -> Path:
        """Write a file as a tool does, and create its folder."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    async def store(self) -> None:
        """Store the changes."""
        await self.mirror.store(AREA)

    async def fetch(self) -> dict[str, str]:
        """Update the folder and return it."""
        await self.mirror.fetch(AREA)
        return self.content()

    def content(self) -> dict[str, str]:
        """Return everything in the folder: the text of files, `/` for folders, `-> target` for links."""
        return {str(p.relative_to(self.folder)): _shown(p) for p in self.folder.rglob("*")}


def _shown(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return "/" if path.is_dir() else path.read_text()


@pytest.fixture
async def nodes(
    tmp_path: Path, bucket: S3Bucket, database: Database
) -> tuple[MirroredNode, MirroredNode]:
    """Return two nodes that share a bucket and a database. Both know that the thread has no files yet."""
    one = MirroredNode(tmp_path / "one", bucket, database)
    two = MirroredNode(tmp_path / "two", bucket, database)
    for node in (one, two):
        await node.start()
        await node.fetch()
    return one, two


Nodes = tuple[MirroredNode, MirroredNode]


async def test_a_file_that_one_node_stores_exists_at_the_other(nodes: Nodes) -> None:
    one, two = nodes
    file = one.write("user-data/outputs/a.txt", "first")
    file.chmod(0o750)
    os.utime(file, ns=(1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
    one.write("user-data/workspace/empty.txt", "")
    (one.folder / "user-data/uploads").mkdir()
    (one.folder / "user-data/link").symlink_to("outputs/a.txt")
    odd = os.fsdecode(b"user-data/odd \xff \n%41")
    one.write(odd, "odd")
    await one.store()
    assert await two.fetch() == one.content()
    status = (two.folder / "user-data/outputs/a.txt").stat()
    assert stat.S_IMODE(status.st_mode) == 0o750
    assert status.st_mtime_ns == 1_700_000_000_123_456_789
    assert (two.folder / odd).read_text() == "odd"


async def test_changes_renames_and_deletions_go_both_ways(nodes: Nodes, bucket: S3Bucket) -> None:
    one, two = nodes
    one.write("a/b/c.txt", "one")
    one.write("keep.txt", "keep")
    await one.store()
    await two.fetch()
    (two.folder / "a/b/c.txt").rename(two.folder / "moved.txt")
    (two.folder / "a/b").rmdir()
    (two.folder / "a").rmdir()
    two.write("keep.txt", "kept")  # the same size as before
    await two.store()
    assert await one.fetch() == {"keep.txt": "kept", "moved.txt": "one"}
    (one.folder / "moved.txt").unlink()
    one.write("moved.txt/inner.txt", "a folder now")
    await one.store()
    assert await two.fetch() == one.content()
    # Objects that no row names anymore are deleted.
    assert len(bucket.objects()) == 2


async def test_unchanged_files_are_not_copied_again(nodes: Nodes, bucket: S3Bucket) -> None:
    one, two = nodes
    one.write("a.txt", "a")
    one.write("b.txt", "b")
    await one.store()
    before = set(bucket.objects())
    await two.fetch()
    number = (two.folder / "a.txt").stat().st_ino
    two.write("b.txt", "changed")
    await two.store()
    assert len(before & set(bucket.objects())) == 1
    await two.start()
    await two.fetch()
    assert (two.folder / "a.txt").stat().st_ino == number


async def test_both_nodes_change_something_at_once(nodes: Nodes) -> None:
    one, two = nodes
    one.write("both.txt", "old")
    await one.store()
    await two.fetch()
    one.write("from-one.txt", "1")
    one.write("both.txt", "of one")
    two.write("from-two.txt", "2")
    two.write("both.txt", "of two")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.store)
        tasks.start_soon(two.store)
    await one.fetch()
    await two.fetch()
    assert one.content() == two.content()
    assert set(one.content()) == {"both.txt", "from-one.txt", "from-two.txt"}
    assert one.content()["both.txt"] in ("of one", "of two")


async def test_a_killed_node_drops_what_it_had_not_stored(nodes: Nodes) -> None:
    one, two = nodes
    one.write("a.txt", "stored")
    await one.store()
    one.write("a.txt", "half a res")
    one.write("b.txt", "never told of")
    await two.fetch()
    two.write("a.txt", "made again")
    await two.store()
    await one.start()
    assert await one.fetch() == {"a.txt": "made again"}


async def test_a_removed_area_is_gone_everywhere(nodes: Nodes, bucket: S3Bucket) -> None:
    one, two = nodes
    one.write("a.txt", "a")
    await one.store()
    await two.fetch()
    await one.mirror.remove(AREA)
    assert await two.fetch() == {}
    assert bucket.objects() == []
    one.write("a.txt", "again")
    await one.store()
    assert await two.fetch() == {"a.txt": "again"}


async def test_large_files_are_sent_in_parts(nodes: Nodes) -> None:
    one, two = nodes
    content = os.urandom(CHUNK_BYTES * 2 + 12345)
    one.write("large.bin", "").write_bytes(content)
    await one.store()
    await two.mirror.fetch(AREA)
    assert (two.folder / "large.bin").read_bytes() == content


async def test_links_that_stand_in_the_way_lead_nowhere(nodes: Nodes, tmp_path: Path) -> None:
    one, two = nodes
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    one.write("folder/a.txt", "a")
    await one.store()
    await two.fetch()
    # The agent at node two replaces the folder with a link, while node one puts something into it.
    (two.folder / "folder/a.txt").unlink()
    (two.folder / "folder").rmdir()
    (two.folder / "folder").symlink_to(outside)
    one.write("folder/b.txt", "b")
    await one.store()
    await two.fetch()
    assert [path.name for path in outside.iterdir()] == ["secret.txt"]
    # Nothing is read through it, either.
    await two.store()
    await one.fetch()
    assert "secret" not in one.content().values()


async def test_pipes_and_what_may_not_be_read_are_left_out(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = nodes
    one.write("a.txt", "a")
    os.mkfifo(one.folder / "pipe")
    (one.folder / ".upload-1234.part").write_text("half an upload")
    await one.store()
    assert await two.fetch() == {"a.txt": "a"}


async def test_a_lost_object_is_reported_and_the_other_files_exist(
    nodes: Nodes, bucket: S3Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = nodes
    one.write("a.txt", "a")
    await one.store()
    [lost] = bucket.objects()
    one.write("b.txt", "b")
    await one.store()
    bucket.delete(lost)
    assert await two.fetch() == {"b.txt": "b"}
    assert "The content of a.txt is lost" in caplog.text


async def test_an_unavailable_bucket_is_reported_and_used_again_later(
    tmp_path: Path, bucket: S3Bucket, database: Database
) -> None:
    away = StorageConfig(**bucket.storage(endpoint="http://127.0.0.1:1"))
    mirror = await open_mirror(away, tmp_path, database)
    with pytest.raises(FilesUnavailable, match="cannot be used"):
        await mirror.check()
    node = MirroredNode(tmp_path, bucket, database)
    await node.start()
    await node.mirror.check()
    assert bucket.objects() == []


class OvertakenBucket(Bucket):
    """A bucket that another node checks whenever this one reads."""

    another: Bucket

    @override
    def read(self, name: str) -> bytes:
        self.another.check()
        return super().read(name)


def test_nodes_check_the_bucket_side_by_side(bucket: S3Bucket) -> None:
    config = StorageConfig(**bucket.storage())
    one = OvertakenBucket(config)
    one.another = Bucket(config)
    one.check()
    assert bucket.objects() == []


@asynccontextmanager
async def canceled() -> AsyncIterator[None]:
    """Cancel the block at its first wait."""
    with anyio.CancelScope() as scope, suppress(TimeoutError):
        scope.cancel()
        yield


async def test_a_canceled_copy_is_done_later(nodes: Nodes) -> None:
    one, two = nodes
    one.write("a.txt", "a")
    async with canceled():
        await one.store()
    await one.store()
    async with canceled():
        await two.fetch()
    assert await two.fetch() == {"a.txt": "a"}


async def test_only_named_parts_of_a_shared_folder_are_copied(nodes: Nodes) -> None:
    one, two = nodes
    area = FileArea(name="some", folder=".", only=frozenset({"skills", "USER.md"}))
    await one.mirror.fetch(area)
    base = one.folder.parents[1]
    (base / "skills" / "custom").mkdir(parents=True)
    (base / "skills" / "custom" / "SKILL.md").write_text("skill")
    (base / "USER.md").write_text("me")
    (base / "other.txt").write_text("own")
    await one.mirror.store(area)
    await two.mirror.fetch(area)
    found = two.folder.parents[1]
    assert (found / "skills/custom/SKILL.md").read_text() == "skill"
    assert (found / "USER.md").read_text() == "me"
    assert not (found / "other.txt").exists()


async def test_unused_objects_of_a_killed_node_are_deleted(nodes: Nodes, bucket: S3Bucket) -> None:
    one, two = nodes
    one.write("a.txt", "a")
    await one.store()
    kept = bucket.objects()
    for name in ("threads/t1/0f", "threads/gone/0f", "keys/credentials.key"):
        bucket.put(f"parley/{name}", b"left")
    assert isinstance(two.mirror, BucketMirror)
    assert await two.mirror.delete_unnamed(datetime.now(UTC) - timedelta(hours=1)) == 0
    assert await two.mirror.delete_unnamed(datetime.now(UTC) + timedelta(hours=1)) == 2
    assert sorted(bucket.objects()) == sorted([*kept, "parley/keys/credentials.key"])


async def test_a_copy_that_was_not_used_for_long_is_dropped_and_comes_back(nodes: Nodes) -> None:
    one, _ = nodes
    one.write("a.txt", "a")
    await one.store()
    assert isinstance(one.mirror, BucketMirror)
    assert await one.mirror.drop_unused(time.time() - 60) == 0
    assert await one.mirror.drop_unused(time.time() + 60) == 1
    assert not one.folder.exists()
    assert await one.fetch() == {"a.txt": "a"}
