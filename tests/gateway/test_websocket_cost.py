"""How long one command over a WebSocket blocks other clients."""

from pathlib import Path
from uuid import uuid4

import pytest

from tests.agent.test_framework_blocks import interrupted
from tests.gateway.langgraph_server import serving
from tests.gateway.test_langgraph_websocket import connected

__all__ = ["interrupted"]


@pytest.mark.usefixtures("interrupted")
async def test_a_subscription_that_is_named_often_counts_once(tmp_path: Path) -> None:
    """Otherwise, each of a thousand events would be compared with each of a hundred thousand names."""
    async with serving(tmp_path, way="tcp") as api, connected(api, str(uuid4())) as client:
        name = (await client.ask("subscription.subscribe", channels=["tools"]))["result"]
        every = (await client.ask("subscription.subscribe", channels=["lifecycle"]))["result"]
        long = {"messages": [{"role": "user", "content": "x" * 300_000}]}
        run = (await client.ask("run.start", assistant_id="many", input=long))["result"]
        events = await client.until("completed")
        again = await client.ask(
            "subscription.reconnect",
            run_id=run["run_id"],
            last_event_id=events[0]["event_id"],
            subscriptions=[name["subscription_id"]] * 99_000,
        )
        assert (again["result"]["restored"], again["result"]["missed_events"]) == (True, 0)
        both = [name["subscription_id"], every["subscription_id"]] * 2
        once = await client.ask(
            "subscription.reconnect",
            run_id=run["run_id"],
            last_event_id=events[0]["event_id"],
            subscriptions=both,
        )
        assert once["result"]["missed_events"] == len(events) - 1
