"""An event from another system is a message to the agent. Each delivery counts once, and runs no command."""

from pathlib import Path

import anyio
import pytest

from bus.errors import ConversationFull, HookRejected, IntakeClosed
from bus.hooks.config import HookConfig
from bus.hooks.hooks import HookOutcome, HookRequest
from bus.locales.en import ENGLISH
from bus.platform import Disposition
from tests.bus.harness import STEER, BusHarness, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import Script
from tests.hook_senders import SECRET, signed, signed_by_github

BUILDS = HookConfig(secret=SECRET, channel="fake", chat="room", prompt="Build {number}: report it.")
TEXT = "Build <hook_data>7</hook_data>: report it."


async def receive(
    harness: BusHarness, delivery: str, *, number: object = 7, name: str = "builds"
) -> HookOutcome:
    headers, body = signed({"number": number}, delivery, at=harness.clock())
    return await harness.bus.hooks.receive(name, HookRequest(headers=headers, body=body))


async def test_an_event_is_answered_in_its_chat_once(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.bus.hooks.configure({"builds": BUILDS})
        assert await receive(harness, "1") is HookOutcome.ACCEPTED
        assert await receive(harness, "1", number=8) is HookOutcome.DUPLICATE
        await harness.expect_replies("Hello you")
        [shown] = harness.platform.shown
        [run] = harness.server.runs
        [message] = run.body["input"]["messages"]
        assert (shown.chat, message["content"]) == ("room", TEXT)
        extra = message["additional_kwargs"]
        assert extra["sender"] == {"id": "hook:builds", "name": "builds"}
        assert (extra["origin"], run.body["context"]["origin"]) == ("hook", "hook:builds")
        assert run.body["context"]["user_id"] == "fake::hook%3Abuilds"
        assert await receive(harness, "2") is HookOutcome.ACCEPTED
        await harness.expect_replies("Hello you", "Hello you")


async def test_the_same_delivery_at_another_hook_is_another_event(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.bus.hooks.configure({"builds": BUILDS, "tests": BUILDS})
        for name in ("builds", "tests"):
            assert await receive(harness, "1", name=name) is HookOutcome.ACCEPTED


async def test_a_delivery_is_known_when_a_person_has_written_in_the_chat_meanwhile(
    tmp_path: Path,
) -> None:
    async with running_bus(tmp_path) as harness:
        harness.bus.hooks.configure({"builds": BUILDS})
        assert await receive(harness, "1") is HookOutcome.ACCEPTED
        await harness.send("/status", chat="room", is_private=False)
        harness.clock.ahead += 61.0
        assert await receive(harness, "2") is HookOutcome.ACCEPTED
        workspaces = {row.key.workspace for row in await harness.bus.inbox.list_recent()}
        assert workspaces == {"", "w"}
        assert await receive(harness, "1") is HookOutcome.DUPLICATE


async def test_hooks_change_while_the_service_runs(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        with pytest.raises(HookRejected, match="no hook"):
            await receive(harness, "1")
        harness.bus.hooks.configure({"builds": BUILDS})
        assert await receive(harness, "1") is HookOutcome.ACCEPTED
        other = BUILDS.model_copy(update={"secret": "another secret ..."})
        harness.bus.hooks.configure({"builds": other})
        with pytest.raises(HookRejected):
            await receive(harness, "2")
        harness.bus.hooks.configure({"builds": BUILDS.model_copy(update={"channel": "gone"})})
        with pytest.raises(IntakeClosed, match="channel gone"):
            await receive(harness, "2")


async def test_a_ping_of_github_is_answered_and_becomes_no_message(tmp_path: Path) -> None:
    pushes = BUILDS.model_copy(update={"form": "github", "prompt": "{event} by {sender.login}"})
    async with running_bus(tmp_path) as harness:
        harness.bus.hooks.configure({"pushes": pushes})
        for event, outcome in (("ping", "pong"), ("push", "accepted"), ("push", "duplicate")):
            headers, body = signed_by_github({"sender": {"login": "ann"}}, "1", event)
            request = HookRequest(headers=headers, body=body)
            assert await harness.bus.hooks.receive("pushes", request) == outcome
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["<hook_data>push</hook_data> by <hook_data>ann</hook_data>"]


async def test_events_that_find_the_queue_full_are_sent_again(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.bus.hooks.configure({"builds": BUILDS})
        gate = harness.hold_next_run("first")
        await receive(harness, "0")
        await harness.wait_for_runs(1)
        outcomes: dict[str, HookOutcome | None] = {}

        async def send(delivery: str) -> None:
            try:
                outcomes[delivery] = await receive(harness, delivery)
            except ConversationFull:
                outcomes[delivery] = None

        deliveries = [str(number) for number in range(1, 31)]
        async with anyio.create_task_group() as tasks:
            for delivery in deliveries:
                tasks.start_soon(send, delivery)
        refused = [delivery for delivery in deliveries if outcomes[delivery] is None]
        assert len(refused) == 10  # channels.max_queue is 20
        gate.set()
        await harness.wait_until_finished()
        for delivery in refused:
            await send(delivery)
        assert [outcomes[delivery] for delivery in refused] == ["accepted"] * 10
        await eventually(lambda: len(harness.platform.texts) == 31)
        assert all("queue" not in text for text in harness.platform.texts)
        assert harness.bus.counters()["fake", Disposition.QUEUE_FULL] == 10


async def test_an_event_is_no_command_and_interrupts_nobody(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=STEER) as harness:
        harness.bus.hooks.configure({"builds": BUILDS.model_copy(update={"prompt": "/stop"})})
        gate = harness.hold_next_run("the answer")
        room = {"chat": "room", "is_private": False}
        await harness.send("a question", **room)
        await harness.wait_for_runs(1)
        assert await receive(harness, "1") is HookOutcome.ACCEPTED
        gate.set()
        await harness.expect_replies("the answer", "Hello you")
        assert harness.prompts() == ["a question", "/stop"]


async def test_an_event_decides_nothing_that_waits_for_a_person(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        yes = BUILDS.model_copy(update={"chat": "c", "prompt": "approve"})
        harness.bus.hooks.configure({"builds": yes})
        asking = {"action_requests": [{"name": "bash", "args": {"command": "ls"}}]}
        harness.server.scripts.append(Script(words=("May I?",), interrupts=(asking,)))
        await harness.send("list it")
        await eventually(lambda: len(harness.platform.shown) == 1)
        assert await receive(harness, "1") is HookOutcome.ACCEPTED
        await eventually(lambda: len(harness.platform.shown) == 2)
        assert len(harness.server.runs) == 1
        assert harness.platform.texts[1] == ENGLISH.approval_waits.format(name="u")


async def test_it_may_say_nothing_in_private_too(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/status")
        await eventually(lambda: len(harness.platform.shown) == 1)
        harness.bus.hooks.configure({"builds": BUILDS.model_copy(update={"chat": "c"})})
        harness.server.scripts.append(Script(words=("NO_REPLY",)))
        await receive(harness, "1")
        await harness.wait_for_runs(1)
        await harness.wait_until_finished()
        assert len(harness.platform.shown) == 1
        [message] = harness.server.runs[0].body["input"]["messages"]
        assert message["additional_kwargs"]["chat_type"] == "private"


async def test_people_reply_to_its_answer_in_a_group_without_a_mention(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/status", chat="another")
        await eventually(lambda: len(harness.platform.shown) == 1)
        harness.bus.hooks.configure({"builds": BUILDS})
        await receive(harness, "1")
        await eventually(lambda: len(harness.platform.shown) == 2)
        await harness.wait_until_finished()
        reply = {"chat": "room", "is_private": False, "is_addressed": False}
        answer = harness.platform.shown[1].id

        async def sent() -> str:
            return await harness.send("why?", replies_to=(answer,), **reply)

        await eventually(sent, lambda disposition: disposition == "accepted")


async def test_nothing_is_accepted_while_the_service_stops(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.bus.hooks.configure({"builds": BUILDS})
        harness.bus.local_intake.close()
        with pytest.raises(IntakeClosed):
            await receive(harness, "1")
        rows = await harness.bus.inbox.list_recent()
        assert rows == []


async def test_rejected_requests_are_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_bus(tmp_path) as harness:
        harness.bus.hooks.configure({"builds": BUILDS})

        async def rejected(times: int) -> int:
            for _ in range(times):
                with pytest.raises(HookRejected):
                    await harness.bus.hooks.receive("builds", HookRequest(headers={}, body=b""))
            return sum("a request was rejected" in record.message for record in caplog.records)

        assert await rejected(20) == 1
        harness.clock.ahead += 61.0
        assert await rejected(20) == 2
