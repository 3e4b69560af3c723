"""All features of Slack (growing answers, stop and question buttons, edited messages) across a crash."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.playground.slack.server import FakeSlack
from gateway.playground.slack.state import SlackMessage
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.fakes.model_switches import ModelSwitches
from tests.journeys.service import Service, serving, with_model

WORDS = " ".join(f"word{n}" for n in range(40))
TABLE = "| a | b |\n|---|---|\n| 1 | 2 |"


def config(slack: FakeSlack, model: FakeModelServer, **more: object) -> dict[str, Any]:
    section = {
        "enabled": True,
        "base_url": slack.base_url,
        "bot_token": slack.bot_token,
        "app_token": slack.app_token,
        **more,
    }
    return {**with_model(model.base_url), "channels": {"slack": section}}


async def answered(slack: FakeSlack, asked: SlackMessage) -> SlackMessage:
    """Wait for the first message of an answer."""
    found = await slack.wait_for(lambda: slack.replies(asked))
    return found[0]


async def test_an_answer_grows_and_is_the_answer(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeModelServer(ModelSwitches(token_delay_s=0.08)) as model:
        async with serving(tmp_path, config(slack, model, streaming=True), "slack"):
            model.reply(WORDS)
            plain = await _grown(slack, slack.mention("tell me"))
            assert plain.words == WORDS
            assert plain.stream is not None
            assert len(plain.stream.added) >= 3
            model.reply(f"Here:\n\n{TABLE}\n\nThat was <!channel> all.")
            table = await _grown(slack, slack.dm("a table"))
            assert [block["type"] for block in table.blocks] == ["markdown", "table", "rich_text"]
            model.switches.token_delay_s = 0.001
            await _goes_on_in_further_messages(slack, model)
        assert slack.violations == []


async def _grown(slack: FakeSlack, asked: SlackMessage) -> SlackMessage:
    """Wait for the complete answer, which is one message."""
    found = await answered(slack, asked)
    await slack.wait_for(lambda: slack.reactions(asked) == {"white_check_mark"})
    assert slack.replies(asked) == [found]
    assert not found.streams
    return found


async def _goes_on_in_further_messages(slack: FakeSlack, model: FakeModelServer) -> None:
    """In a long answer, no word is repeated or lost."""
    paragraphs = [" ".join(f"w{n}x{m}" for m in range(150)) for n in range(20)]
    text = f"\n\n{TABLE}\n\n".join("\n\n".join(paragraphs[n : n + 10]) for n in (0, 10))
    model.reply(text)
    asked = slack.mention("tell me all")
    await slack.wait_for(lambda: slack.reactions(asked) == {"white_check_mark"}, timeout_s=40)
    said = slack.replies(asked)
    assert len(said) > 1
    assert not any(message.streams for message in said)
    shown = re.findall(r"w\d+x\d+", " ".join(message.words for message in said))
    assert shown == re.findall(r"w\d+x\d+", text)


async def test_a_crash_while_an_answer_grows_goes_on_in_the_same_message(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeModelServer(ModelSwitches(token_delay_s=0.1)) as model:
        async with serving(tmp_path, config(slack, model, streaming=True), "slack") as service:
            model.reply(WORDS, WORDS)
            asked = slack.mention("tell me")
            message = await answered(slack, asked)
            await slack.wait_for(lambda: "word3" in message.words)
            await service.kill()
            await service.start()
            await slack.wait_for(lambda: message.words == WORDS)
            await slack.wait_for(lambda: not message.streams)
            assert slack.replies(asked) == [message]
        assert slack.violations == []


async def _stopped(slack: FakeSlack, model: FakeModelServer, asked: SlackMessage) -> SlackMessage:
    """Wait for the stopped answer. The model server must have noticed the stop."""
    found = await slack.wait_for(lambda: [m for m in slack.replies(asked) if "Stopped" in m.words])
    await slack.wait_for(lambda: model.requests[-1].closed_by_client)
    return found[0]


async def test_slacks_own_stop_button_ends_a_growing_answer(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeModelServer(ModelSwitches(token_delay_s=0.1)) as model:
        slack.declare_agent()
        async with serving(tmp_path, config(slack, model, streaming=True), "slack"):
            model.reply(ModelReply(text=WORDS, hang_after=5))
            asked = slack.dm("tell me")
            message = await answered(slack, asked)
            await slack.wait_for(lambda: "word2" in message.words)
            slack.halt(asked)
            assert await _stopped(slack, model, asked) is message
            assert slack.replies(asked) == [message]
            await slack.wait_for(
                lambda: slack.workspace.status(asked.channel, asked.ts).session == "active"
            )
        assert slack.violations == []


async def test_a_turn_that_takes_long_has_a_stop_button_that_stops_it(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeModelServer() as model:
        async with serving(tmp_path, config(slack, model), "slack"):
            model.reply(ModelReply(text=WORDS, hang_after=3))
            asked = slack.mention("think hard")
            notice = await answered(slack, asked)
            assert notice.thread_ts == asked.ts
            assert list(notice.buttons) == ["Stop"]
            slack.press(notice, "Stop", user="U2STRANGER")
            await slack.wait_for(lambda: slack.asked("response_url"))
            assert notice in slack.replies(asked)
            slack.press(notice, "Stop")
            await slack.wait_for(lambda: "Stopped" in notice.words)
            assert notice.buttons == {}
            await slack.wait_for(lambda: model.requests[-1].closed_by_client)
        assert slack.violations == []


async def test_long_code_comes_as_a_file_and_an_archived_channel_is_answered_in_private(
    tmp_path: Path,
) -> None:
    code = "\n".join(f"print({n})" for n in range(1_500))
    async with FakeSlack() as slack, FakeModelServer() as model:
        async with serving(tmp_path, config(slack, model), "slack") as service:
            model.reply(f"Look:\n\n```python\n{code}\n```\n\nDone.")
            asked = slack.mention("write it")
            await slack.wait_for(lambda: len(slack.replies(asked)) == 3)
            look, file, done = slack.replies(asked)
            assert (look.words, done.words) == ("Look:", "Done.")
            assert slack.workspace.files[file.files[0]["id"]].content == code.encode()
            await _until_owed(service, lambda rows: {r["state"] for r in rows} == {"delivered"})
            await _is_answered_in_private(slack, model, service)
        assert slack.violations == []


async def _until_owed(service: Service, found: Callable[[list[dict[str, Any]]], bool]) -> None:
    """Wait until the outbox contains the expected rows."""
    async with service.client() as client:

        async def rows() -> list[dict[str, Any]]:
            return list((await client.get("/api/channels/outbox")).json()["rows"])

        await eventually(rows, found)


async def _is_answered_in_private(slack: FakeSlack, model: FakeModelServer, to: Service) -> None:
    """If a channel is archived during a run, only the asker gets the answer, and the connection stays healthy."""
    model.reply(ModelReply(text=WORDS, token_delay_s=0.05))
    asked, before = slack.mention("hello", channel="C2"), len(model.requests)
    await slack.wait_for(lambda: len(model.requests) > before)
    slack.workspace.channels["C2"].archived = True
    await slack.wait_for(
        lambda: [m for m in slack.workspace.posted if m.words.endswith(f"\n\n{WORDS}")],
    )
    (told,) = [m for m in slack.workspace.posted if m.words.endswith(f"\n\n{WORDS}")]
    channel = slack.workspace.channels[told.channel]
    assert (channel.kind, channel.members) == ("im", {asked.user, slack.workspace.bot_user})
    await _until_owed(to, lambda rows: {r["state"] for r in rows} == {"delivered"})
    async with to.client() as client:
        states = (await client.get("/api/channels")).json()["channels"]
    assert states["slack"]["running"] is True
    assert slack.replies(asked) == []
    assert [c.arguments["channel"] for c in slack.asked("chat.postMessage")].count("C2") == 1
