"""Edits and deletions: people change their messages on every platform, even while the agent works."""

from pathlib import Path

import anyio

from bus.locales import messages_for
from bus.locales.en import ENGLISH
from gateway.playground.feishu.server import FakeFeishu
from gateway.playground.feishu.state import FeishuMessage
from gateway.playground.slack.server import FakeSlack
from gateway.playground.slack.state import SlackMessage
from gateway.playground.telegram.server import TelegramServer
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.service import serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")
FOLDER = "/mnt/user-data/workspace"


class EditModel:
    """Never finishes an answer about the left side. Lists folders if told to, or about German until it may end."""

    def __init__(self) -> None:
        self.looks = 0
        self.may_end = False

    def answer(self, request: ModelRequest) -> ModelReply:
        said = request.user_texts
        if "look around" in said[-1] or ("German" in said[-1] and not self.may_end):
            # Another folder each time, because the agent is stopped if it repeats the same call.
            self.looks += 1
            look = ToolCall("ls", {"path": f"{FOLDER}/{self.looks}"}, id=f"look{self.looks}")
            return ModelReply(calls=(look,), first_token_delay_s=0.2)
        if "German" in said[-1]:
            return ModelReply(text="Nichts zu sehen.")
        if "left" in said[-1]:
            return ModelReply(text="Going left now", hang_after=2)
        return ModelReply(text=f"You said: {said[-1]}")


class AnnsChats:
    """Ann's private chats on all platforms, with the changes that she can make to her messages."""

    def __init__(self, slack: FakeSlack, telegram: TelegramServer, feishu: FakeFeishu) -> None:
        self.slack = slack
        self.telegram = telegram
        self.feishu = feishu

    def in_slack(self) -> list[str]:
        return self.slack.texts("DU1ANN", viewer="U1ANN")

    def in_telegram(self) -> list[str]:
        return [m.text for m in self.telegram.answers(1001)]

    def in_feishu(self) -> list[str]:
        return [m.text for m in self.feishu.answers("oc_dm_ou_alice")]


def working_on(model: FakeModelServer, text: str) -> int:
    """Number of active requests to the model that contain a text."""
    return len(
        [
            request
            for request in model.requests
            if text in request.last_user_text
            and not request.finished
            and not request.closed_by_client
        ]
    )


async def test_edited_and_deleted_messages_change_their_answers(tmp_path: Path) -> None:
    model = EditModel()
    async with PlatformServers() as platforms, FakeModelServer(answer=model.answer) as server:
        chats = AnnsChats(platforms.slack, platforms.telegram, platforms.feishu)
        config = {**with_model(server.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            on_slack = platforms.slack.dm("go left", user="U1ANN")
            on_telegram = platforms.telegram.dm("go left")
            on_feishu = await platforms.feishu.dm("go left")
            await eventually(lambda: working_on(server, "left") == 3)
            await _edit_what_runs(chats, on_slack, on_telegram)
            await _withdraw_what_runs(chats, server, on_feishu)
            await _edit_what_was_answered(chats, on_slack, on_telegram)
            await service.until_recorded()
            # Edits made while Parley is stopped take effect at the next start.
            await service.kill()
            platforms.telegram.edit(1001, on_telegram, "go home")
            await service.start()
            await service.until_connected(*PLATFORMS)
            await eventually(
                lambda: platforms.telegram.labels(1001).count(ENGLISH.button_rerun) == 1
            )
            platforms.telegram.press(1001, ENGLISH.button_rerun)
            await eventually(lambda: "You said: go home" in chats.in_telegram())
            assert await service.stop() == 0
        assert "Traceback" not in service.log.read_text()
        assert platforms.violations == []


async def _edit_what_runs(chats: AnnsChats, on_slack: SlackMessage, on_telegram: int) -> None:
    chats.slack.edit(on_slack, "go right")
    chats.telegram.edit(1001, on_telegram, "go right")
    await eventually(lambda: chats.in_slack() == ["You said: go right"])
    await eventually(lambda: chats.in_telegram() == ["You said: go right"])


async def _withdraw_what_runs(
    chats: AnnsChats, server: FakeModelServer, on_feishu: FeishuMessage
) -> None:
    await eventually(lambda: any("Going left" in text for text in chats.in_feishu()))
    await chats.feishu.withdraw(on_feishu)
    await eventually(lambda: chats.in_feishu() == [ENGLISH.stopped])
    # No request about the left side stays active, neither for the withdrawn message nor for the edited ones.
    await eventually(lambda: working_on(server, "left") == 0)
    await chats.feishu.dm("hello")
    await eventually(lambda: chats.in_feishu()[1:] == ["You said: hello"])
    assert "left" not in str(server.requests[-1].messages)


async def _edit_what_was_answered(
    chats: AnnsChats, on_slack: SlackMessage, on_telegram: int
) -> None:
    chats.slack.preview(on_slack)
    chats.slack.edit(on_slack, "go straight on")
    offered = messages_for("en", "@parley /").rerun_offer
    await eventually(lambda: offered in str(chats.in_slack()))
    [offer] = [m for m in chats.slack.messages("DU1ANN") if ENGLISH.button_rerun in m.buttons]
    chats.slack.press(offer, ENGLISH.button_rerun, user="U1ANN")
    await eventually(lambda: chats.in_slack()[-1] == "You said: go straight on")
    await eventually(lambda: not offer.buttons)
    chats.telegram.edit(1001, on_telegram, "go back")
    await eventually(lambda: ENGLISH.button_rerun in chats.telegram.labels(1001))
    chats.telegram.press(1001, ENGLISH.button_rerun)
    await eventually(lambda: "You said: go back" in chats.in_telegram())
    await eventually(lambda: ENGLISH.button_rerun not in chats.telegram.labels(1001))


async def test_messages_during_a_run_are_injected_into_it(tmp_path: Path) -> None:
    """`busy: steer`: one answer to both messages, even if Parley is killed after the agent consumed the second."""
    model = EditModel()
    async with PlatformServers() as platforms, FakeModelServer(answer=model.answer) as server:
        channels = {**platforms.channels, "session": {"busy": "steer"}}
        config = {**with_model(server.base_url), "channels": channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            async with anyio.create_task_group() as people:
                for user in platforms.private_users(1):
                    people.start_soon(_think_twice, user, server)
            await service.kill()
            model.may_end = True
            await service.start()
            await service.until_connected(*PLATFORMS)
            for user in platforms.private_users(1):
                await user.expect_messages("Nichts zu sehen.")
            async with service.client() as client:
                found = (await client.post("/api/threads/search", json={"limit": 10})).json()
                assert len(found) == 3
                for one in found:
                    messages = one["values"]["messages"]
                    said = [m["content"] for m in messages if m["type"] == "human"]
                    assert [text.split()[0] for text in said] == ["look", "In"]
                    assert messages[-1]["content"] == "Nichts zu sehen."
            for user in platforms.private_users(1):
                await user.send("thanks")
                await user.expect_messages("Nichts zu sehen.", "You said: thanks")
            assert await service.stop() == 0
        assert "Traceback" not in service.log.read_text()
        assert platforms.violations == []


async def _think_twice(user: ChatUser, server: FakeModelServer) -> None:

    first, second = f"look around on {user.channel}", f"In German on {user.channel}, please"
    await user.send(first)
    await eventually(
        lambda: sum(first in request.last_user_text for request in server.requests) > 1
    )
    await user.send(second)
    await eventually(lambda: any(second in request.last_user_text for request in server.requests))
