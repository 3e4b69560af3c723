"""Messages that no person sent: the agent knows what sent them, and may stay silent, even in private chats."""

from pathlib import Path

from bus.platform import Disposition
from tests.bus.harness import OPEN, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import Script

ADMIN = OPEN.model_copy(update={"admin_users": ["u"]})


async def test_the_agent_knows_what_sent_a_message(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("the news", origin="schedule:7")
        await harness.expect_replies("Hello you")
        [run] = harness.server.runs
        [message] = run.body["input"]["messages"]
        assert message["additional_kwargs"]["origin"] == "schedule"
        assert "is_addressed" not in message["additional_kwargs"]
        assert run.body["context"]["origin"] == "schedule:7"


async def test_alone_with_a_person_too_it_may_say_nothing_and_why_tells(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=ADMIN) as harness:
        harness.server.scripts.append(Script(words=("NO_REPLY",)))
        assert await harness.send("anything new?", origin="hook:ci") is Disposition.ACCEPTED
        await harness.wait_until_finished()
        await harness.send("/why")
        await eventually(lambda: len(harness.platform.texts) == 1)
        assert "`hook:ci` of `u`: `declined`" in harness.platform.texts[0]


async def test_it_is_never_part_of_a_gesture(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("look at this", order=1)
        await harness.send("the news", origin="schedule:7", is_forwarded=True, order=2)
        await harness.expect_replies("Hello you", "Hello you")
