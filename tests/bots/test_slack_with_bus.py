"""Slack and the whole bus together: the real adapter between a Slack workspace and a LangGraph server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bots.slack.adapter import SlackAdapter
from bus.platform import ConnectionState
from tests.bots.slack_rig import FAST, config, fast_slack
from tests.bus.harness import BusHarness, running_bus
from tests.eventually import eventually
from tests.fakes.slack import FakeSlack


@asynccontextmanager
async def serving(slack: FakeSlack, home: Path) -> AsyncIterator[BusHarness]:
    adapter = SlackAdapter(config(slack), timeouts=FAST)
    async with running_bus(home, others={"slack": adapter}) as harness:
        await eventually(lambda: adapter.health().state is ConnectionState.CONNECTED)
        yield harness


async def test_a_working_reaction_goes_after_kills_during_slacks_rate_limit(tmp_path: Path) -> None:
    """Seed 27 of the proof: nobody removed it if the second kill came before the next attempt."""
    limited = {"status": 429, "error": "ratelimited", "headers": {"Retry-After": "60"}}
    async with fast_slack() as slack:
        async with serving(slack, tmp_path) as harness:
            slack.fail("reactions.remove", **limited)  # type: ignore[arg-type]
            gate = harness.hold_next_run("Hello")
            asked = slack.mention("hi")
            await eventually(lambda: slack.reactions(asked) == {"eyes"})
            gate.set()
            await eventually(lambda: slack.reactions(asked) == {"eyes", "white_check_mark"})
            await eventually(harness.bus.outbox.list_open, lambda rows: len(rows) == 1)
            harness.clock.ahead += 20.0
            later = slack.mention("and now?")
            await eventually(lambda: slack.reactions(later) == {"white_check_mark"})
        async with serving(slack, tmp_path) as harness:
            assert slack.reactions(asked) == {"eyes", "white_check_mark"}
        async with serving(slack, tmp_path) as harness:
            harness.clock.ahead += 60.0
            harness.bus._context.delivery.notify(
                (await harness.bus.outbox.list_open())[0].conversation
            )
            await eventually(lambda: slack.reactions(asked) == {"white_check_mark"})
    assert slack.violations == []
