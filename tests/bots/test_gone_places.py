"""An answer whose topic, thread or chat is gone is sent elsewhere, on each platform with the whole bus."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from bots.slack.adapter import SlackAdapter
from bots.telegram.adapter import TelegramAdapter
from bus.locales.en import ENGLISH
from bus.platform import Adapter, ConnectionState
from gateway.playground.feishu.server import FakeFeishu
from gateway.playground.slack.server import FakeSlack
from gateway.playground.telegram.server import TelegramServer
from store.outbox import OutboxRow
from tests.bots.feishu_rig import adapter_for
from tests.bots.slack_rig import FAST as SLACK_FAST
from tests.bots.slack_rig import config, fast_slack
from tests.bots.telegram_rig import COMMANDS, FAST, config_for
from tests.bus.harness import BusHarness, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import Script

GROUP = -1001234567890
CHAT = f"{ENGLISH.moved_to_chat}\n\nDone."
PRIVATE = f"{ENGLISH.moved_to_private}\n\nDone."


@asynccontextmanager
async def serving(adapter: Adapter, home: Path) -> AsyncIterator[BusHarness]:
    async with running_bus(home, others={adapter.name: adapter}) as harness:
        await eventually(lambda: adapter.health().state is ConnectionState.CONNECTED)
        yield harness


async def failed(harness: BusHarness) -> list[OutboxRow]:
    """Wait until nothing is left to send. Return the rows that the admin sees as failed."""
    await eventually(harness.bus.outbox.list_open, lambda rows: rows == [])
    return await harness.bus.outbox.list_recent(states=["failed"], limit=9)


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as server:
        yield server
        assert server.violations == []


@asynccontextmanager
async def asked_in_topic(
    telegram: TelegramServer, home: Path, *, streaming: bool = False
) -> AsyncIterator[tuple[BusHarness, anyio.Event, int]]:
    """Ask in a topic of a forum. The answer is held back."""
    config = config_for(telegram, streaming=streaming)
    async with serving(TelegramAdapter(config, COMMANDS, timeouts=FAST), home) as harness:
        telegram.add_forum(GROUP)
        topic = telegram.add_topic(GROUP, "plans")
        gate = harness.hold_next_run("Done.")
        telegram.mention(GROUP, "hello", thread=topic, user=1001)
        await eventually(lambda: harness.server.runs)
        yield harness, gate, topic


def said(telegram: TelegramServer, chat: int) -> list[str]:
    return [answer.text for answer in telegram.answers(chat)]


@pytest.mark.parametrize(
    ("how", "streaming"), [("deleted", False), ("closed", False), ("deleted", True)]
)
async def test_telegram_answers_in_the_group_when_the_topic_is_gone(
    telegram: TelegramServer, tmp_path: Path, how: str, streaming: bool
) -> None:
    async with asked_in_topic(telegram, tmp_path, streaming=streaming) as (_, gate, topic):
        if how == "closed":
            telegram.chat(GROUP).topics[topic].closed = True
        else:
            telegram.delete_topic(GROUP, topic)
        gate.set()
        await telegram.wait_for(lambda: CHAT in said(telegram, GROUP))
        assert telegram.answers(GROUP)[-1].thread is None
        assert said(telegram, GROUP).count(CHAT) == 1


async def test_telegram_answers_the_asker_alone_when_the_group_is_gone(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    telegram.dm("/start", user=1001)
    async with asked_in_topic(telegram, tmp_path) as (harness, gate, _):
        telegram.block(GROUP, "Forbidden: bot was kicked from the supergroup chat")
        gate.set()
        await telegram.wait_for(lambda: PRIVATE in said(telegram, 1001))
        assert said(telegram, 1002) == []
        assert await failed(harness) == []


async def test_an_answer_that_can_be_nowhere_is_shown_to_the_admin(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    telegram.dm("/start", user=1001)
    async with asked_in_topic(telegram, tmp_path) as (harness, gate, _):
        telegram.block(GROUP, "Forbidden: bot was kicked from the supergroup chat")
        telegram.block(1001)
        gate.set()
        await eventually(harness.bus.outbox.count_by_state, lambda by: by.get("failed") == 1)
        (row,) = await failed(harness)
        assert "blocked" in str(row.error)


@asynccontextmanager
async def asked_on_slack(
    home: Path,
) -> AsyncIterator[tuple[FakeSlack, BusHarness, anyio.Event, str]]:
    async with fast_slack() as slack:
        async with serving(SlackAdapter(config(slack), timeouts=SLACK_FAST), home) as harness:
            gate = harness.hold_next_run("Done.")
            asked = slack.mention("hello")
            await eventually(lambda: harness.server.runs)
            yield slack, harness, gate, asked.ts
        assert slack.violations == []


def slack_said(slack: FakeSlack, channel: str) -> list[str]:
    return [m.words for m in slack.workspace.posted if m.channel == channel and m.bot_id]


async def test_slack_answers_in_the_channel_when_the_thread_is_gone(tmp_path: Path) -> None:
    async with asked_on_slack(tmp_path) as (slack, harness, gate, ts):
        slack.workspace.posted[:] = [m for m in slack.workspace.posted if m.ts != ts]
        gate.set()
        await eventually(lambda: CHAT in slack_said(slack, "C1"))
        assert await failed(harness) == []


async def test_slack_answers_the_asker_alone_when_the_channel_is_archived(tmp_path: Path) -> None:
    async with asked_on_slack(tmp_path) as (slack, harness, gate, _):
        slack.workspace.channels["C1"].archived = True
        gate.set()
        await eventually(lambda: [m for m in slack.workspace.posted if m.words == PRIVATE])
        (told,) = [m for m in slack.workspace.posted if m.words == PRIVATE]
        channel = slack.workspace.channels[told.channel]
        assert (channel.kind, channel.members - {slack.workspace.bot_user}) == ("im", {"U1ANN"})
        assert await failed(harness) == []


async def test_feishu_answers_in_the_chat_when_the_topic_is_gone(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu, serving(adapter_for(feishu), tmp_path) as harness:
        gate = harness.hold_next_run("Done.")
        asked = await feishu.mention("hello", thread="omt_1")
        await eventually(lambda: harness.server.runs)
        await feishu.wait_for(lambda: feishu.answers(asked.chat))
        for message in feishu.messages(asked.chat):
            feishu.recall(message)
        gate.set()
        await feishu.wait_for(
            lambda: [m for m in feishu.answers(asked.chat) if "deleted or closed" in m.text]
        )
        assert await failed(harness) == []


async def test_feishu_answers_the_asker_alone_when_the_chat_is_gone(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu, serving(adapter_for(feishu), tmp_path) as harness:
        gate = harness.hold_next_run("Done.")
        asked = await feishu.mention("hello")
        await eventually(lambda: harness.server.runs)
        await feishu.wait_for(lambda: feishu.answers(asked.chat))
        feishu.remove_bot(asked.chat)
        gate.set()
        private = await feishu.wait_for(
            lambda: [m for m in feishu.state.messages.values() if "no longer write" in m.text]
        )
        assert [message.chat for message in private] == ["oc_dm_ou_alice"]
        assert await failed(harness) == []


def stream_next_run(harness: BusHarness) -> anyio.Event:
    """Let the next run write its answer at once, and end when the returned event is set."""
    ends = anyio.Event()
    harness.server.scripts.append(Script(words=("Do", "ne."), ends=ends))
    return ends


@pytest.mark.parametrize("how", ["archived", "kicked"])
async def test_slack_answers_the_asker_when_the_channel_goes_while_it_streams(
    tmp_path: Path, how: str
) -> None:
    async with fast_slack() as slack:
        async with serving(SlackAdapter(config(slack), timeouts=SLACK_FAST), tmp_path) as harness:
            ends = stream_next_run(harness)
            slack.mention("hello")
            await eventually(lambda: slack_said(slack, "C1"))
            channel = slack.workspace.channels["C1"]
            if how == "archived":
                channel.archived = True
            else:
                channel.members.discard(slack.workspace.bot_user)
            ends.set()
            await eventually(lambda: [m for m in slack.workspace.posted if m.words == PRIVATE])
            assert await failed(harness) == []
        assert slack.violations == []


async def test_slack_answers_in_the_channel_when_the_thread_goes_while_it_streams(
    tmp_path: Path,
) -> None:
    async with fast_slack() as slack:
        async with serving(SlackAdapter(config(slack), timeouts=SLACK_FAST), tmp_path) as harness:
            ends = stream_next_run(harness)
            slack.mention("hello")
            await eventually(lambda: slack_said(slack, "C1"))
            slack.workspace.posted[:] = [m for m in slack.workspace.posted if m.channel != "C1"]
            ends.set()
            await eventually(lambda: CHAT in slack_said(slack, "C1"))
            assert await failed(harness) == []
        assert slack.violations == []


async def test_feishu_answers_the_asker_when_the_chat_goes_while_it_streams(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu, serving(adapter_for(feishu), tmp_path) as harness:
        ends = stream_next_run(harness)
        asked = await feishu.mention("hello")
        await feishu.wait_for(lambda: [m for m in feishu.answers(asked.chat) if "Done." in m.text])
        feishu.remove_bot(asked.chat)
        ends.set()
        private = await feishu.wait_for(
            lambda: [m for m in feishu.state.messages.values() if "no longer write" in m.text]
        )
        assert [message.chat for message in private] == ["oc_dm_ou_alice"]
        assert "Done." in private[0].text
        assert await failed(harness) == []


async def test_telegram_answers_the_asker_when_the_group_goes_while_it_streams(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    config = config_for(telegram, streaming=True)
    async with serving(TelegramAdapter(config, COMMANDS, timeouts=FAST), tmp_path) as harness:
        telegram.dm("/start", user=1001)
        telegram.add_forum(GROUP)
        ends = stream_next_run(harness)
        telegram.mention(GROUP, "hello", user=1001)
        await telegram.wait_for(lambda: said(telegram, GROUP))
        telegram.block(GROUP, "Forbidden: bot was kicked from the supergroup chat")
        ends.set()
        await telegram.wait_for(lambda: PRIVATE in said(telegram, 1001))
        assert await failed(harness) == []
