"""A person takes over conversations on three platforms: across kill -9, with two nodes, and with both databases."""

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx

from bus.locales.en import ENGLISH
from bus.notifications.rows import TAKEOVER_HEADING
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.journeys.nodes import two_nodes
from tests.journeys.service import Service, serving, with_model
from tests.journeys.test_buttons import ButtonModel
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")
ASKED, WRITTEN, LATER = "Is anybody there?", "Ann is here", "and now?"


async def threads_of(service: Service, users: list[ChatUser]) -> dict[str, str]:
    """Return the thread of each person's conversation, by their chat."""
    async with service.client() as client:
        listed = (await client.get("/api/channels/conversations")).json()["rows"]
    found = {row["chat"]: str(row["thread_id"]) for row in listed if row["thread_id"]}
    assert found.keys() == {user.chat for user in users}
    return found


async def request(
    service: Service,
    method: str,
    thread: str,
    rest: str = "",
    **options: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Send a request about a takeover until it is answered, as an impatient operator does."""

    async def answered() -> httpx.Response | None:
        try:
            async with service.client() as client:
                address = f"/api/conversations/{thread}/takeover{rest}"
                return await client.request(method, address, **options)
        except httpx.TransportError:
            return None

    response = await eventually(answered)
    assert response is not None
    assert response.is_success, response.text
    return dict(response.json())


async def write(service: Service, thread: str, text: str, key: str) -> None:
    await request(service, "POST", thread, "/messages", json={"text": text, "key": key})


async def left_to_people(service: Service) -> list[str]:
    """Return the messages that the bot left to the person."""
    async with service.client() as client:
        found = (await client.get("/api/messages?state=taken_over&limit=200")).json()["rows"]
    return sorted(row["preview"] for row in found)


async def restart(service: Service) -> None:
    await service.kill()
    await service.start()
    await service.until_connected(*PLATFORMS)


async def all_send(users: list[ChatUser], text: str) -> list[str]:
    return [(await user.send(text)).message_id for user in users]


async def test_a_takeover_survives_kills_between_all_steps(
    tmp_path: Path, with_database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), **with_database, "channels": platforms.channels}
        users = platforms.users
        async with serving(tmp_path, config, *PLATFORMS) as service:
            threads = await greeted(service, users)
            for thread in threads.values():
                await request(service, "POST", thread)
            await restart(service)
            calls = len(model.requests)
            await _the_bot_is_silent(service, users)
            await restart(service)
            for user in users:
                await write(service, threads[user.chat], WRITTEN, f"key-{user.chat}")
            await restart(service)
            for user in users:
                await write(service, threads[user.chat], WRITTEN, f"key-{user.chat}")
                await user.wait_for_message(WRITTEN)
            assert len(model.requests) == calls
            await _it_is_handed_back(service, users, threads)
            await restart(service)
            await all_send(users, LATER)
            for user in users:
                await user.wait_for_message(f"You said: {LATER}")
                _was_told(user)
            _the_agent_knows_it(model.requests, users)
        assert platforms.violations == []


async def greeted(service: Service, users: list[ChatUser]) -> dict[str, str]:
    """Let the bot answer each person once. Return the threads."""
    await all_send(users, "hi")
    for user in users:
        await user.expect_messages("You said: hi")
    await service.until_recorded()
    return await threads_of(service, users)


async def _the_bot_is_silent(service: Service, users: list[ChatUser]) -> None:
    sent = await all_send(users, ASKED)
    await eventually(partial(left_to_people, service), lambda found: len(found) == len(users))
    for user, message in zip(users, sent, strict=True):
        assert user.working_signs(message) == []


async def _it_is_handed_back(
    service: Service, users: list[ChatUser], threads: dict[str, str]
) -> None:
    for user in users:
        back = await request(service, "DELETE", threads[user.chat])
        assert WRITTEN in back["summary"]
        assert ASKED in back["summary"]


def _was_told(user: ChatUser) -> None:
    told = [one for one in user.bot_messages() if not one.startswith("You said")]
    # If the sender of a message is killed, Telegram cannot tell whether the message arrived, so it may be sent again.
    told = [*dict.fromkeys(told)] if user.channel == "telegram" else told
    assert told == [ENGLISH.taken_over, WRITTEN, ENGLISH.handed_back]
    assert user.misplaced_messages() == []


def _the_agent_knows_it(requests: list[ModelRequest], users: list[ChatUser]) -> None:
    prompts = [one.last_user_text for one in requests if LATER in one.last_user_text]
    assert len(prompts) == len(users)
    for prompt in prompts:
        lines = prompt[prompt.index(TAKEOVER_HEADING) :].splitlines()
        assert lines[1].startswith("> Person ")
        assert lines[1].endswith(ASKED)
        assert f"> Operator, writing as you: {WRITTEN}" in lines


def _never(_request: ModelRequest) -> ModelReply:
    return ModelReply(text="never to be finished", hang_after=1)


async def test_running_answers_stop_though_the_service_is_killed(
    tmp_path: Path, with_database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {
            **with_model(model.base_url),
            **with_database,
            "channels": {**platforms.channels, "takeover": {"tell_people": False}},
        }
        users = platforms.users
        async with serving(tmp_path, config, *PLATFORMS) as service:
            threads = await greeted(service, users)
            usual = model.answer
            model.answer, calls = _never, len(model.requests)
            await all_send(users, "a long task")
            await eventually(lambda: len(model.requests) == calls + len(users))
            async with anyio.create_task_group() as operators:
                for thread in threads.values():
                    operators.start_soon(request, service, "POST", thread)
                await service.kill()
                await service.start()
            await service.until_connected(*PLATFORMS)
            model.answer = usual
            await eventually(
                partial(left_to_people, service), lambda found: len(found) == len(users)
            )
            for thread in threads.values():
                await request(service, "DELETE", thread)
            await all_send(users, LATER)
            for user in users:
                await user.wait_for_message(f"You said: {LATER}")
                assert not [one for one in user.bot_messages() if "to be finished" in one]
        assert platforms.violations == []


async def test_any_node_takes_over_and_the_other_one_may_die(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), **database, "channels": platforms.channels}
        users = platforms.users
        async with two_nodes(tmp_path, config) as nodes:
            threads = await greeted(nodes[0], users)
            for number, user in enumerate(users):
                await request(nodes[number % 2], "POST", threads[user.chat])
            calls = len(model.requests)
            await nodes[0].kill()
            await all_send(users, ASKED)
            await eventually(
                partial(left_to_people, nodes[1]), lambda found: len(found) == len(users)
            )
            for user in users:
                await write(nodes[1], threads[user.chat], WRITTEN, f"key-{user.chat}")
                await user.wait_for_message(WRITTEN)
            await nodes[0].start()
            await nodes[0].until_connected(*PLATFORMS)
            assert len(model.requests) == calls
            for number, user in enumerate(users):
                await request(nodes[number % 2], "DELETE", threads[user.chat])
            await all_send(users, LATER)
            for user in users:
                await user.wait_for_message(f"You said: {LATER}")
                assert user.bot_messages().count(WRITTEN) == 1
            _the_agent_knows_it(model.requests, users)
        assert platforms.violations == []


async def test_an_approval_is_withdrawn_and_the_agent_goes_on(tmp_path: Path) -> None:
    model = ButtonModel()
    async with PlatformServers() as platforms, FakeModelServer(answer=model.answer) as server:
        config = {
            **with_model(server.base_url),
            "channels": platforms.channels,
            "guardrails": {"enabled": True, "ask": ["write_file"]},
        }
        users = platforms.users
        async with serving(tmp_path, config, *PLATFORMS) as service:
            await all_send(users, "write it down")
            for user in users:
                await eventually(
                    user.button_labels, lambda labels: ENGLISH.button_approve in labels
                )
            await service.until_recorded()
            threads = await threads_of(service, users)
            for user in users:
                await request(service, "POST", threads[user.chat])
                await eventually(
                    user.button_labels, lambda labels: ENGLISH.button_approve not in labels
                )
            await all_send(users, "approve")
            await eventually(
                partial(left_to_people, service), lambda found: len(found) == len(users)
            )
            for thread in threads.values():
                await request(service, "DELETE", thread)
            await all_send(users, LATER)
            for user in users:
                await user.wait_for_message("You said:", LATER)
            assert model.written == 0
        assert platforms.violations == []
