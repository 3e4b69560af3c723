"""Webhooks of runs whose process ended before posting them: the next process posts them."""

from pathlib import Path
from typing import Any

import anyio
import orjson

from store.run_webhooks import RunWebhook
from store.runs import RunOutcome
from tests.eventually import eventually
from tests.gateway.langgraph_server import ApiServer, serving
from tests.gateway.test_langgraph_features import Receiver
from tests.gateway.test_langgraph_runs import new_thread
from tests.gateway.test_runs_elsewhere import two_nodes_beside

FIRST_IS_LOST = [b"", b"200 OK"]


async def run_with_webhook(api: ApiServer, receiver: Receiver) -> str:
    """Return the ID of a run that has ended and whose webhook arrived but was not accepted."""
    thread = await new_thread(api)
    run = await api.sdk.runs.create(thread, "instant", input={"n": 1}, webhook=receiver.url)
    await receiver.wait_for(1)
    return str(run["run_id"])


def told(receiver: Receiver, number: int) -> dict[str, Any]:
    return dict(orjson.loads(receiver.taken[number][2]))


async def nothing_is_left(api: ApiServer) -> None:
    async def rows() -> list[Any]:
        return list(await api.database.read("SELECT run_id FROM run_webhook"))

    await eventually(rows, lambda found: not found)


async def test_a_webhook_is_posted_after_a_restart(tmp_path: Path) -> None:
    receiver = Receiver(FIRST_IS_LOST)
    async with receiver.running():
        async with serving(tmp_path) as api:
            run_id = await run_with_webhook(api, receiver)
        async with serving(tmp_path) as api:
            await receiver.wait_for(2)
            await nothing_is_left(api)
        first, second = told(receiver, 0), told(receiver, 1)
        assert (second["run_id"], second["status"], second["values"]["n"]) == (run_id, "success", 2)
        assert second["webhook_sent_at"] > first["webhook_sent_at"]
        assert second["run_ended_at"] == first["run_ended_at"]
        async with serving(tmp_path) as api:
            await run_with_webhook(api, receiver)
            await receiver.wait_for(3)
            await nothing_is_left(api)
        assert told(receiver, 2)["run_id"] != run_id


async def test_a_webhook_of_a_stateless_run_is_posted_after_a_restart(tmp_path: Path) -> None:
    receiver = Receiver(FIRST_IS_LOST)
    async with receiver.running():
        async with serving(tmp_path) as api:
            await api.sdk.runs.wait(None, "instant", input={"n": 1}, webhook=receiver.url)
            await receiver.wait_for(1)
        async with serving(tmp_path):
            await receiver.wait_for(2)
        assert told(receiver, 0)["run_id"] == told(receiver, 1)["run_id"]


async def test_a_webhook_that_is_refused_is_given_up(tmp_path: Path) -> None:
    receiver = Receiver([b"404 Not Found"])
    async with receiver.running(), serving(tmp_path) as api:
        await run_with_webhook(api, receiver)
        await nothing_is_left(api)


async def test_a_webhook_of_a_node_that_ended_is_posted_by_another(
    url: str, tmp_path: Path
) -> None:
    receiver = Receiver(FIRST_IS_LOST)
    (tmp_path / "b").mkdir()
    async with (
        receiver.running(),
        serving(tmp_path / "b", way="tcp", database_url=url) as b,
    ):
        async with two_nodes_beside(url, tmp_path, b) as a:
            run_id = await run_with_webhook(a, receiver)
        await receiver.wait_for(2)
        assert told(receiver, 1)["run_id"] == run_id
        await nothing_is_left(b)


async def test_the_end_of_a_run_and_its_webhook_are_stored_together(tmp_path: Path) -> None:
    """This is the state that a process leaves if it dies in between."""
    receiver = Receiver([b"200 OK"])
    async with receiver.running():
        async with serving(tmp_path) as api:
            thread = await new_thread(api)
            run = await api.sdk.runs.create(thread, "slow", input={"n": 1})
            await api.graphs.reached.wait()
            hook = RunWebhook(run_id=run["run_id"], url=receiver.url, body='{"n":1}')
            end = RunOutcome(
                run_id=run["run_id"],
                thread_id=thread,
                status="success",
                thread_status="idle",
                webhook=hook,
            )
            await api.runs.rows.finish(end, now=5.0)
            await api.runs.rows.finish(end, now=6.0)
            assert not receiver.taken
        async with serving(tmp_path) as api:
            with anyio.fail_after(20):
                await receiver.wait_for(1)
            await nothing_is_left(api)
        assert told(receiver, 0)["n"] == 1
