"""Threads, states and assistants with the stock SDK."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import httpx
import pytest
from langgraph_sdk import get_sync_client

from tests.gateway.langgraph_server import ApiServer, serving
from tests.gateway.test_langgraph_runs import refused


async def thread_of(api: ApiServer, **metadata: object) -> str:
    return str((await api.sdk.threads.create(metadata=metadata))["thread_id"])


async def status_of(api: ApiServer, method: str, path: str, **more: object) -> int:
    options: dict[str, Any] = more
    return (await api.http.request(method, path, **options)).status_code


async def test_a_thread_from_start_to_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        wanted = str(uuid4())
        made = await api.sdk.threads.create(thread_id=wanted, metadata={"user": "u1"})
        assert made["thread_id"] == wanted
        assert (made["status"], made["values"], made["metadata"]) == ("idle", None, {"user": "u1"})
        assert made["created_at"].endswith("+00:00")
        assert await status_of(api, "POST", "/threads", json={"thread_id": wanted}) == 409
        again = await api.sdk.threads.create(thread_id=wanted, if_exists="do_nothing")
        assert again["metadata"] == {"user": "u1"}
        patched = await api.sdk.threads.update(wanted, metadata={"title": "T"})
        assert patched["metadata"] == {"user": "u1", "title": "T"}
        assert (
            await status_of(
                api,
                "PATCH",
                f"/threads/{wanted}",
                json={"metadata": {"a": 1}},
                headers={"Prefer": "return=minimal"},
            )
            == 204
        )
        await api.sdk.threads.delete(wanted)
        for method in ("GET", "PATCH", "DELETE"):
            assert await status_of(api, method, f"/threads/{wanted}") == 404
            assert await status_of(api, method, "/threads/slack:C1:1") == 422
        assert await status_of(api, "POST", "/threads", json={"thread_id": "x"}) == 422


async def test_deleting_a_busy_thread_stops_its_run(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await thread_of(api)
        run = await api.sdk.runs.create(thread, "slow", input={"n": 1})
        await api.graphs.reached.wait()
        with anyio.fail_after(20):
            await api.sdk.threads.delete(thread)
        assert api.graphs.stopped.is_set()
        assert await status_of(api, "GET", f"/threads/{thread}/runs/{run['run_id']}") == 404
        assert await api.checkpointer.aget_tuple({"configurable": {"thread_id": thread}}) is None


async def test_search_and_count(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        first, second = await thread_of(api, user="a"), await thread_of(api, user="b")
        await api.sdk.runs.wait(first, "instant", input={"n": 1})
        found = await api.http.post("/threads/search", json={"limit": 1})
        assert found.headers["x-pagination-total"] == "2"
        assert found.headers["x-pagination-next"] == "1"
        assert [one["thread_id"] for one in found.json()] == [first]
        assert found.json()[0]["values"]["n"] == 2
        by_user = await api.sdk.threads.search(metadata={"user": "b"})
        assert [one["thread_id"] for one in by_user] == [second]
        by_graph = await api.sdk.threads.search(metadata={"graph_id": "instant"})
        assert [one["thread_id"] for one in by_graph] == [first]
        lean = await api.sdk.threads.search(ids=[first], select=["thread_id", "status"])
        assert lean == [{"thread_id": first, "status": "idle"}]
        assert await api.sdk.threads.count(status="idle") == 2
        assert await api.sdk.threads.search(status="busy") == []
        assert await status_of(api, "POST", "/threads/search", json={"limit": 0}) == 422


async def test_state_of_a_new_thread(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        state = await api.sdk.threads.get_state(await thread_of(api))
        assert (state["values"], state["next"], state["checkpoint"]) == ({}, [], None)
        assert await status_of(api, "GET", f"/threads/{uuid4()}/state") == 404


async def test_state_and_history(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await thread_of(api)
        for _ in range(2):
            await api.sdk.runs.wait(thread, "instant", input=None if _ else {"n": 1})
        await api.sdk.runs.wait(thread, "instant", input={"n": 10})
        history = await api.sdk.threads.get_history(thread, limit=3)
        assert [one["values"].get("n") for one in history] == [11, 10, 2]
        newest = await api.sdk.threads.get_state(thread)
        assert newest["checkpoint_id"] == history[0]["checkpoint_id"]
        assert newest["parent_checkpoint_id"] == history[1]["checkpoint_id"]
        assert newest["metadata"]["graph_id"] == "instant"
        older = history[2]["checkpoint_id"]
        assert (await api.sdk.threads.get_state(thread, checkpoint_id=older))["values"]["n"] == 2
        at = await api.sdk.threads.get_state(thread, checkpoint=history[2]["checkpoint"])
        assert at["values"]["n"] == 2
        before = await api.sdk.threads.get_history(thread, before=history[1]["checkpoint_id"])
        assert before[0]["checkpoint_id"] == older
        got = (await api.http.get(f"/threads/{thread}/history", params={"limit": 1})).json()
        assert got == history[:1]
        forked = await api.sdk.runs.wait(thread, "instant", input={}, checkpoint_id=older)
        assert forked["n"] == 3


async def test_a_history_is_looked_through_by_metadata(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = (await api.sdk.threads.create())["thread_id"]
        await api.sdk.runs.wait(thread, "instant", input={"n": 1}, metadata={"kind": "x"})
        found = await api.sdk.threads.get_history(thread, metadata={"source": "loop", "step": 1})
        assert [state["metadata"]["step"] for state in found] == [1]
        assert len(await api.sdk.threads.get_history(thread, metadata={"kind": "x"})) == 3
        odd: list[dict[str, Any]] = [
            {"kind": [1, {"x": None}]},
            {"kind.of": 1},
            {"a-b": {}},
            {"-": "x"},
        ]
        for none in odd:
            assert await api.sdk.threads.get_history(thread, metadata=none) == [], none
        for wrong in ({"": 1}, {"a..b": 1}, {"x'y": 1}, {"a b": 1}, {"$": 1}, {"n": 2**63}):
            answer = await api.http.post(f"/threads/{thread}/history", json={"metadata": wrong})
            assert answer.status_code == 422, wrong
            assert "metadata" in answer.json()["detail"]


async def test_a_long_history_is_returned_in_parts(tmp_path: Path) -> None:
    """Each state repeats the earlier messages: 10 messages of 9 MB had 500 MB of history and took 1.4 GB of memory."""
    async with serving(tmp_path) as api:
        thread = (await api.sdk.threads.create(metadata={"graph_id": "instant"}))["thread_id"]
        for number in range(6):
            message = {"role": "user", "content": str(number) * 2_000_000}
            await api.sdk.threads.update_state(thread, {"messages": [message]}, as_node="one")
        asked = f"/threads/{thread}/history"
        newest = (await api.http.post(asked, json={"limit": 1000})).json()
        assert [len(one["values"]["messages"]) for one in newest] == [6, 5]
        older = await api.http.post(asked, json={"limit": 1, "before": newest[-1]["checkpoint"]})
        assert [len(one["values"]["messages"]) for one in older.json()] == [4]


async def test_update_state(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await thread_of(api)
        await api.sdk.runs.wait(thread, "hitl", input={"n": 1})
        said = {"role": "user", "content": "hello"}
        written = await api.sdk.threads.update_state(
            thread, {"n": 7, "title": "New", "messages": [said]}, as_node="after"
        )
        state = await api.sdk.threads.get_state(thread)
        assert written["checkpoint_id"] == state["checkpoint_id"]
        assert written["checkpoint"]["thread_id"] == thread
        assert (state["values"]["n"], state["next"]) == (7, [])
        assert state["values"]["messages"][0]["content"] == "hello"
        found = await api.sdk.threads.get(thread)
        assert (found["status"], found["interrupts"]) == ("idle", {})
        assert (await api.runs.threads.get(thread)).title == "New"
        bad = {"values": {"n": 1}, "as_node": "nobody"}
        assert await status_of(api, "POST", f"/threads/{thread}/state", json=bad) == 400


async def test_a_thread_without_a_graph_takes_no_state(tmp_path: Path) -> None:
    """A different graph would drop values that it does not know, but report them as written."""
    async with serving(tmp_path) as api:
        thread = await thread_of(api)
        with refused(400, "has no graph"):
            await api.sdk.threads.update_state(thread, {"n": 1})
        assert await api.sdk.threads.get_history(thread) == []
        named = (await api.sdk.threads.create(graph_id="instant"))["thread_id"]
        await api.sdk.threads.update_state(named, {"n": 1}, as_node="one")
        assert (await api.sdk.threads.get(named))["values"]["n"] == 1


async def test_a_state_is_not_written_to_a_malformed_checkpoint_id(tmp_path: Path) -> None:
    """The new state would begin empty, and the thread's content would be lost."""
    async with serving(tmp_path) as api:
        thread = await thread_of(api)
        await api.sdk.runs.wait(thread, "instant", input={"n": 1})
        with refused(422, "Invalid checkpoint ID"):
            await api.sdk.threads.update_state(
                thread, {"title": "x"}, as_node="one", checkpoint_id="junk"
            )
        assert (await api.sdk.threads.get(thread))["values"]["n"] == 2


