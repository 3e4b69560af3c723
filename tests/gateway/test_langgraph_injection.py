"""Sending messages to an active run: `input.inject` of the newer streaming protocol."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import orjson
from langchain_core.messages import HumanMessage

from gateway.runtime.steering import MAX_PENDING_MESSAGES, SteeringQueue
from tests.gateway.langgraph_server import ApiServer, serving
from tests.gateway.test_langgraph_protocol import command

HI = {"role": "human", "content": "by the way", "id": "m1"}


def test_injected_messages_are_taken_once_and_the_rest_is_listed_at_the_end() -> None:
    injections = SteeringQueue()
    first, second = HumanMessage("1", id="a"), HumanMessage("2", id="b")
    assert not injections.offer("r", [first])
    injections.open("r")
    assert injections.take("r") == []
    assert injections.offer("r", [first])
    assert injections.offer("r", [second])
    assert injections.take("r") == [first, second]
    assert injections.take("r") == []
    assert injections.offer("r", [second])
    assert injections.close("r") == [second]
    assert injections.close("r") == []
    assert not injections.offer("r", [first])
    assert injections.take("r") == []


def test_only_so_much_waits_for_a_run() -> None:
    injections = SteeringQueue()
    injections.open("r")
    assert injections.offer("r", [HumanMessage("x")] * MAX_PENDING_MESSAGES)
    assert not injections.offer("r", [HumanMessage("x")])
    assert len(injections.take("r")) == MAX_PENDING_MESSAGES
    assert injections.offer("r", [HumanMessage("x")])


async def started(api: ApiServer, graph: str) -> tuple[str, str]:
    thread = str(uuid4())
    begun = await command(api, thread, "run.start", assistant_id=graph, input={"n": 1})
    with anyio.fail_after(20):
        await api.graphs.reached.wait()
    return thread, begun["result"]["run_id"]


async def ends(api: ApiServer, thread: str, run: str) -> dict[str, Any]:
    """Return the data of the event that ends a run."""
    api.graphs.gate.set()
    answer = await api.http.get(f"/threads/{thread}/runs/{run}/stream")
    lines = answer.text.splitlines()
    last = lines.index("event: end")
    return dict(orjson.loads(lines[last + 1].removeprefix("data: ")))


async def test_a_running_agent_gets_injected_messages(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread, run = await started(api, "listening")
        said = await command(api, thread, "input.inject", messages=[HI])
        assert said["result"] == {"run_id": run, "accepted": True}
        own = {"namespace": [], "message": {"role": "user", "content": "the protocol's own form"}}
        assert (await command(api, thread, "input.inject", run_id=run, **own))["type"] == "success"
        assert await ends(api, thread, run) == {"run_id": run, "status": "success"}
        state = await api.sdk.threads.get_state(thread)
        heard = state["values"]["messages"]
        assert [one["content"] for one in heard] == ["by the way", "the protocol's own form"]
        assert heard[0]["id"] == "m1"
        assert heard[1]["id"]
        late = await command(api, thread, "input.inject", messages=[HI])
        assert (late["type"], late["error"]) == ("error", "no_such_run")


async def test_unread_injected_messages_are_listed_at_the_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread, run = await started(api, "slow")
        await command(api, thread, "input.inject", messages=[HI, {**HI, "id": "m2"}])
        assert await ends(api, thread, run) == {
            "run_id": run,
            "status": "success",
            "untaken": ["m1", "m2"],
        }


async def test_a_waiting_or_another_run_gets_no_injected_message(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread, _ = await started(api, "slow")
        waiting = await api.sdk.runs.create(thread, "listening", input={"n": 1})
        for params in (
            {"run_id": waiting["run_id"], "messages": [HI]},
            {"run_id": str(uuid4()), "messages": [HI]},
        ):
            refused = await command(api, thread, "input.inject", **params)
            assert refused["error"] == "no_such_run"
        nobody = await command(api, str(uuid4()), "input.inject", messages=[HI])
        assert nobody["error"] == "no_such_run"
        api.graphs.gate.set()


async def test_malformed_messages_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread, run = await started(api, "slow")
        bad: list[dict[str, Any]] = [
            {},
            {"messages": []},
            {"messages": "text"},
            {"messages": [{"role": "nobody", "content": "x"}]},
            {"messages": [5]},
            {"run_id": "not-an-id", "messages": [HI]},
        ]
        for params in bad:
            refused = await command(api, thread, "input.inject", **params)
            assert (refused["type"], refused["error"]) == ("error", "invalid_argument"), params
        assert "untaken" not in await ends(api, thread, run)


async def test_clients_cannot_replace_the_injection_queue_of_a_run(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await api.sdk.threads.create()
        config = {"configurable": {"__take_injected": "evil", "plain": 1}}
        values = await api.sdk.runs.wait(
            thread["thread_id"], "looking", input={"n": 1}, config=config
        )
        assert values["seen"]["context"]["plain"] == 1
        assert "__take_injected" not in values["seen"]["context"]
        shown = await api.http.post(
            f"/threads/{thread['thread_id']}/runs/stream",
            json={
                "assistant_id": "instant",
                "input": {"n": 1},
                "stream_mode": ["debug", "checkpoints", "tasks", "events", "values"],
            },
        )
        assert "__take_injected" not in shown.text
        state = await api.http.get(f"/threads/{thread['thread_id']}/state")
        assert "__take_injected" not in str(state.json()["metadata"])
