"""The state of a thread after a run on it is stopped: kept completely, removed, or rolled back."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.gateway.langgraph_server import ApiServer, serving
from tests.gateway.test_langgraph_features import Receiver
from tests.gateway.test_langgraph_runs import new_thread, refused

CHANGING = {"updated_at"}
"""Fields that a rollback does not restore."""


async def picture(api: ApiServer, thread: str) -> dict[str, Any]:
    """Return everything of a thread that a client can see."""
    whole = await api.sdk.threads.get(thread)
    return {
        "thread": {key: value for key, value in whole.items() if key not in CHANGING},
        "state": await api.sdk.threads.get_state(thread),
        "history": await api.sdk.threads.get_history(thread),
        "runs": await api.sdk.runs.list(thread),
    }


async def rolled_back(api: ApiServer, thread: str, graph: str, **asked: Any) -> None:  # noqa: ANN401 - a run
    run = await api.sdk.runs.create(thread, graph, durability="sync", **asked)
    with anyio.fail_after(20):
        await api.graphs.reached.wait()
        await api.sdk.runs.cancel(thread, run["run_id"], wait=True, action="rollback")
    with refused(404):
        await api.sdk.runs.get(thread, run["run_id"])


@pytest.mark.parametrize("before", ["instant", "boom", "hitl", "agent"])
async def test_a_rolled_back_run_leaves_the_thread_as_it_was(tmp_path: Path, before: str) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        given = {"messages": [{"role": "user", "content": "hi", "id": "m"}], "n": 1}
        await api.sdk.runs.wait(thread, before, input=given, raise_error=False)
        was = await picture(api, thread)
        more = {"messages": [{"role": "user", "content": "more"}], "n": 50, "title": "Other"}
        await rolled_back(api, thread, "slow", input=more)
        assert await picture(api, thread) == was


async def test_a_rolled_back_answer_leaves_the_question(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        await api.sdk.runs.wait(thread, "asking", input={"n": 1})
        was = await picture(api, thread)
        assert was["thread"]["status"] == "interrupted"
        await rolled_back(api, thread, "asking", command={"resume": "yes"})
        assert await picture(api, thread) == was
        api.graphs.gate.set()
        values = await api.sdk.runs.wait(thread, "asking", command={"resume": "no"})
        assert values["answer"] == "no"


async def test_a_delayed_run_that_is_canceled_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        await api.sdk.runs.wait(thread, "asking", input={"n": 1})
        asked = (await api.sdk.threads.get(thread))["interrupts"]
        waiting = await api.sdk.runs.create(thread, "instant", input={}, after_seconds=3600)
        await api.sdk.runs.cancel(thread, waiting["run_id"], wait=True)
        assert (await api.sdk.runs.get(thread, waiting["run_id"]))["status"] == "interrupted"
        found = await api.sdk.threads.get(thread)
        assert (found["status"], found["interrupts"]) == ("interrupted", asked)


async def test_a_waiting_run_that_is_canceled_leaves_the_running_one_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        first = await api.sdk.runs.create(thread, "slow", input={"n": 1})
        await api.graphs.reached.wait()
        waiting = await api.sdk.runs.create(thread, "instant", input={})
        await api.sdk.runs.cancel(thread, waiting["run_id"], wait=True)
        assert (await api.sdk.threads.get(thread))["status"] == "busy"
        api.graphs.gate.set()
        await api.sdk.runs.join(thread, first["run_id"])
        assert (await api.sdk.threads.get(thread))["status"] == "idle"


async def test_a_restart_leaves_a_question_open(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        await api.sdk.runs.wait(thread, "asking", input={"n": 1})
        asked = (await api.sdk.threads.get(thread))["interrupts"]
        await api.sdk.runs.create(thread, "instant", input={}, after_seconds=3600)
    async with serving(tmp_path) as api:
        found = await api.sdk.threads.get(thread)
        assert (found["status"], found["interrupts"]) == ("interrupted", asked)


async def test_the_last_of_many_interrupting_runs_succeeds(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        runs = [
            await api.sdk.runs.create(
                thread,
                "slow",
                input={"n": number},
                multitask_strategy="rollback" if number % 2 else "interrupt",
            )
            for number in range(6)
        ]
        api.graphs.gate.set()
        with anyio.fail_after(20):
            values = await api.sdk.runs.join(thread, runs[-1]["run_id"])
        assert values["n"] == 5 + 101
        left = {run["run_id"]: run["status"] for run in await api.sdk.runs.list(thread)}
        assert left.pop(runs[-1]["run_id"]) == "success"
        assert set(left.values()) <= {"interrupted"}
        assert (await api.sdk.threads.get(thread))["status"] == "idle"


async def test_a_run_is_canceled_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(thread, "slow", input={"n": 1})
        await api.graphs.reached.wait()
        path = f"/threads/{thread}/runs/{run['run_id']}/cancel"
        assert (await api.http.post(path)).status_code == 202
        assert (await api.http.post(path, params={"wait": "1"})).status_code in {200, 404}
        assert (await api.http.post(path)).status_code == 404


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_stopped_run_keeps_what_it_did(tmp_path: Path, durability: str) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(thread, "slow", input={"n": 1}, durability=durability)
        await api.graphs.reached.wait()
        await api.sdk.runs.cancel(thread, run["run_id"], wait=True)
        state = await api.sdk.threads.get_state(thread)
        assert (state["values"]["n"], state["next"]) == (2, ["nap"])
        assert (await api.sdk.threads.get(thread))["status"] == "interrupted"
        steps = len(await api.sdk.threads.get_history(thread))
        assert steps == (1 if durability == "exit" else 3)
        api.graphs.gate.set()
        assert (await api.sdk.runs.wait(thread, "slow", input=None))["n"] == 102


async def test_a_run_whose_caller_stopped_waiting_ends_if_that_was_asked_for(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, way="tcp", heartbeat_s=0.05) as api:
        thread = await new_thread(api)
        body = {"assistant_id": "slow", "input": {"n": 1}, "on_disconnect": "cancel"}
        async with api.http.stream("POST", f"/threads/{thread}/runs/wait", json=body) as answer:
            await anext(answer.aiter_bytes())
        with anyio.fail_after(20):
            await api.graphs.stopped.wait()
            [run] = await api.sdk.runs.list(thread)
            await api.http.get(f"/threads/{thread}/runs/{run['run_id']}/join")
        assert (await api.sdk.runs.get(thread, run["run_id"]))["status"] == "interrupted"


async def test_a_run_does_not_care_whether_its_webhook_is_taken(tmp_path: Path) -> None:
    receiver = Receiver([b"500 Broken"])
    async with receiver.running(), serving(tmp_path) as api:
        thread = await new_thread(api)
        hook = {"webhook": receiver.url}
        values = await api.sdk.runs.wait(thread, "instant", input={"n": 1}, **hook)
        assert values["n"] == 2
        await receiver.wait_for(3)
        again = await api.sdk.runs.wait(thread, "instant", input={"n": 5}, **hook)
        assert again["n"] == 6
        statuses = {run["status"] for run in await api.sdk.runs.list(thread)}
        assert statuses == {"success"}
