"""Replies in groups that do not mention the bot are for it if they are in its conversations."""

from pathlib import Path

from bus.platform import Disposition
from tests.bus.harness import BusHarness, running_bus

UNKNOWN = {"replies_to": ("older",), "is_private": False, "is_addressed": False, "chat": "g"}
"""A reply to a message that was sent before Parley knew the chat."""


async def test_a_reply_to_an_unknown_message_counts_in_a_topic_with_a_conversation(
    tmp_path: Path,
) -> None:
    async def reply(harness: BusHarness, **where: object) -> Disposition:
        return await harness.send("and this?", **UNKNOWN, **where)

    async with running_bus(tmp_path) as harness:
        assert await reply(harness, topic="t1") is Disposition.NOT_ADDRESSED
        await harness.send("hi", chat="g", topic="t1", is_private=False)
        await harness.send("hi", chat="g", is_private=False)
        await harness.expect_replies("Hello you", "Hello you")
        assert await reply(harness, topic="t1") is Disposition.ACCEPTED
        await harness.expect_replies("Hello you", "Hello you", "Hello you")
        assert await reply(harness, topic="t2") is Disposition.NOT_ADDRESSED
        # Outside of topics all of a group is one conversation: people reply to each other in it.
        assert await reply(harness) is Disposition.NOT_ADDRESSED
