"""Uploads stay within a conversation's disk quota, and leave free disk space for the service."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from agent.errors import UploadTooLarge
from agent.sandbox.disk import DiskLimits, DiskMeter
from agent.thread_storage import ThreadStorage
from agent.uploads.batch import NO_ROOM, IncomingFile
from agent.uploads.service import UploadService
from tests.agent.agent_harness import open_agent
from tests.agent.incoming_files import file_from_bytes
from tests.agent.plain_agent import THREAD
from tests.fakes.scripted import ScriptedChatModel

PART = bytes(range(256)) * 2400  # 600 KiB
OTHER = "22222222-2222-4222-8222-222222222222"


def service(home: Path, limits: DiskLimits) -> UploadService:
    folders = ThreadStorage(home, lambda folder: DiskMeter(folder, limits))
    return UploadService(folders, converts=lambda: False)


async def stream(*files: IncomingFile) -> AsyncIterator[IncomingFile]:
    for file in files:
        yield file


async def send(uploads: UploadService, name: str, thread_id: str = THREAD) -> None:
    await uploads.accept(thread_id, stream(file_from_bytes(name, PART)))


def stored(home: Path, thread_id: str = THREAD) -> list[str]:
    root = ThreadStorage(home).folders(thread_id).root
    return sorted(path.name for path in root.rglob("*") if path.is_file())


async def test_files_beyond_the_quota_of_a_conversation_are_refused(tmp_path: Path) -> None:
    uploads = service(tmp_path, DiskLimits(quota_mb=1, free_mb=0))
    await send(uploads, "a.bin")
    with pytest.raises(UploadTooLarge, match="no room"):
        await send(uploads, "b.bin")
    assert stored(tmp_path) == ["a.bin"]
    await send(uploads, "a.bin", OTHER)
    await uploads.delete(THREAD, "a.bin")
    await send(uploads, "b.bin")
    assert stored(tmp_path) == ["b.bin"]


async def test_the_sum_of_requests_at_the_same_time_counts(tmp_path: Path) -> None:
    uploads = service(tmp_path, DiskLimits(quota_mb=1, free_mb=0))
    arrived, may_end = anyio.Event(), anyio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        yield PART
        arrived.set()
        await may_end.wait()

    first = IncomingFile(filename="a.bin", chunks=chunks())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(uploads.accept, THREAD, stream(first))
        await arrived.wait()
        with pytest.raises(UploadTooLarge):
            await send(uploads, "b.bin")
        may_end.set()
    assert stored(tmp_path) == ["a.bin"]
    assert uploads._meters == {}


async def test_nothing_is_stored_on_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    uploads = service(tmp_path, DiskLimits(free_mb=1_000_000_000))
    with pytest.raises(UploadTooLarge, match="disk is nearly full"):
        await send(uploads, "a.bin")
    assert stored(tmp_path) == []


async def test_the_limits_are_those_of_the_sandbox(tmp_path: Path) -> None:
    config = {"sandbox": {"disk_quota_mb": 1}}
    async with open_agent(tmp_path, ScriptedChatModel.playing(), config) as harness:
        uploads = harness.services.uploads
        await send(uploads, "a.bin")
        with pytest.raises(UploadTooLarge) as refused:
            await send(uploads, "b.bin")
    assert refused.value.user_message == NO_ROOM
