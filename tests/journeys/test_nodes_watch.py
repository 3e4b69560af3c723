"""Two nodes on one PostgreSQL database: a client that watches a thread at one sees its run when the other is lost."""

import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from websockets.asyncio.client import connect

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.gateway.test_langgraph_protocol import EVERYTHING
from tests.journeys.service import Service
from tests.journeys.test_nodes_runs import AGENT, LONG, client, said, two_services

Json = dict[str, Any]


async def freeze(service: Service) -> None:
    """Freeze a node with SIGSTOP."""
    service.send(signal.SIGSTOP)


class Watcher:
    """The events that a client of the newer protocol gets on one connection, in order."""

    def __init__(self) -> None:
        self.frames: list[Json] = []

    async def read_events(self, service: Service, thread: str) -> None:
        """Read an event stream."""
        path = f"/threads/{thread}/stream/events"
        async with (
            client(service) as api,
            api.http.client.stream("POST", path, json={"channels": EVERYTHING}) as response,
        ):
            assert response.status_code == 200
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    self.frames.append(orjson.loads(line.removeprefix("data: ")))

    async def read_socket(self, service: Service, thread: str) -> None:
        """Subscribe over a WebSocket."""
        url = f"{service.url.replace('http', 'ws', 1)}/api/threads/{thread}/stream/events"
        token = (service.files / "admin_token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        subscribe = {
            "id": 1,
            "method": "subscription.subscribe",
            "params": {"channels": EVERYTHING},
        }
        async with connect(url, additional_headers=headers) as socket:
            await socket.send(orjson.dumps(subscribe).decode())
            assert orjson.loads(await socket.recv())["type"] == "success"
            async for frame in socket:
                self.frames.append(orjson.loads(frame))

    def has_words(self) -> bool:
        return any("delta" in frame["params"]["data"] for frame in self.of_method("messages"))

    def of_method(self, method: str) -> list[Json]:
        return [frame for frame in self.frames if frame.get("method") == method]

    def lifecycle(self) -> list[str]:
        """Return all events of the run."""
        told = [frame["params"] for frame in self.of_method("lifecycle")]
        return [one["data"]["event"] for one in told if not one["namespace"]]

    def check(self, run_id: str) -> None:
        """Check for both attempts with a gap between them, no repeated event, and one end."""
        events = [frame for frame in self.frames if frame["type"] == "event"]
        numbers = [event["seq"] for event in events]
        assert numbers == sorted(set(numbers))
        names = [event["event_id"] for event in events]
        assert len(set(names)) == len(names)
        assert {name.split(":")[0] for name in names} == {run_id}
        [gap] = [at for at, frame in enumerate(self.frames) if frame["type"] == "error"]
        assert self.frames[gap]["error"] == "resume_gap"
        attempts = [int(name.split(":")[1].split(".")[0]) // 1_000_000_000 for name in names]
        assert attempts == sorted(attempts)
        assert attempts[gap - 1 : gap + 1] == [0, 1]
        assert self.lifecycle() == ["running", "running", "completed"]
        messages = self.of_method("values")[-1]["params"]["data"]["messages"]
        assert [message["content"] for message in messages] == ["hi", LONG]


@pytest.mark.parametrize(
    "lose", [Service.kill, Service.stop, freeze], ids=["killed", "stopped", "frozen"]
)
async def test_watchers_at_another_node_see_the_run_continue(
    tmp_path: Path, database: dict[str, Any], lose: Callable[[Service], Awaitable[object]]
) -> None:
    async with (
        FakeModelServer() as model,
        two_services(tmp_path, database, model) as (one, two),
        client(one) as a,
        client(two) as b,
    ):
        model.reply(ModelReply(text="never to be finished", hang_after=2), ModelReply(text=LONG))
        thread = (await a.threads.create())["thread_id"]
        start = {"assistant_id": AGENT, "input": said("hi")}
        run_id = (
            await a.http.post(
                f"/threads/{thread}/commands",
                json={"id": 1, "method": "run.start", "params": start},
            )
        )["result"]["run_id"]
        stream, socket = Watcher(), Watcher()
        with anyio.fail_after(120):
            async with (
                b.threads.stream(thread, assistant_id=AGENT) as of_sdk,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(stream.read_events, two, thread)
                tasks.start_soon(socket.read_socket, two, thread)
                await eventually(lambda: stream.has_words() and socket.has_words(), within_s=60)
                await lose(one)
                for watcher in (stream, socket):
                    await eventually(
                        watcher.lifecycle, lambda told: told[-1:] == ["completed"], within_s=60
                    )
                    watcher.check(run_id)
                output: Any = await of_sdk.output
                assert output["messages"][-1]["content"] == LONG
                tasks.cancel_scope.cancel()
