"""Slack and the whole bus: the real adapter between a fake Slack and a LangGraph server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bots.slack.adapter import SlackAdapter
from bus.platform import ConnectionState
from gateway.playground.slack.server import FakeSlack
from tests.bots.slack_rig import FAST, config, fast_slack
from tests.bus.harness import BusHarness, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import Script


@asynccontextmanager
async def serving(slack: FakeSlack, home: Path) -> AsyncIterator[BusHarness]:
    adapter = SlackAdapter(config(slack), timeouts=FAST)
    async with running_bus(home, others={"slack": adapter}) as harness:
        await eventually(lambda: adapter.health().state is ConnectionState.CONNECTED)
        yield harness


async def test_a_working_reaction_goes_after_kills_during_slacks_rate_limit(tmp_path: Path) -> None:
    """Seed 27 of the proof: no process removed it if the second kill came before the next attempt."""
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


async def test_people_who_talk_to_each_other_in_the_bots_thread_are_left_alone(
    tmp_path: Path,
) -> None:
    async with fast_slack() as slack, serving(slack, tmp_path) as harness:
        asked = slack.mention("when does the ferry leave?", user="U1ANN")
        await eventually(lambda: slack.reactions(asked) == {"white_check_mark"})
        calls = len(harness.server.runs)
        # The first two mention a person. For the others, the agent says that they are not meant for it.
        slack.say("<@U2BOB> lunch?", user="U1ANN", thread_ts=asked.ts, marked=True)
        slack.say("ask <!subteam^S1|@devs>", user="U2BOB", thread_ts=asked.ts, marked=True)
        harness.server.scripts += [Script(words=("NO_", "REPLY")), Script(words=("NO_REPLY",))]
        third = slack.say("sure, at noon", user="U2BOB", thread_ts=asked.ts)
        fourth = slack.say("thanks!", user="U1ANN", thread_ts=asked.ts)
        await harness.wait_for_runs(calls + 2)
        await harness.wait_until_finished()
        further = slack.mention("and back?", thread_ts=asked.ts)
        await eventually(lambda: slack.reactions(further) == {"white_check_mark"})
        assert len(harness.server.runs) == calls + 3
        assert slack.reactions(third) == slack.reactions(fourth) == set()
        assert len(slack.replies(asked)) == 2
    assert slack.violations == []
