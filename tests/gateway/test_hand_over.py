"""Runs of a node that stops: they end when the step that they are in is stored, and go on at another node."""

from pathlib import Path

import anyio

from gateway.runtime.live_run import LiveRun
from tests.eventually import eventually
from tests.gateway.langgraph_server import serving
from tests.gateway.test_langgraph_runs import new_thread
from tests.gateway.test_run_forwarding import two_nodes_beside


async def test_a_run_ends_after_its_step_and_goes_on_at_another_node(
    url: str, tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    async with (
        serving(tmp_path / "b", way="tcp", database_url=url) as b,
        anyio.create_task_group() as group,
    ):
        async with two_nodes_beside(url, tmp_path, b) as a:
            thread = await new_thread(a)
            run = await a.sdk.runs.create(thread, "slow", input={"n": 1})
            await a.graphs.reached.wait()
            [live] = a.runs.active

            async def end_step(live: LiveRun) -> None:
                await eventually(lambda: live.control.drain_requested)
                a.graphs.gate.set()

            group.start_soon(end_step, live)
        assert not a.graphs.stopped.is_set()
        assert a.graphs.calls == {"one": 1, "nap": 1}
        assert (await b.sdk.runs.get(thread, run["run_id"]))["status"] == "interrupted"
        state = await b.sdk.threads.get_state(thread)
        assert (state["next"], state["values"]["title"]) == (["after"], "Rested")
        assert (await b.sdk.runs.wait(thread, "slow", input=None))["n"] == 102
        assert b.graphs.calls == {"after": 1}


async def test_a_step_that_takes_long_is_cut(url: str, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    async with serving(tmp_path / "b", way="tcp", database_url=url) as b:
        async with two_nodes_beside(url, tmp_path, b) as a:
            thread = await new_thread(a)
            run = await a.sdk.runs.create(thread, "slow", input={"n": 1})
            await a.graphs.reached.wait()
        assert a.graphs.stopped.is_set()
        assert (await b.sdk.runs.get(thread, run["run_id"]))["status"] == "interrupted"
        b.graphs.gate.set()
        assert (await b.sdk.runs.wait(thread, "slow", input=None))["n"] == 102


async def test_without_other_nodes_a_run_is_ended_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as only:
        await only.sdk.runs.create(await new_thread(only), "slow", input={"n": 1})
        await only.graphs.reached.wait()
        [live] = only.runs.active
    assert not live.control.drain_requested
    assert only.graphs.stopped.is_set()
