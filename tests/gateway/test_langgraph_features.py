"""Delays, webhooks, batches, LangChain's events, thread streams, and a graph that ignores cancellation."""

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.abc
import orjson
import pytest

from tests.eventually import eventually
from tests.gateway.langgraph_server import WEBHOOK_KEY, ApiServer, serving
from tests.gateway.test_langgraph_runs import HELLO, collect, new_thread, refused


async def first_parts(stream: AsyncIterator[Any], count: int) -> list[Any]:
    parts: list[Any] = []
    with anyio.fail_after(20):
        async for part in stream:
            parts.append(part)
            if len(parts) == count:
                break
    return parts


async def until_status(api: ApiServer, thread: str, run_id: str, status: str) -> None:
    await eventually(lambda: api.sdk.runs.get(thread, run_id), lambda run: run["status"] == status)


async def test_events_are_langchains_and_go_with_other_modes(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        parts = await collect(
            api.sdk.runs.stream(
                None, "agent", input=HELLO, stream_mode=["events", "values", "messages-tuple"]
            )
        )
        names = [part.data["event"] for part in parts if part.event == "events"]
        assert names[0] == "on_chain_start"
        assert names.count("on_chat_model_stream") == 4
        assert names[-1] == "on_chain_end"
        tokens = [
            part.data["data"]["chunk"]["content"]
            for part in parts
            if part.event == "events" and part.data["event"] == "on_chat_model_stream"
        ]
        assert "".join(tokens) == "tok0 tok1 tok2 "
        assert [part.data[0]["content"] for part in parts if part.event == "messages"] == tokens
        values = [part.data for part in parts if part.event == "values"]
        assert values[-1]["messages"][-1]["content"] == "tok0 tok1 tok2 "
        nested = await collect(
            api.sdk.runs.stream(
                None,
                "parent",
                input=HELLO,
                stream_mode=["events", "updates"],
                stream_subgraphs=True,
            )
        )
        assert any(part.event.startswith("updates|child:") for part in nested)
        assert nested[-1].data["status"] == "success"


async def test_a_delayed_run_lets_others_go_first(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        later = await api.sdk.runs.create(thread, "instant", input={"n": 10}, after_seconds=1)
        assert later["status"] == "pending"
        first = await api.sdk.runs.wait(thread, "instant", input={"n": 1})
        assert first["n"] == 2
        with anyio.fail_after(20):
            assert (await api.sdk.runs.join(thread, later["run_id"]))["n"] == 11
        assert (await api.sdk.threads.get(thread))["status"] == "idle"
        never = await api.sdk.runs.create(thread, "instant", input={}, after_seconds=3600)
        with anyio.fail_after(20):
            await api.sdk.runs.cancel(thread, never["run_id"], wait=True)
        assert (await api.sdk.runs.get(thread, never["run_id"]))["status"] == "interrupted"
        for bad in (-1, 10**9):
            with refused(422, "after_seconds"):
                await api.sdk.runs.create(thread, "instant", after_seconds=bad)


async def test_a_delayed_run_is_ended_visibly_by_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(thread, "instant", input={}, after_seconds=3600)
    async with serving(tmp_path) as api:
        assert (await api.sdk.runs.get(thread, run["run_id"]))["status"] == "interrupted"


class Receiver:
    """A web server that accepts one request per connection and responds as configured; "" = no response.

    A request counts only if it was read completely: a service that stops during a delivery may hang up earlier.
    """

    def __init__(self, answers: list[bytes]) -> None:
        self.taken: list[tuple[str, dict[str, str], bytes]] = []
        self.url = ""
        self._answers = answers
        self.more = anyio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Receiver"]:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - not Django's
        self.url = f"http://127.0.0.1:{port}/hook"
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._take)
            yield self
            tasks.cancel_scope.cancel()

    async def _take(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):  # hung up
                await self._answer_request(stream)

    async def _answer_request(self, stream: anyio.abc.SocketStream) -> None:
        raw = b""
        while b"\r\n\r\n" not in raw:
            raw += await stream.receive()
        head, _, body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        while len(body) < int(headers["content-length"]):
            body += await stream.receive()
        answer = self._answers[min(len(self.taken), len(self._answers) - 1)]
        self.taken.append((first, headers, body))
        self.more.set()
        if answer:
            await stream.send(
                b"HTTP/1.1 %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % answer
            )
        else:
            await stream.receive()  # waits until the caller hangs up

    async def wait_for(self, count: int) -> None:
        with anyio.fail_after(20):
            while len(self.taken) < count:
                self.more = anyio.Event()
                await self.more.wait()


async def test_a_webhook_gets_the_end_of_a_run(tmp_path: Path) -> None:
    receiver = Receiver([b"503 Busy", b"200 OK"])
    async with receiver.running(), serving(tmp_path) as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(thread, "instant", input={"n": 1}, webhook=receiver.url)
        await receiver.wait_for(2)
        first, headers, body = receiver.taken[1]
        assert first == "POST /hook HTTP/1.1"
        told = orjson.loads(body)
        assert told["run_id"] == run["run_id"]
        assert (told["status"], told["error"], told["values"]["n"]) == ("success", None, 2)
        assert told["kwargs"]["webhook"] == receiver.url
        assert told["run_started_at"] <= told["run_ended_at"] <= told["webhook_sent_at"]
        stamp, _, given = headers["x-parley-signature"].partition(",v1=")
        signed = stamp.removeprefix("t=").encode() + b"." + body
        assert hmac.compare_digest(given, hmac.new(WEBHOOK_KEY, signed, sha256).hexdigest())
        await api.sdk.runs.wait(
            thread, "boom", input={"n": 1}, webhook=receiver.url, raise_error=False
        )
        await receiver.wait_for(3)
        failed = orjson.loads(receiver.taken[2][2])
        assert (failed["status"], failed["values"]) == ("error", None)
        assert failed["error"]["error"] == "ValueError"


async def test_a_webhook_follows_no_redirect(tmp_path: Path) -> None:
    receiver = Receiver([b"302 Found\r\nLocation: /elsewhere"])
    async with receiver.running(), serving(tmp_path) as api:
        await api.sdk.runs.wait(None, "instant", input={"n": 1}, webhook=receiver.url)
        await receiver.wait_for(1)
        await api.sdk.runs.wait(None, "instant", input={"n": 1})
        assert [first for first, _, _ in receiver.taken] == ["POST /hook HTTP/1.1"]


@pytest.mark.parametrize(
    "url",
    ["http://10.0.0.1/x", "http://[::1]/x", "file:///etc/passwd", "/relative", "http://2130706433/",
     "http://169.254.169.254/latest", "http://u:p@example.org/"],
)  # fmt: skip
async def test_webhooks_to_private_places_are_refused(tmp_path: Path, url: str) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        with refused(422, "webhook"):
            await api.sdk.runs.create(thread, "instant", input={}, webhook=url)
        assert await api.sdk.runs.list(thread) == []


async def test_batches_start_all_or_none(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        one: Any = {"assistant_id": "instant", "input": {"n": 1}}
        runs = await api.sdk.runs.create_batch([one, one])
        assert len({run["run_id"] for run in runs}) == 2
        for run in runs:
            assert (await api.http.get(f"/runs/{run['run_id']}/join")).json()["n"] == 2
        bad: Any = {"assistant_id": "nobody"}
        with refused(422, "nobody"):
            await api.sdk.runs.create_batch([one, bad])
        assert api.runs.active == []


async def test_many_runs_are_canceled_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread, other = await new_thread(api), await new_thread(api)
        first = await api.sdk.runs.create(thread, "slow", input={"n": 1})
        second = await api.sdk.runs.create(thread, "instant", input={"n": 1})
        third = await api.sdk.runs.create(other, "slow", input={"n": 1})
        await api.sdk.runs.cancel_many(thread_id=thread, run_ids=[second["run_id"]])
        await until_status(api, thread, second["run_id"], "interrupted")
        await api.sdk.runs.cancel_many(status="all")
        await until_status(api, thread, first["run_id"], "interrupted")
        await until_status(api, other, third["run_id"], "interrupted")
        with refused(404):
            await api.sdk.runs.cancel_many(status="running")


async def test_runs_are_listed_by_status_and_field(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        await api.sdk.runs.wait(thread, "instant", input={"n": 1})
        await api.sdk.runs.wait(thread, "boom", input={"n": 1}, raise_error=False)
        [failed] = await api.sdk.runs.list(thread, status="error", select=["status", "run_id"])
        assert failed.keys() == {"status", "run_id"}
        with refused(422, "status"):
            await api.sdk.runs.list(thread, status="odd")
        with refused(422, "nothing"):
            await api.sdk.runs.list(thread, select=["nothing"])


async def test_names_in_a_query_can_be_a_json_list(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        path = f"/threads/{thread}/runs"
        await api.sdk.runs.wait(thread, "instant", input={"n": 1})
        answer = await api.http.get(path, params={"select": '["status", "run_id"]'})
        [run] = answer.json()
        assert run.keys() == {"status", "run_id"}
        broken = await api.http.get(path, params={"select": '["status"'})
        assert (broken.status_code, broken.json()["detail"]) == (
            422, "A list in the query is not valid JSON.",
        )  # fmt: skip


async def test_a_thread_is_followed_over_its_runs(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        parts: list[Any] = []

        async def follow(started: anyio.Event) -> None:
            async with api.http.stream("GET", f"/threads/{thread}/stream") as response:
                assert response.status_code == 200
                started.set()
            # The SDK reads the stream from the beginning.
            parts.extend(
                await first_parts(
                    await api.sdk.threads.join_stream(
                        thread, last_event_id="-", stream_mode="run_modes"
                    ),
                    8,
                )
            )

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow, started := anyio.Event())
                await started.wait()
                await api.sdk.runs.wait(thread, "instant", input={"n": 1})
                await api.sdk.runs.wait(thread, "instant", input={"n": 5})
        assert [part.event for part in parts] == ["metadata", "values", "values", "metadata"] * 2
        run_ids = [part.data["run_id"] for part in parts if part.event == "metadata"]
        assert run_ids[0] == run_ids[1] != run_ids[2] == run_ids[3]
        assert parts[3].data["status"] == "run_done"
        after = parts[5].id
        rest = await first_parts(await api.sdk.threads.join_stream(thread, last_event_id=after), 2)
        assert [(part.id, part.data) for part in rest] == [(p.id, p.data) for p in parts[6:]]
        bare = await first_parts(
            await api.sdk.threads.join_stream(thread, last_event_id="-", stream_mode="lifecycle"), 4
        )
        assert [part.event for part in bare] == ["metadata"] * 4
        with refused(404):
            await collect(await api.sdk.threads.join_stream(str(uuid4())))


async def test_following_begins_with_new_messages(tmp_path: Path) -> None:
    async with serving(tmp_path, heartbeat_s=0.02) as api:
        thread = await new_thread(api)
        await api.sdk.runs.wait(thread, "instant", input={"n": 1})
        run = await api.sdk.runs.create(thread, "slow", input={"n": 1}, stream_mode="values")
        await api.graphs.reached.wait()
        async with api.http.stream("GET", f"/threads/{thread}/stream") as response:
            heard = b""
            with anyio.fail_after(20):
                async for chunk in response.aiter_bytes():
                    heard += chunk
                    if b"run_done" in heard:
                        break
                    api.graphs.gate.set()
        assert heard.count(b"event: values") == 2
        assert run["run_id"].encode() in heard


@pytest.mark.parametrize("mode", ["values", "messages-tuple", "events"])
async def test_a_graph_that_ignores_a_cancellation_is_canceled_again(
    tmp_path: Path, mode: str
) -> None:
    """Python 3.11 can lose a cancellation. The run must still end, and keep its results."""
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(
            thread, "stubborn", input={"n": 7}, durability="exit", stream_mode=mode
        )
        await api.graphs.reached.wait()
        with anyio.fail_after(20):
            await api.sdk.runs.cancel(thread, run["run_id"], wait=True)
        assert not api.graphs.gate.is_set()
        assert (await api.sdk.runs.get(thread, run["run_id"]))["status"] == "interrupted"
        assert (await api.sdk.threads.get_state(thread))["values"]["n"] == 7


async def test_the_info_route_lists_the_servers_features(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        assert (await api.http.get("/ok")).json() == {"ok": True}
        info = (await api.http.get("/info")).json()
        assert info["flags"]["assistants"] is True
        assert info["flags"]["crons"] is True
