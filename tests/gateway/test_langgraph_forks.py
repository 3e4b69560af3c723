"""Runs from an earlier checkpoint, like those of the SDK's React hooks."""

from pathlib import Path
from uuid import uuid4

from tests.gateway.langgraph_server import serving
from tests.gateway.test_langgraph_protocol import command, heard
from tests.gateway.test_langgraph_runs import HELLO, new_thread, refused


async def test_the_checkpoint_may_be_among_the_options(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        await api.sdk.runs.wait(thread, "instant", input={"n": 1})
        first = await api.sdk.threads.get_state(thread)
        await api.sdk.runs.wait(thread, "instant", input={"n": 40, "title": "Later"})
        config = {"configurable": {"checkpoint_id": first["checkpoint_id"], "thread_id": thread}}
        forked = await api.sdk.runs.wait(thread, "instant", input={"n": 7}, config=config)
        assert forked == {"messages": [], "n": 8}
        # A separate checkpoint_id takes precedence.
        newest = (await api.sdk.threads.get_state(thread))["checkpoint_id"]
        config = {"configurable": {"checkpoint_id": first["checkpoint_id"]}}
        body = {"assistant_id": "instant", "input": {"answer": "x"}, "config": config}
        answer = await api.http.post(
            f"/threads/{thread}/runs/wait", json={**body, "checkpoint_id": newest}
        )
        assert answer.json() == {"messages": [], "answer": "x", "n": 9}


async def test_a_checkpoint_event_comes_right_before_its_values(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = str(uuid4())
        await command(api, thread, "run.start", assistant_id="agent", input=HELLO)
        events = await heard(
            api, thread, "completed", channels=["values", "checkpoints", "lifecycle"]
        )
        told = [(event["method"], event["params"]["data"]) for event in events[1:-1]]
        assert [method for method, _ in told] == ["checkpoints", *["checkpoints", "values"] * 2]
        begun, asked, answered = [data for method, data in told if method == "checkpoints"]
        assert begun.keys() == {"id", "step", "source"}
        assert (begun["step"], begun["source"]) == (-1, "input")
        assert (asked["parent_id"], asked["step"]) == (begun["id"], 0)
        assert (answered["parent_id"], answered["source"]) == (asked["id"], "loop")
        state = await api.sdk.threads.get_state(thread)
        assert state["checkpoint_id"] == answered["id"]
        again = await command(
            api,
            thread,
            "run.start",
            assistant_id="agent",
            input=None,
            config={"configurable": {"checkpoint_id": answered["parent_id"], "thread_id": thread}},
        )
        assert again["type"] == "success"
        await api.sdk.runs.join(thread, again["result"]["run_id"])
        state = await api.sdk.threads.get_state(thread)
        assert len(state["values"]["messages"]) == 2
        assert state["checkpoint_id"] != answered["id"]


async def test_a_checkpoint_that_the_thread_does_not_have_is_refused(tmp_path: Path) -> None:
    """LangGraph's own server (0.16.7) begins with an empty state, so a page that was open for long loses its chat."""
    async with serving(tmp_path) as api:
        thread, other = await new_thread(api), await new_thread(api)
        await api.sdk.runs.wait(thread, "instant", input={"n": 1})
        await api.sdk.runs.wait(other, "instant", input={"n": 40, "title": "Not for you"})
        state = await api.sdk.threads.get_state(thread)
        foreign = (await api.sdk.threads.get_state(other))["checkpoint_id"]
        for unknown in (foreign, str(uuid4())):
            for named in (
                {"checkpoint_id": unknown},
                {"checkpoint": {"checkpoint_id": unknown, "checkpoint_ns": ""}},
                {"config": {"configurable": {"checkpoint_id": unknown}}},
            ):
                with refused(404, "Checkpoint not found"):
                    await api.sdk.runs.wait(thread, "instant", input={"n": 7}, **named)
            with refused(404, "Checkpoint not found"):
                await api.sdk.threads.update_state(
                    thread, {"n": 7}, as_node="one", checkpoint_id=unknown
                )
        assert len(await api.sdk.runs.list(thread)) == 1
        assert await api.sdk.threads.get_state(thread) == state
        assert (await api.sdk.threads.get_state(other))["values"]["n"] == 41


async def test_a_pruned_checkpoint_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        await api.sdk.runs.wait(thread, "instant", input={"n": 1})
        old = (await api.sdk.threads.get_state(thread))["checkpoint_id"]
        await api.sdk.runs.wait(thread, "instant", input={"title": "Later"})
        assert await api.sdk.runs.wait(thread, "instant", input={}, checkpoint_id=old)
        await api.sdk.threads.prune([thread], strategy="keep_latest")
        with refused(404, "was pruned"):
            await api.sdk.runs.create(thread, "instant", input={"n": 7}, checkpoint_id=old)


async def test_malformed_checkpoint_ids_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        body = {"assistant_id": "instant", "input": {"n": 1}, "checkpoint_id": "junk"}
        for path in (f"/threads/{thread}/runs", f"/threads/{thread}/runs/stream", "/runs/wait"):
            answer = await api.http.post(path, json=body)
            assert (answer.status_code, answer.json()) == (422, {"detail": "Invalid checkpoint ID"})
        assert await api.sdk.runs.list(thread) == []
