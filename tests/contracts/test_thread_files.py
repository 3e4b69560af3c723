"""The guarantees about files that conversations need, with threads in this process or on another gateway."""

import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx
import pytest

from agent.paths import OUTPUTS
from agent.services import AgentServices
from agent.uploads.batch import UploadRequestLimits
from bus.errors import DeliveryError
from bus.runs.port import ThreadFiles
from bus.runs.remote_files import RemoteFiles
from gateway.app import build_app
from gateway.embedded_files import EmbeddedFiles
from gateway.services import Services
from tests.gateway.langgraph_server import listening, serving

THREAD = "t1"
LARGE_BYTES = 60_000_000
MAX_HELD_BYTES = 8_000_000
"""Much less than a large file, and more than all chunks in transit."""


@dataclass(frozen=True)
class Threads:
    """The files of threads, and the services that keep them."""

    files: ThreadFiles
    services: AgentServices

    def write_output(self, name: str, content: bytes) -> None:
        """Write a file as the agent does."""
        folder = self.services.folders.folders(THREAD).outputs
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

    async def read(self, path: str) -> bytes | None:
        async with self.files.open(THREAD, path) as file:
            if file is None:
                return None
            return b"".join([chunk async for chunk in file.chunks])


At = Callable[[], AbstractAsyncContextManager[Threads]]


@asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[Threads]:
    async with serving(folder) as api:
        services: Services = api.app.state.services
        yield Threads(EmbeddedFiles(services.agent_services), services.agent_services)


@asynccontextmanager
async def another_gateway(folder: Path) -> AsyncIterator[Threads]:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(serving(folder))
        services: Services = api.app.state.services
        url = await stack.enter_async_context(listening(build_app(services)))
        client = httpx.AsyncClient(base_url=f"{url}/api", trust_env=False)
        gateway = await stack.enter_async_context(client)
        yield Threads(RemoteFiles(gateway), services.agent_services)


@pytest.fixture(params=[embedded, another_gateway], ids=lambda opening: opening.__name__)
def at(request: pytest.FixtureRequest, tmp_path: Path) -> At:
    home = tmp_path / "home"
    home.mkdir()
    return lambda: request.param(home)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "source"
    file.write_bytes(b"one two")
    return file


async def test_a_file_is_put_and_read_again(at: At, source: Path) -> None:
    name = "Bericht „Q3“ 50% #1?.txt"
    async with at() as threads:
        kept = await threads.files.put(THREAD, name, source)
        path = f"/mnt/user-data/uploads/{name}"
        assert kept == {"filename": name, "size": 7, "path": path, "status": "uploaded"}
        assert await threads.read(path) == b"one two"
        assert await threads.read(path.lstrip("/")) == b"one two"


async def test_files_of_the_agent_have_their_type(at: At) -> None:
    async with at() as threads:
        threads.write_output("a.html", b"<p>")
        async with threads.files.open(THREAD, f"{OUTPUTS}/a.html") as file:
            assert file is not None
            assert file.mime == "text/html"
        threads.write_output("empty.txt", b"")
        assert await threads.read(f"{OUTPUTS}/empty.txt") == b""


@pytest.mark.parametrize(
    "path", ["/mnt/user-data/outputs/gone.txt", "/mnt/user-data", "/etc/passwd"]
)
async def test_a_file_that_is_not_there_or_may_not_be_read(at: At, path: str) -> None:
    async with at() as threads:
        assert await threads.read(path) is None


async def test_a_refused_file_is_refused_for_good(at: At, source: Path) -> None:
    async with at() as threads:
        threads.services.uploads.limits = UploadRequestLimits(max_file_size=3)
        with pytest.raises(DeliveryError, match="A file can have at most") as caught:
            await threads.files.put(THREAD, "a.txt", source)
        assert not caught.value.retryable
        with pytest.raises(DeliveryError) as caught:
            await threads.files.put("a b", "a.txt", source)
        assert not caught.value.retryable


async def test_a_disk_that_takes_nothing_may_take_it_later(at: At, source: Path) -> None:
    async with at() as threads:
        threads.services.folders.folders(THREAD).user_data.parent.parent.mkdir(parents=True)
        threads.services.folders.folders(THREAD).user_data.parent.write_bytes(b"in the way")
        with pytest.raises(DeliveryError) as caught:
            await threads.files.put(THREAD, "a.txt", source)
        assert caught.value.retryable


async def test_a_gateway_that_cannot_be_reached_may_be_reached_later(source: Path) -> None:
    async with httpx.AsyncClient(base_url="http://127.0.0.1:9/api") as client:
        files = RemoteFiles(client)
        with pytest.raises(DeliveryError) as caught:
            await files.put(THREAD, "a.txt", source)
        assert caught.value.retryable
        with pytest.raises(DeliveryError) as caught:
            async with files.open(THREAD, "/mnt/user-data/outputs/a"):
                pass
        assert caught.value.retryable


async def test_no_large_file_is_ever_in_memory(at: At, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(LARGE_BYTES)
    async with at() as threads:
        threads.services.uploads.limits = UploadRequestLimits(
            max_file_size=LARGE_BYTES, max_total_size=LARGE_BYTES
        )
        tracemalloc.start()
        try:
            kept = await threads.files.put(THREAD, "large.bin", large)
            assert kept["size"] == LARGE_BYTES
            async with threads.files.open(THREAD, str(kept["path"])) as found:
                assert found is not None
                read = 0
                async for chunk in found.chunks:
                    read += len(chunk)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert read == LARGE_BYTES
        assert peak < MAX_HELD_BYTES


async def test_a_reader_that_stops_leaves_nothing_open(at: At) -> None:
    async with at() as threads:
        threads.write_output("a.bin", bytes(1_000_000))
        async with threads.files.open(THREAD, f"{OUTPUTS}/a.bin") as file:
            assert file is not None
            assert await anext(file.chunks)
        with anyio.move_on_after(0):
            async with threads.files.open(THREAD, f"{OUTPUTS}/a.bin"):
                await anyio.sleep_forever()
