"""Buttons in every place: options, approvals across a kill, and retries, through the real adapters."""

from collections import Counter
from pathlib import Path

import anyio

from bus.locales.en import ENGLISH
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.service import serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.feishu import own_words
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")
ATTEMPTS = 3  # Attempts of one model call.
FILE = "/mnt/user-data/workspace/notes.txt"


class ButtonModel:
    """Asks for a color, writes a file to the requested path, and breaks off in all attempts of one call."""

    def __init__(self) -> None:
        self.written = 0
        self._broken: Counter[str] = Counter()

    def answer(self, request: ModelRequest) -> ModelReply:
        last = request.messages[-1]
        said = own_words(request.last_user_text)
        if last["role"] == "tool":
            is_refused = "did not approve" in str(last["content"])
            self.written += not is_refused
            return ModelReply(text="It stays unwritten." if is_refused else "It is written.")
        if "paint" in said:
            asked = {"question": "Which colour?", "options": ["red", "green"]}
            return ModelReply(calls=(ToolCall("ask_clarification", asked),))
        if "write" in said:
            return ModelReply(calls=(ToolCall("write_file", {"path": FILE, "content": said}),))
        if "break" in said and self._broken[said] < ATTEMPTS:
            self._broken[said] += 1
            return ModelReply(text="one two three", drop_after=1)
        return ModelReply(text=f"You said: {said}")


async def test_buttons_work_on_every_platform(tmp_path: Path) -> None:
    model = ButtonModel()
    async with PlatformServers() as platforms, FakeModelServer(answer=model.answer) as server:
        config = {
            **with_model(server.base_url),
            "channels": platforms.channels,
            "guardrails": {"enabled": True, "ask": ["write_file"]},
            "llm_retry": {"first_wait_s": 0},
        }
        async with serving(tmp_path, config, *PLATFORMS) as service:
            async with anyio.create_task_group() as people:
                for user in platforms.users:
                    people.start_soon(_choose_and_ask_to_write, user)
            await service.until_recorded()
            # Nothing is written before people answer, not even after a restart.
            await service.kill()
            await service.start()
            await service.until_connected(*PLATFORMS)
            assert model.written == 0
            async with anyio.create_task_group() as people:
                for number, user in enumerate(platforms.users):
                    people.start_soon(_decide, user, bool(number % 2))
            assert model.written == len(platforms.users) // 2
            # Failures come one at a time, because a model that fails repeatedly is not called for a while.
            for number in (0, 2, 5):
                await _try_again(platforms.users[number], number)
            assert await service.stop() == 0
        assert "Traceback" not in service.log.read_text()
        assert [user.misplaced_messages() for user in platforms.users] == [[]] * len(
            platforms.users
        )
        assert platforms.violations == []


async def _choose_and_ask_to_write(user: ChatUser) -> None:
    await user.send("please paint it")
    await user.wait_and_press("green")
    await user.wait_for_message("You said: green")
    await user.wait_for_message("Which colour?", "✓ green")
    await until_no(user, "red")
    await user.send("please write it")
    await user.wait_for_message("write_file", FILE)


async def _decide(user: ChatUser, approves: bool) -> None:
    await user.wait_and_press(ENGLISH.button_approve if approves else ENGLISH.button_deny)
    await user.wait_for_message("It is written." if approves else "It stays unwritten.")
    await user.wait_for_message(
        "write_file", ENGLISH.mark_approved if approves else ENGLISH.mark_denied
    )
    await until_no(user, ENGLISH.button_approve)


async def _try_again(user: ChatUser, number: int) -> None:
    await user.send(f"break {number}")
    await user.wait_and_press(ENGLISH.button_retry)
    await user.wait_for_message(f"You said: break {number}")
    await until_no(user, ENGLISH.button_retry)


async def until_no(user: ChatUser, label: str) -> None:
    """Wait until no button with this label is shown."""
    await eventually(user.button_labels, lambda labels: label not in labels)