async def test_the_error_of_a_task_is_one_text(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await thread_of(api)
        await api.sdk.runs.wait(thread, "boom", input={"n": 1}, raise_error=False)
        [task] = (await api.sdk.threads.get_state(thread))["tasks"]
        assert task["error"].startswith("ValueError(")


async def test_assistants(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        found = await api.sdk.assistants.search(limit=100)
        assert {one["graph_id"] for one in found} == set(api.runs.graphs)
        [agent] = await api.sdk.assistants.search(graph_id="agent")
        assert agent["assistant_id"] == "fe096781-5601-53d2-b2f6-0d3403f7e9ca"
        assert await api.sdk.assistants.get(agent["assistant_id"]) == agent
        assert await api.sdk.assistants.get("agent") == agent
        assert await api.sdk.assistants.count(metadata={"created_by": "someone"}) == 0
        assert await status_of(api, "GET", "/assistants/nobody") == 422
        assert await status_of(api, "GET", f"/assistants/{uuid4()}") == 404
        thread = await thread_of(api)
        run = await api.sdk.runs.create(thread, agent["assistant_id"], input={"n": 1})
        assert run["assistant_id"] == agent["assistant_id"]


async def test_the_sync_client(tmp_path: Path) -> None:
    def talk(url: str) -> list[str]:
        with get_sync_client(url=url, api_key=None) as client:
            thread = client.threads.create()["thread_id"]
            said: Any = {"messages": [{"role": "user", "content": "hi"}]}
            whole: Any = client.runs.wait(thread, "agent", input=said)
            assert whole["messages"][-1]["content"] == "tok0 tok1 tok2 "
            stream = client.runs.stream(thread, "instant", input={"n": 1})
            events = [part.event for part in stream]
            client.threads.delete(thread)
            with pytest.raises(httpx.HTTPStatusError):
                client.threads.get(thread)
            return events

    async with serving(tmp_path, way="tcp") as api:
        events = await anyio.to_thread.run_sync(talk, api.url)
    assert events == ["metadata", "values", "values"]


async def test_old_front_ends_send_both_maps(tmp_path: Path) -> None:
    """The requests that the agent runners of LangBot and AstrBot send to DeerFlow must work unchanged."""
    async with serving(tmp_path, prefix="/api/langgraph") as api:
        thread = await thread_of(api)
        options = {"thread_id": thread, "thinking_enabled": True, "is_plan_mode": False}
        body = {
            "assistant_id": "looking",
            "input": {
                "messages": [
                    {"role": "system", "content": "be brief"},
                    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                ]
            },
            "stream_mode": ["values", "messages-tuple", "custom"],
            "config": {"recursion_limit": 100, "configurable": options},
            "context": options,
        }
        answer = await api.http.post(f"/threads/{thread}/runs/stream", json=body)
        assert answer.status_code == 200
        assert "event: error" not in answer.text
        assert answer.text.count("event: end") == 1
