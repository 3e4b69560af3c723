"""Two `parley serve` processes on one PostgreSQL database, with clients of the LangGraph API at both."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.gateway.test_runs_elsewhere import assert_attempts
from tests.journeys.service import Service, serving, with_model

AGENT = "lead_agent"
LONG = " ".join(f"word{number}" for number in range(60))
MODES: Any = ["messages-tuple", "values"]


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def client(service: Service) -> LangGraphClient:
    token = (service.files / "admin_token").read_text().strip()
    # Not the SDK's own User-Agent, because streams for the SDK close without `end`.
    headers = {"Authorization": f"Bearer {token}", "User-Agent": "tests"}
    return get_client(url=f"{service.url}/api", headers=headers, api_key=None)


@asynccontextmanager
async def two_services(
    folder: Path, database: dict[str, Any], model: FakeModelServer
) -> AsyncIterator[tuple[Service, Service]]:
    """Run two nodes without channels."""
    config = {**with_model(model.base_url), **database}
    await anyio.Path(folder / "second").mkdir()
    async with serving(folder, config) as first, serving(folder / "second", config) as second:
        yield first, second


async def test_a_run_is_followed_and_canceled_at_the_other_node(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    async with (
        FakeModelServer() as model,
        two_services(tmp_path, database, model) as (one, two),
        client(one) as a,
        client(two) as b,
    ):
        model.reply(ModelReply(text=LONG), ModelReply(text="never to be finished", hang_after=2))
        thread = (await a.threads.create())["thread_id"]
        run = await a.runs.create(thread, AGENT, input=said("hi"), stream_mode=MODES)
        with anyio.fail_after(60):
            there = [part async for part in b.runs.join_stream(thread, run["run_id"])]
            here = [part async for part in a.runs.join_stream(thread, run["run_id"])]
            rest = b.runs.join_stream(thread, run["run_id"], last_event_id="5")
            later = [part async for part in rest]
        assert [(part.id, part.event, part.data) for part in there] == [
            (part.id, part.event, part.data) for part in here
        ]
        assert there[-1].data["status"] == "success"
        assert later == there[5:]

        run = await a.runs.create(thread, AGENT, input=said("again"))
        await model.until(lambda m: len(m.requests) >= 2)
        await b.runs.cancel(thread, run["run_id"], wait=True)
        assert (await a.runs.get(thread, run["run_id"]))["status"] == "interrupted"


async def test_a_run_of_a_killed_node_goes_on_at_the_other(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    async with (
        FakeModelServer() as model,
        two_services(tmp_path, database, model) as (one, two),
        client(one) as a,
        client(two) as b,
    ):
        model.reply(
            ModelReply(text="never to be finished", hang_after=2),
            ModelReply(text=LONG),
            ModelReply(text="Hello again"),
        )
        thread = (await a.threads.create())["thread_id"]
        run = await a.runs.create(thread, AGENT, input=said("hi"), stream_mode=MODES)
        second = await a.runs.create(thread, AGENT, input=said("and then"))
        seen: list[Any] = []

        async def follow() -> None:
            async for part in b.runs.join_stream(thread, run["run_id"]):
                seen[len(seen) :] = [part]

        def has_tokens() -> bool:
            return any(part.event == "messages" for part in seen)

        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await eventually(has_tokens, within_s=60)
                await one.kill()
            values: Any = await b.runs.join(thread, second["run_id"])
        assert_attempts(seen, 1, 2)
        spoken = [message["content"] for message in values["messages"]]
        assert spoken == ["hi", LONG, "and then", "Hello again"]
        listed = await b.runs.list(thread)
        assert [(one["run_id"], one["status"]) for one in listed] == [
            (second["run_id"], "success"),
            (run["run_id"], "success"),
        ]


async def test_a_quiet_thread_is_watched_at_the_other_node(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    async with (
        FakeModelServer() as model,
        two_services(tmp_path, database, model) as (one, two),
        client(one) as a,
        client(two) as b,
    ):
        model.reply(ModelReply(text=LONG), ModelReply(text="short"))
        thread = (await a.threads.create())["thread_id"]
        opened = b.http.client.stream("GET", f"/threads/{thread}/stream")
        async with opened as response, anyio.create_task_group() as tasks:
            seen: list[str] = []

            async def watch() -> None:
                async for line in response.aiter_lines():
                    seen[len(seen) :] = [line]

            def ended() -> int:
                return sum('"run_done"' in line for line in seen)

            tasks.start_soon(watch)
            begun = [await a.runs.create(thread, AGENT, input=said("hi"), stream_mode=MODES)]
            await eventually(lambda: ended() == 1, within_s=60)
            begun.append(await b.runs.create(thread, AGENT, input=said("you"), stream_mode=MODES))
            await eventually(lambda: ended() == 2, within_s=60)
            tasks.cancel_scope.cancel()
        ids = [line.removeprefix("id: ").split(":")[0] for line in seen if line.startswith("id: ")]
        assert list(dict.fromkeys(ids)) == [run["run_id"] for run in begun]
        assert seen.count("event: messages") > 5
