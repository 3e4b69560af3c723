"""Commands in every place while a run hangs."""

from pathlib import Path

import anyio
import httpx

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.journeys.service import serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.feishu import own_words
from tests.people.platforms import PlatformServers


def answer(request: ModelRequest) -> ModelReply:
    if "hang" in request.last_user_text:
        return ModelReply(text="one two three", hang_after=1)
    return ModelReply(text=f"You said: {request.last_user_text}")


async def ask(user: ChatUser, command: str, *wanted: str) -> str:
    """Send a command and return its answer: one more message with these texts, apart from growing messages."""

    def answers() -> list[str]:
        return [text for text in user.bot_messages() if all(one in text for one in wanted)]

    before = len(answers())
    await user.send(command)
    return (await eventually(lambda: answers()[before:]))[0]


async def test_commands_answer_at_once_while_a_run_hangs(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=answer) as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        config["channels"]["telegram"]["admin_users"] = [1001]
        async with serving(tmp_path, config, "slack", "telegram", "feishu") as service:
            for user in platforms.users:
                await user.send("hang on")
            await model.until(lambda m: len(m.requests) == len(platforms.users))
            for user in platforms.users:
                if user.channel == "feishu":
                    await user.wait_for_message(
                        "one"
                    )  # The growing card appears before any other message.
            async with service.client() as client, anyio.create_task_group() as people:
                for user in platforms.users:
                    people.start_soon(_use_all_commands, user, client)
            await model.until(lambda m: all(r.closed_by_client for r in m.requests))
            async with anyio.create_task_group() as people:
                for user in platforms.users:
                    people.start_soon(_start_over, user)
            assert await service.stop() == 0
        assert platforms.violations == []


async def _use_all_commands(user: ChatUser, client: httpx.AsyncClient) -> None:
    await ask(user, "/help", "Available commands:", "/new — ", "/stop — ")
    status = await ask(user, "/status", "Active thread: ")
    thread = status.removeprefix("Active thread: ").strip()
    assert (await client.get(f"/api/threads/{thread}")).status_code == 200
    await ask(user, "/models", "Available models:", "fake")
    await ask(user, "/memory", "I remember nothing about")
    await ask(user, "/usage", "Usage in UTC days and months:", "today")
    is_admin = user.channel == "telegram"
    await ask(
        user,
        "/why",
        "Not accepted on telegram" if is_admin else "Only admins can use this command.",
    )
    await ask(user, "/undo", "Something is running: send ", "/stop first.")
    await ask(user, "/stop", "Stopped")


async def _start_over(user: ChatUser) -> None:
    await ask(user, "/new", "New conversation started.")
    await ask(user, "/bootstrap", "You said: ")
    await ask(user, "/usr/bin is a path", "You said: /usr/bin is a path")


async def test_bootstrap_and_new_do_not_wait_behind_a_hanging_run(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=answer) as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, "slack", "telegram", "feishu"):
            for user in platforms.users:
                await user.send("hang on")
            await model.until(lambda m: len(m.requests) == len(platforms.users))
            for user in platforms.users:
                await ask(user, "/bootstrap set me up")
                await user.send("/new")
                await user.send("fresh start")
            for user in platforms.users:
                await eventually(
                    user.bot_messages, lambda shown: any(t.endswith("fresh start") for t in shown)
                )


def recite(request: ModelRequest) -> ModelReply:
    """Reply with all messages of people in this conversation, and the number of the request."""
    said = [own_words(text) for text in request.user_texts]
    return ModelReply(text=f"Heard {', '.join(said)}.")


async def test_undo_and_retry_take_messages_back(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=recite) as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with (
            serving(tmp_path, config, "slack", "telegram", "feishu"),
            anyio.create_task_group() as people,
        ):
            for user in platforms.users:
                people.start_soon(_take_back, user)
        assert platforms.violations == []


async def _take_back(user: ChatUser) -> None:
    await ask(user, "alpha", "Heard alpha.")
    await ask(user, "beta", "Heard alpha, beta.")
    await _when_quiet(user, "/retry", "Heard alpha, beta.")
    await _when_quiet(user, "/undo", "Undone: “beta”.")
    await ask(user, "/undo", "Undone: “alpha”.")
    await ask(user, "/undo", "Nothing to undo.")
    await ask(user, "delta", "Heard delta.")


async def _when_quiet(user: ChatUser, command: str, wanted: str) -> None:
    """Repeat a command until it is accepted, because a card shows the whole answer a moment before its turn ends."""
    await eventually(
        lambda: ask(user, command), lambda answer: "Something is running" not in answer, every_s=0.1
    )
    await eventually(lambda: wanted in user.bot_messages()[-1])
