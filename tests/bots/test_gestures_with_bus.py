"""The messages of one gesture get one answer: clients' messages, the real adapters and the whole bus."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bots.slack.adapter import SlackAdapter
from bots.telegram.adapter import TelegramAdapter
from bus.platform import ConnectionState
from gateway.playground.feishu.server import FakeFeishu
from gateway.playground.slack.server import FakeSlack
from gateway.playground.telegram.chats import TelegramUpload
from gateway.playground.telegram.server import TelegramServer
from tests.bots import slack_rig
from tests.bots.feishu_rig import adapter_for
from tests.bots.telegram_rig import COMMANDS, FAST, config_for, linked
from tests.bus.harness import BusHarness, running_bus
from tests.eventually import eventually

GROUP = -1001234567890
PASTE = "".join(f"line {number:04} of the log, with words\n" for number in range(200))[:4800]
JPEG = b"\xff\xd8\xff"


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(privacy=False) as server:
        yield server
        assert server.violations == []


@asynccontextmanager
async def serving(telegram: TelegramServer, home: Path) -> AsyncIterator[BusHarness]:
    adapter = TelegramAdapter(config_for(telegram), COMMANDS, timeouts=FAST)
    async with running_bus(home, others={"telegram": adapter}) as harness:
        await linked(adapter, ConnectionState.CONNECTED)
        yield harness


@asynccontextmanager
async def serving_slack(slack: FakeSlack, home: Path) -> AsyncIterator[BusHarness]:
    adapter = SlackAdapter(slack_rig.config(slack), timeouts=slack_rig.FAST)
    async with running_bus(home, others={"slack": adapter}) as harness:
        await eventually(lambda: adapter.health().state is ConnectionState.CONNECTED)
        yield harness


def forward(telegram: TelegramServer, chat: int, words: str, author: str) -> int:
    origin = {"type": "hidden_user", "date": 1, "sender_user_name": author}
    return telegram.say(chat, words, extra={"forward_origin": origin})


def answers(telegram: TelegramServer, chat: int) -> list[str]:
    return [answer.text for answer in telegram.answers(chat)]


async def settled(harness: BusHarness) -> None:
    """Wait until no message is left to answer or send."""
    await harness.wait_until_finished()
    await eventually(harness.bus.outbox.list_open, lambda rows: not rows)


async def test_telegram_a_paste_of_two_messages(telegram: TelegramServer, tmp_path: Path) -> None:
    async with serving(telegram, tmp_path) as harness:
        cut = PASTE.rindex("\n", 0, 4096)
        telegram.dm(PASTE[:cut])
        telegram.dm(PASTE[cut + 1 :])
        await telegram.wait_for(lambda: answers(telegram, 1001))
        await settled(harness)
        assert harness.prompts() == [PASTE]
        assert answers(telegram, 1001) == ["Hello you"]


async def test_telegram_a_comment_and_three_forwards(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    async with serving(telegram, tmp_path) as harness:
        harness.hold_next_run("never")
        telegram.dm("who is right?")
        await harness.wait_for_runs(1)
        for words, author in (("me", "Ann"), ("no, me", "Bob"), ("both", "Eve")):
            forward(telegram, 1001, words, author)
        await telegram.wait_for(lambda: answers(telegram, 1001))
        await settled(harness)
        assert harness.prompts()[-1] == (
            "who is right?\n\n[Forwarded]\n> Ann: me\n\n"
            "[Forwarded]\n> Bob: no, me\n\n[Forwarded]\n> Eve: both"
        )
        assert answers(telegram, 1001) == ["Hello you"]


async def test_telegram_a_mention_and_forwards_in_a_group(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    async with serving(telegram, tmp_path) as harness:
        harness.hold_next_run("never")
        telegram.mention(GROUP, "who is right?")
        await harness.wait_for_runs(1)
        forward(telegram, GROUP, "me", "Ann")
        telegram.say(GROUP, "lunch?", user=1002)
        forward(telegram, GROUP, "no, me", "Bob")
        await telegram.wait_for(lambda: answers(telegram, GROUP))
        await settled(harness)
        said = harness.prompts()[-1]
        assert "who is right?" in said
        assert said.index("Ann: me") < said.index("Bob: no, me")
        assert "lunch" not in said
        assert answers(telegram, GROUP) == ["Hello you"]


async def test_telegram_a_picture_and_its_words(telegram: TelegramServer, tmp_path: Path) -> None:
    async with serving(telegram, tmp_path) as harness:
        telegram.send_file(1001, TelegramUpload(name="a.jpg", content=JPEG), kind="photo")
        await eventually(harness.unfinished_events)
        telegram.dm("what is this?")
        await telegram.wait_for(lambda: answers(telegram, 1001))
        await settled(harness)
        assert harness.prompts() == ["what is this?"]
        assert len(harness.gateway.uploads) == 1
        assert answers(telegram, 1001) == ["Hello you"]


@pytest.mark.parametrize("order", [(2, 0, 1), (1, 2, 0), (0, 1, 2)])
async def test_telegram_an_album_that_arrives_in_another_order(
    telegram: TelegramServer, tmp_path: Path, order: tuple[int, ...]
) -> None:
    captions = ("", "the left one", f"@{telegram.username} which is it?")
    files = [
        telegram.keep("photo", TelegramUpload(name=f"{number}.jpg", content=JPEG + bytes([number])))
        for number in range(3)
    ]
    async with serving(telegram, tmp_path) as harness:
        telegram.withholding = True
        for caption, file in zip(captions, files, strict=True):
            telegram.say(GROUP, caption, file=file, extra={"media_group_id": "album"})
        telegram.shuffle(*order)
        telegram.withholding = False
        telegram.changed()
        await telegram.wait_for(lambda: answers(telegram, GROUP))
        await settled(harness)
        names = [name for _, name, _ in harness.gateway.uploads]
        content = [content for _, _, content in harness.gateway.uploads]
        assert content == [file.content for file in files]
        [prompt] = harness.prompts()
        assert f"[{names[1]}] the left one\n[{names[2]}] which is it?" in prompt
        assert answers(telegram, GROUP) == ["Hello you"]


async def test_feishu_pictures_and_their_words(tmp_path: Path) -> None:
    """Feishu's clients send each file as a separate message."""
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        async with running_bus(tmp_path, others={"feishu": adapter}) as harness:
            await eventually(lambda: adapter.health().state is ConnectionState.CONNECTED)
            for number in range(2):
                await feishu.picture(JPEG + bytes([number]))
            await feishu.dm("which is better?")
            await eventually(lambda: [one.text for one in feishu.answers("oc_dm_ou_alice")])
            await settled(harness)
            assert harness.prompts() == ["which is better?"]
            assert len(harness.gateway.uploads) == 2
            assert len(feishu.answers("oc_dm_ou_alice")) == 1
        assert feishu.violations == []


