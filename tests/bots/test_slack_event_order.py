"""Slack resends unacknowledged events after later ones: the messages of a thread still arrive in order."""

from dataclasses import dataclass

from typing_extensions import override

from bus.messages import InboundMessage
from bus.platform import Disposition
from store.errors import StoreError
from tests.bots.slack_rig import fast_slack, running
from tests.bots.test_slack_thread_history import ConversationIntake


@dataclass
class ThreadIntake(ConversationIntake):
    """Accepts messages to the bot, and all messages in a thread that has one."""

    @override
    async def receive(self, inbound: InboundMessage) -> Disposition:
        if inbound.is_addressed or await self.has_conversation(inbound.key):
            return await super().receive(inbound)
        return Disposition.NOT_ADDRESSED


async def test_a_reply_received_before_the_mention_is_handled_after_it() -> None:
    intake = ThreadIntake(errors=[StoreError("starting")] * 2)
    async with fast_slack() as slack, running(slack, intake):
        root = slack.mention("when is the ferry?")
        await slack.wait_for(lambda: not intake.errors)
        slack.say("to Oslo", thread_ts=root.ts)
        await slack.wait_for(lambda: "to Oslo" in intake.texts)
        assert list(dict.fromkeys(intake.texts)) == ["when is the ferry?", "to Oslo"]


async def test_a_message_that_is_deleted_before_it_comes_is_not_answered() -> None:
    intake = ThreadIntake(errors=[StoreError("starting")])
    async with fast_slack() as slack, running(slack, intake):
        asked = slack.say("a secret", channel="D1")
        slack.delete(asked)
        await slack.wait_for(
            lambda: (Disposition.TOO_LATE, "deleted before it arrived") in intake.ignored
        )
        slack.say("hello", channel="D1")
        await slack.wait_for(lambda: intake.texts)
        assert intake.texts == ["hello"]
