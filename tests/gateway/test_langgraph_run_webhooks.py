"""Webhook keys and thread files, which the running service provides to the runtime."""

from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.abc
import pytest

from agent.network.url_guard import UrlGuard
from gateway.config import WEBHOOK_KEY_FILE, load_config
from gateway.langgraph.run_webhooks import build_webhooks
from gateway.runtime.errors import InvalidRequest
from gateway.runtime.expiry import expire_threads
from gateway.runtime.webhooks import MAX_ATTEMPTS, RunWebhooks, webhook_key
from tests.eventually import eventually
from tests.gateway.composed import composed
from tests.gateway.test_langgraph_features import Receiver
from tests.ports import free_port


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / WEBHOOK_KEY_FILE
    key = webhook_key(file)
    assert len(key) > 30
    assert file.stat().st_mode & 0o777 == 0o600
    assert webhook_key(file) == key


async def test_private_places_are_named_in_the_configuration(tmp_path: Path) -> None:
    written = tmp_path / "config.yaml"
    written.write_text("gateway: {webhook_hosts: [10.1.0.0/16]}\n")
    webhooks = build_webhooks(load_config(str(written), {"PARLEY_HOME": str(tmp_path)}))
    await webhooks.validate_url("http://10.1.2.3/hook")
    for host in ("10.2.0.1", "127.0.0.1", "169.254.169.254", "[::1]", "[::ffff:10.2.0.1]"):
        with pytest.raises(InvalidRequest, match="webhook: "):
            await webhooks.validate_url(f"http://{host}/hook")
    await webhooks.close()


async def test_a_receiver_that_never_ends_its_response_is_given_up() -> None:
    connections = 0

    async def respond(client: anyio.abc.SocketStream) -> None:
        nonlocal connections
        connections += 1
        async with client:
            await client.send(b"HTTP/1.1 200 OK\r\n")
            await anyio.sleep_forever()

    guard = UrlGuard(allow_private_hosts=["127.0.0.1"])
    webhooks = RunWebhooks(guard, lambda: b"k" * 32, pause_s=0.01, attempt_s=0.5)
    port = free_port()
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, respond)
        with anyio.fail_after(20):
            assert not await webhooks.send(f"http://127.0.0.1:{port}/hook", "{}")
        tasks.cancel_scope.cancel()
    assert 1 <= connections <= MAX_ATTEMPTS
    await webhooks.close()


async def test_deleting_and_expiring_take_the_files_along(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        langgraph = service.app.state.services
        folders = service.app.state.services.agent_services.folders
        runs = langgraph.runs
        threads = ["0b63b403-e0ed-40b2-9589-e740f38a62a3", "4b63b403-e0ed-40b2-9589-e740f38a62a4"]
        for thread in threads:
            made = await service.client.post(
                "/api/threads", json={"thread_id": thread, "ttl": {"ttl": 1}}
            )
            assert made.status_code == 200
            folders.folders(thread).create()
        pruned = await service.client.post("/api/threads/prune", json={"thread_ids": threads[:1]})
        assert pruned.json() == {"pruned_count": 1}
        assert folders.delete(threads[0]) is False
        now = runs.now
        runs.now = lambda: now() + 61
        assert await expire_threads(runs, service.services.delete_thread_files) == 1
        assert folders.delete(threads[1]) is False


async def test_the_agent_itself_is_drawn_described_and_followed(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        drawn = (await service.client.get("/api/assistants/lead_agent/graph")).json()
        assert {"model", "tools"} <= {node["id"] for node in drawn["nodes"]}
        described = (await service.client.get("/api/assistants/lead_agent/schemas")).json()
        assert {"messages", "title", "artifacts"} <= described["state_schema"]["properties"].keys()
        info = (await service.client.get("/api/langgraph/info")).json()
        assert info["host"] == {"kind": "parley"}
        body = {
            "assistant_id": "lead_agent",
            "input": {"messages": [{"role": "user", "content": "hello"}]},
            "stream_mode": ["events", "messages-tuple"],
        }
        streamed = await service.client.post("/api/runs/stream", json=body)
        assert "on_chat_model_stream" in streamed.text
        assert '"status":"success"' in streamed.text


@pytest.mark.parametrize("make_unusable", [Path.mkdir, Path.touch], ids=["folder", "empty"])
async def test_a_webhook_waits_while_its_key_cannot_be_used(
    tmp_path: Path, make_unusable: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The service keeps running, and does not sign with a publicly known key."""
    key = tmp_path / "home" / WEBHOOK_KEY_FILE
    receiver = Receiver([b"200 OK"])
    text = "gateway: {webhook_hosts: [127.0.0.0/8]}\n"
    async with receiver.running():
        async with composed(tmp_path, text) as service:
            make_unusable(key)
            body = {"assistant_id": "lead_agent", "input": {"messages": "hi"}}
            ended = await service.client.post(
                "/api/runs/wait", json={**body, "webhook": receiver.url}, timeout=60
            )
            assert ended.status_code == 200
            await eventually(lambda: "its webhook waits" in caplog.text)
        async with composed(tmp_path, text) as service:
            rows = await service.services.database.read("SELECT run_id FROM run_webhook")
            assert len(rows) == 1
        key.rmdir() if key.is_dir() else key.unlink()
        async with composed(tmp_path, text):
            await receiver.wait_for(1)
    assert len(receiver.taken) == 1
