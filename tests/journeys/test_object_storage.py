"""Files in a bucket: a node dies during a transfer, the bucket is unreachable for a while, or settings are wrong."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.fakes.s3 import S3Bucket, S3Proxy
from tests.journeys.nodes import two_nodes
from tests.journeys.service import Service, serving, with_model
from tests.journeys.test_shared_files import use_files
from tests.people.platforms import PlatformServers

FAILED = "I could not finish this answer"


def talk_or_use_files(request: ModelRequest) -> ModelReply:
    """Answer a greeting. Otherwise, do the same as `use_files`."""
    if request.messages[-1]["role"] != "tool" and "hello" in request.last_user_text:
        return ModelReply(text="Good day.")
    return use_files(request)


async def test_uploads_of_a_killed_node_are_repeated_by_another(
    tmp_path: Path, database: dict[str, Any], bucket: S3Bucket
) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=use_files) as model:
        with S3Proxy(bucket.endpoint) as one, S3Proxy(bucket.endpoint) as two:
            config = {
                **with_model(model.base_url), **database, "channels": platforms.channels,
            }  # fmt: skip
            proxies = (one, two)
            first, second = (
                {**config, "storage": bucket.storage(endpoint=proxy.url)} for proxy in proxies
            )
            users = platforms.private_users(1)
            async with two_nodes(tmp_path, first, second) as nodes:
                for proxy in proxies:
                    proxy.hold()
                for user in users:
                    await user.send(f"notes of {user.name}")
                await eventually(lambda: one.held or two.held)
                killed = 0 if one.held else 1
                await nodes[killed].kill()
                proxies[1 - killed].release()
                for user in users:
                    await user.wait_for_message("Done: ")
                    await user.send("show it")
                    await user.wait_for_message("Done: ", f"notes of {user.name}")
        assert platforms.violations == []


async def checks(service: Service) -> dict[str, Any]:
    """Return the readiness checks of a service."""
    async with service.client() as client:
        answer = await client.get("/health/ready")
        assert answer.status_code == 200
        return dict(answer.json()["checks"])


async def test_an_unavailable_bucket_fails_only_work_that_needs_it(
    tmp_path: Path, bucket: S3Bucket
) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=talk_or_use_files) as model:
        [user] = [one for one in platforms.private_users(1) if one.channel == "telegram"]
        with S3Proxy(bucket.endpoint) as proxy:
            config = {
                **with_model(model.base_url),
                "channels": {"telegram": platforms.channels["telegram"]},
                "storage": {**bucket.storage(endpoint=proxy.url), "retry_s": 0.5},
            }
            async with serving(tmp_path, config, "telegram") as service:
                await user.send("my notes")
                await user.wait_for_message("Done: ")
                proxy.refuse()
                await user.send("hello")
                await user.wait_for_message("Good day.")
                await user.send("show it")  # in this node's copy
                await user.wait_for_message("Done: ", "my notes")
                await user.send("other notes")
                await user.wait_for_message(FAILED)
                async with service.client() as client:
                    [thread] = (await client.post("/api/threads/search", json={})).json()
                    path = f"/api/threads/{thread['thread_id']}/uploads"
                    sent = await client.post(path, files={"files": ("a.txt", b"a")})
                    assert sent.status_code == 507
                await eventually(
                    lambda: checks(service), lambda told: told["files"]["state"] == "degraded"
                )
                proxy.release()
                await eventually(
                    lambda: checks(service), lambda told: told["files"]["state"] == "ok"
                )
                await user.send("newest notes")
                await eventually(lambda: sum("Done: " in one for one in user.bot_messages()) == 3)
                assert await service.stop() == 0
            assert "Traceback" not in service.log.read_text()
        assert platforms.violations == []


@pytest.fixture
def strict_bucket(bucket: S3Bucket) -> Iterator[S3Bucket]:
    """Yield a bucket of the server. During the test, the server checks signatures and keys."""
    reset = f"{bucket.endpoint}/moto-api/reset-auth"
    httpx.post(reset, content=b"0").raise_for_status()
    yield bucket
    httpx.post(reset, content=b"inf").raise_for_status()


async def refused(tmp_path: Path, storage: dict[str, Any]) -> str:
    """Return the one line with which `serve` and `check` refuse a configuration."""
    service = Service(tmp_path, {"storage": storage})
    code, _, errors = await service.command("serve", "--no-chat")
    assert (code, errors.count("\n")) == (1, 1)
    checked, _, told = await service.command("check")
    assert checked == 1
    line = errors.removeprefix("parley: ").strip()
    assert line in told
    assert "test-secret-key" not in errors + told
    return line


async def test_wrong_credentials_are_reported(tmp_path: Path, strict_bucket: S3Bucket) -> None:
    assert await refused(tmp_path, strict_bucket.storage()) == (
        f"storage.url: {strict_bucket.endpoint} does not accept the credentials: check the access key and its secret"
    )


async def test_a_missing_bucket_is_reported(tmp_path: Path, bucket: S3Bucket) -> None:
    storage = {**bucket.storage(), "url": "s3://absent/parley"}
    expected = f"storage.url: there is no bucket absent at {bucket.endpoint}"
    assert await refused(tmp_path, storage) == expected


async def test_an_unresponsive_storage_service_is_reported(
    tmp_path: Path, bucket: S3Bucket
) -> None:
    storage = bucket.storage(endpoint="http://127.0.0.1:1")
    line = await refused(tmp_path, storage)
    assert line.startswith(
        f"storage.url: the bucket {bucket.name} at http://127.0.0.1:1 cannot be used ("
    )


async def test_an_installation_moves_to_a_bucket(tmp_path: Path, bucket: S3Bucket) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=use_files) as model:
        [user] = [one for one in platforms.private_users(1) if one.channel == "telegram"]
        channels = {"telegram": platforms.channels["telegram"]}
        config = {**with_model(model.base_url), "channels": channels}
        async with serving(tmp_path, config, "telegram") as service:
            await user.send("my notes")
            await user.wait_for_message("Done: ")
            token = (service.home / "admin_token").read_text()
            assert await service.stop() == 0
        moved = Service(tmp_path, {**config, "storage": bucket.storage()})
        code, shown, errors = await moved.command("migrate", "--files", str(moved.home))
        assert (code, errors) == (0, "")
        assert shown.startswith("Stored the files of 1 threads")
        async with serving(tmp_path, {**config, "storage": bucket.storage()}, "telegram") as after:
            assert (after.files / "admin_token").read_text() == token
            await user.send("show it")
            await user.wait_for_message("Done: ", "my notes")
            assert await after.stop() == 0
        (moved.home / "webhook_key").write_text("another key\n")
        code, _, errors = await moved.command("migrate", "--files", str(moved.home))
        assert (code, errors.count("\n")) == (1, 1)
        assert "the bucket has another webhook_key already" in errors


async def test_a_backup_is_restored_with_what_is_in_the_bucket(
    tmp_path: Path, bucket: S3Bucket
) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=use_files) as model:
        [user] = [one for one in platforms.private_users(1) if one.channel == "telegram"]
        channels = {"telegram": platforms.channels["telegram"]}
        config = {**with_model(model.base_url), "channels": channels, "storage": bucket.storage()}
        async with serving(tmp_path, config, "telegram") as service:
            await user.send("my notes")
            await user.wait_for_message("Done: ")
            code, shown, errors = await service.command("backup", str(tmp_path / "b.tar.gz"))
            assert (code, errors) == (0, "")
            assert f"Not included: the files and keys in s3://{bucket.name}/parley." in shown
            assert await service.stop() == 0
        (tmp_path / "new").mkdir()
        fresh = Service(tmp_path / "new", config)
        code, _, errors = await fresh.command("restore", str(tmp_path / "b.tar.gz"))
        assert (code, errors) == (0, "")
        assert not fresh.files.exists()
        await fresh.start()
        try:
            await user.send("show it")
            await user.wait_for_message("Done: ", "my notes")
        finally:
            await fresh.kill()
