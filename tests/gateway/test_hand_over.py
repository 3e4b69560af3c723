"""Runs of a node that stops, without other nodes. For several nodes, see `test_runs_elsewhere.py`."""

from pathlib import Path

from tests.gateway.langgraph_server import serving
from tests.gateway.test_langgraph_runs import new_thread


async def test_without_other_nodes_a_run_is_ended_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as only:
        await only.sdk.runs.create(await new_thread(only), "slow", input={"n": 1})
        await only.graphs.reached.wait()
        [live] = only.runs.active
    assert not live.control.drain_requested
    assert only.graphs.stopped.is_set()
