"""`storage.url`: after a failover, the other process sees the killed one's files, memory, skills and agents."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.fakes.s3 import S3Bucket
from tests.journeys.service import Service, serving, with_model
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")
OUTPUT = "/mnt/user-data/outputs/notes.txt"
AGENT = {"name": "reviewer", "soul": "You review.", "description": "reviews"}


def use_files(request: ModelRequest) -> ModelReply:
    """Write a person's message into a file. Read it if they say "show it"."""
    last, said = request.messages[-1], request.last_user_text
    if last["role"] == "tool":
        return ModelReply(text=f"Done: {last['content']}")
    if "show it" in said:
        args = {"description": "read", "path": OUTPUT}
        return ModelReply(calls=(ToolCall("read_file", args, id="r1"),))
    args = {"description": "write", "path": OUTPUT, "content": said}
    return ModelReply(calls=(ToolCall("write_file", args, id="w1"),))


async def described(service: Service) -> dict[str, Any]:
    """Return the REST API's responses about files: uploads and outputs of all threads, agents, skills."""
    async with service.client() as client:
        found = (await client.post("/api/threads/search", json={"limit": 100})).json()
        threads = sorted(thread["thread_id"] for thread in found)
        outputs = {}
        for thread in threads:
            output = await client.get(f"/api/threads/{thread}/artifacts{OUTPUT}")
            uploads = await client.get(f"/api/threads/{thread}/uploads/list")
            outputs[thread] = (output.status_code, output.text, uploads.json())
        agents = (await client.get("/api/agents/reviewer")).json()
        return {"files": outputs, "agent": agents}


@pytest.fixture(params=["folder", "bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Return a `storage` section: a folder that both nodes can access, or a bucket."""
    if request.param == "bucket":
        bucket: S3Bucket = request.getfixturevalue("bucket")
        return bucket.storage()
    (tmp_path / "shared").mkdir()
    return {"url": (tmp_path / "shared").as_uri()}


async def test_the_process_that_takes_over_has_the_files(
    tmp_path: Path, database: dict[str, Any], storage: dict[str, Any]
) -> None:
    await anyio.Path(tmp_path / "second").mkdir()
    async with PlatformServers() as platforms, FakeModelServer(answer=use_files) as model:
        config = {
            **with_model(model.base_url),
            **database,
            "channels": platforms.channels,
            "agents_api": {"enabled": True},
            "storage": storage,
        }
        users = platforms.private_users(1)
        async with (
            serving(tmp_path, config, *PLATFORMS) as first,
            serving(tmp_path / "second", config, *PLATFORMS) as second,
        ):
            for user in users:
                await user.send(f"notes of {user.name}")
                await user.wait_for_message("Done: ")
            async with first.client() as client:
                assert (await client.post("/api/agents", json=AGENT)).is_success
                found = (await client.post("/api/threads/search", json={"limit": 100})).json()
                for thread in found:
                    sent = await client.post(
                        f"/api/threads/{thread['thread_id']}/uploads",
                        files={"files": ("report.txt", b"uploaded before", "text/plain")},
                    )
                    assert sent.is_success, sent.text
            before = await described(first)
            assert [one[:1] for one in before["files"].values()] == [(200,)] * 3
            await first.kill()
            await second.until_connected(*PLATFORMS)
            assert await described(second) == before
            for user in users:
                await user.send("show it")
                await user.wait_for_message("Done: ", f"notes of {user.name}")
            own = {path.name for path in second.home.iterdir()}
            assert own <= {"parley.lock", "audit.log", "files"}
        assert platforms.violations == []


async def test_an_unmounted_folder_is_reported_and_not_created(tmp_path: Path) -> None:
    service = Service(tmp_path, {"storage": {"url": (tmp_path / "absent").as_uri()}})
    code, _, errors = await service.command("serve", "--no-chat")
    expected = f"parley: storage.url: the folder {tmp_path}/absent does not exist: mount it, or create it\n"
    assert (code, errors) == (1, expected)
    assert not (tmp_path / "absent").exists()
    code, _, errors = await service.command("check")
    assert code != 0
    assert "storage.url: the folder" in errors


async def test_a_folder_that_disappears_stops_the_service_with_one_line(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    await anyio.Path(shared).mkdir()
    async with serving(tmp_path, {"storage": {"url": shared.as_uri()}}, "terminal") as service:
        shared.rename(tmp_path / "elsewhere")
        assert await service.ended(within_s=60) == 1
        text = service.log.read_text()
    expected = f"parley: {shared}: storage.url: the folder is gone: mount it and start again"
    assert text.splitlines()[-1] == expected
    assert "Traceback" not in text


@pytest.mark.parametrize("url", ["s3:bucket", "/mnt/shared", "file://host/mnt", "file:///"])
async def test_a_wrong_url_is_reported(tmp_path: Path, url: str) -> None:
    service = Service(tmp_path, {"storage": {"url": url}})
    code, _, errors = await service.command("serve", "--no-chat")
    assert (code, errors.count("\n")) == (2, 1)
    assert "storage.url: must look like file:///mnt/parley" in errors