async def test_slack_a_picture_and_its_words(tmp_path: Path) -> None:
    async with slack_rig.fast_slack() as slack:
        async with serving_slack(slack, tmp_path) as harness:
            slack.dm("", files=[slack.file("a.jpg", JPEG, "image/jpeg")], subtype="file_share")
            await eventually(harness.unfinished_events)
            slack.dm("what is this?")
            await eventually(lambda: harness.prompts() == ["what is this?"])
            await settled(harness)
            assert len(harness.server.runs) == 1
            assert len(harness.gateway.uploads) == 1
        assert slack.violations == []


async def test_slack_a_mention_and_files_behind_it(tmp_path: Path) -> None:
    """Slack reports a mention twice. Outside of threads, each message would start its own thread."""
    async with slack_rig.fast_slack() as slack:
        async with serving_slack(slack, tmp_path) as harness:
            harness.hold_next_run("never")
            asked = slack.mention("compare these")
            await harness.wait_for_runs(1)
            for number in range(2):
                file = slack.file(f"{number}.pdf", b"%PDF", "application/pdf")
                slack.say("", files=[file], subtype="file_share")
            await eventually(lambda: [one.text for one in slack.replies(asked)] == ["Hello you"])
            await settled(harness)
            assert harness.prompts()[-1] == "compare these"
            assert {name for _, name, _ in harness.gateway.uploads} == {"0.pdf", "1.pdf"}
            assert len(harness.server.threads) == 1
            assert len([one for one in slack.messages("C1") if one.bot_id]) == 1
        assert slack.violations == []
