"""The three platforms over connections that the bot opens: the rigs of the contract."""

from contextlib import AbstractAsyncContextManager

from typing_extensions import override

from bots.slack.adapter import SlackAdapter
from bots.telegram.adapter import TelegramAdapter
from bus.platform import Adapter
from gateway.playground.feishu.server import FakeFeishu
from gateway.playground.slack.server import FakeSlack
from gateway.playground.telegram.server import TelegramServer
from tests.bots import feishu_rig, slack_rig, telegram_rig
from tests.contracts.adapter_rig import RETRY_AFTER_S, RemoteRig
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake
from tests.people.chat_user import CallFailure
from tests.people.feishu import fail_feishu_calls
from tests.people.slack import fail_slack_calls
from tests.people.telegram import fail_telegram_calls

GROUP = -1_001_234_567_890


class SlackRig(RemoteRig):
    """Socket Mode."""

    name = "slack"

    _slack: FakeSlack

    @override
    def serving(self) -> AbstractAsyncContextManager[object]:
        self._slack = slack_rig.fast_slack()
        return self._slack

    @override
    def adapter(self) -> Adapter:
        return SlackAdapter(slack_rig.config(self._slack), timeouts=slack_rig.FAST)

    @override
    def intruder(self) -> tuple[Adapter, str]:
        wrong = "xoxb-999-not-the-one"
        config = slack_rig.config(self._slack, {"bot_token": wrong})
        return SlackAdapter(config, timeouts=slack_rig.FAST), wrong

    @override
    async def say(self, text: str) -> None:
        self._slack.dm(text)

    @override
    async def say_in_room(self, text: str) -> None:
        self._slack.mention(text)

    @override
    async def chat_in_room(self, text: str) -> None:
        self._slack.say(text)

    @override
    def unacknowledged(self) -> int:
        return sum(not envelope.acked for envelope in self._slack.sockets.envelopes)

    @override
    def seen(self) -> list[str]:
        posted = self._slack.workspace.posted
        return [message.words for message in posted if message.bot_id]

    @override
    def violations(self) -> list[str]:
        return self._slack.violations

    @override
    def fail_next_send(self, how: CallFailure) -> None:
        fail_slack_calls(self._slack, "chat.postMessage", how, seconds=RETRY_AFTER_S)

    @override
    async def go_away(self) -> None:
        await self._slack.go_offline()

    @override
    async def come_back(self) -> None:
        await self._slack.come_back()


class TelegramRig(RemoteRig):
    """Long polling."""

    name = "telegram"

    def __init__(self) -> None:
        self._telegram = TelegramServer(privacy=False)

    @override
    def serving(self) -> AbstractAsyncContextManager[object]:
        return self._telegram

    @override
    def adapter(self) -> Adapter:
        return telegram_rig.adapter_for(self._telegram)

    @override
    def intruder(self) -> tuple[Adapter, str]:
        wrong = "700700:not-the-one"
        config = telegram_rig.config_for(self._telegram, token=wrong)
        adapter = TelegramAdapter(config, telegram_rig.COMMANDS, timeouts=telegram_rig.FAST)
        return adapter, wrong

    @override
    async def say(self, text: str) -> None:
        self._telegram.dm(text)

    @override
    async def say_in_room(self, text: str) -> None:
        self._telegram.mention(GROUP, text)

    @override
    async def chat_in_room(self, text: str) -> None:
        self._telegram.say(GROUP, text)

    @override
    def unacknowledged(self) -> int:
        return self._telegram.backlog

    @override
    async def overtake(self, recorder: RecordingIntake) -> None:
        """Deliver a message with a later poll. A poll acknowledges updates before its offset. So far, there are
        none.
        """
        await self.say_in_room("later")
        await eventually(lambda: "later" in recorder.texts)
        assert self.unacknowledged() == 2

    @override
    def seen(self) -> list[str]:
        chats = self._telegram.chats
        return [message.text for chat in chats for message in self._telegram.answers(chat)]

    @override
    def violations(self) -> list[str]:
        return self._telegram.violations

    @override
    def fail_next_send(self, how: CallFailure) -> None:
        fail_telegram_calls(self._telegram, "sendMessage", how, seconds=RETRY_AFTER_S)

    @override
    async def go_away(self) -> None:
        await self._telegram.refuse()

    @override
    async def come_back(self) -> None:
        await self._telegram.accept()


class FeishuRig(RemoteRig):
    """The long connection."""

    name = "feishu"

    def __init__(self) -> None:
        self._feishu = FakeFeishu(ack_s=0.5, redeliver_s=0.05)

    @override
    def serving(self) -> AbstractAsyncContextManager[object]:
        return self._feishu

    @override
    def adapter(self) -> Adapter:
        return feishu_rig.adapter_for(self._feishu)

    @override
    def intruder(self) -> tuple[Adapter, str]:
        wrong = "not-the-right-secret"
        return feishu_rig.adapter_for(self._feishu, app_secret=wrong), wrong

    @override
    async def say(self, text: str) -> None:
        await self._feishu.dm(text)

    @override
    async def say_in_room(self, text: str) -> None:
        await self._feishu.mention(text)

    @override
    async def chat_in_room(self, text: str) -> None:
        await self._feishu.say(text, chat="oc_room")

    @override
    def unacknowledged(self) -> int:
        return sum(not event.acked for event in self._feishu.state.events)

    @override
    def seen(self) -> list[str]:
        messages = self._feishu.state.messages.values()
        return [message.text for message in messages if message.by_bot]

    @override
    def violations(self) -> list[str]:
        return self._feishu.violations

    @override
    def fail_next_send(self, how: CallFailure) -> None:
        fail_feishu_calls(self._feishu, "message.reply", how, seconds=RETRY_AFTER_S)

    @override
    async def go_away(self) -> None:
        self._feishu.refuse_connects()
        self._feishu.disconnect_all()

    @override
    async def come_back(self) -> None:
        self._feishu.refuse_connects(0)
