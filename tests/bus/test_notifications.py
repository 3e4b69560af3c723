"""A message from an API client reaches one chat once. The client can query its state, and the agent knows it."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest

from bus.errors import DeliveryError
from bus.notifications.notifications import NotificationRequest, NotificationStatus
from bus.notifications.rows import HEADING
from bus.platform import OutgoingFile
from store.errors import RowConflict, RowNotFound
from tests.bus.harness import BusHarness, running_bus
from tests.eventually import eventually
from tests.fakes.platform import PART_CHARS, FakePlatform

ASKED = NotificationRequest(channel="fake", chat="c", text="Backup failed", key="backup-7")


async def state_of(harness: BusHarness, key: str = ASKED.key) -> str:
    return (await harness.bus.notifications.find("fake", key)).state


async def delivered(harness: BusHarness, key: str = ASKED.key) -> NotificationStatus:
    """Wait until a message is delivered."""
    await eventually(partial(state_of, harness, key), lambda state: state == "delivered")
    return await harness.bus.notifications.find("fake", key)


async def saved(folder: Path, name: str, content: bytes) -> OutgoingFile:
    await anyio.Path(folder / name).write_bytes(content)
    return OutgoingFile(path=folder / name, name=name, mime="text/csv", size_bytes=len(content))


async def test_a_message_is_sent_once_and_its_state_is_known(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        accepted = await harness.bus.notifications.send(ASKED)
        assert (accepted.key, accepted.is_repeat) == ("backup-7", False)
        known = await delivered(harness)
        assert (known.message_ids, known.error) == (["m1"], "")
        again = await harness.bus.notifications.send(ASKED)
        assert (again.state, again.is_repeat) == ("delivered", True)
        for other in (replace(ASKED, text="Other"), replace(ASKED, chat="d")):
            with pytest.raises(RowConflict):
                await harness.bus.notifications.send(other)
        unnamed = replace(ASKED, key="")
        keys = {(await harness.bus.notifications.send(unnamed)).key for _ in range(2)}
        await eventually(lambda: len(harness.platform.shown) == 3)
        assert len(keys) == 2
        assert {(one.chat, one.text) for one in harness.platform.shown} == {("c", "Backup failed")}
        with pytest.raises(RowNotFound):
            await harness.bus.notifications.find("fake", "never")


async def test_concurrent_requests_with_one_key_send_one_message(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        repeats: list[bool] = []

        async def send() -> None:
            repeats.append((await harness.bus.notifications.send(ASKED)).is_repeat)

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(send)
        assert sorted(repeats) == [False, *[True] * 19]
        await delivered(harness)
        assert harness.platform.texts == ["Backup failed"]


async def test_a_long_text_and_files_arrive_in_order_and_whole(tmp_path: Path) -> None:
    text = "a" * PART_CHARS + "b" * PART_CHARS + "c"
    content = bytes(range(256)) * 3_000
    async with running_bus(tmp_path) as harness:
        file = await saved(tmp_path, "report.csv", content)
        with_file = replace(ASKED, text=text, files=[file])
        sent = await harness.bus.notifications.send(with_file)
        assert len(sent.deliveries) == 4
        await anyio.Path(file.path).unlink()
        await delivered(harness)
        assert [one[0] for one in harness.platform.texts] == ["a", "b", "c"]
        assert harness.platform.files == [("report.csv", content)]
        other = await saved(tmp_path, "report.csv", content[1:])
        with pytest.raises(RowConflict):
            await harness.bus.notifications.send(replace(with_file, files=[other]))


async def test_a_refusal_is_told_in_the_platforms_words(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        file = await saved(tmp_path, "a.csv", b"1")
        harness.platform.fail("send", DeliveryError("the bot was blocked"))
        harness.platform.fail("send_file", DeliveryError("no files here"))
        await harness.bus.notifications.send(replace(ASKED, files=[file]))
        await eventually(partial(state_of, harness), lambda state: state == "failed")
        rows = (await harness.bus.notifications.find("fake", ASKED.key)).deliveries
        await eventually(lambda: harness.platform.calls == ["send", "send_file"])

        async def errors() -> list[str | None]:
            found = await harness.bus.notifications.find("fake", ASKED.key)
            return [row.error for row in found.deliveries]

        await eventually(errors, lambda found: found == ["the bot was blocked", "no files here"])
        assert harness.platform.shown == []
        await harness.bus.deliveries.resend(rows[0].id)
        await eventually(lambda: harness.platform.texts == ["Backup failed"])
        assert await state_of(harness) == "failed"
        await harness.bus.deliveries.resend(rows[1].id)
        await delivered(harness)
        for row in rows:
            await harness.bus.deliveries.discard(row.id)
        assert await state_of(harness) == "discarded"


async def test_an_accepted_message_is_sent_by_the_next_process(tmp_path: Path) -> None:
    away = FakePlatform()
    away.fail("send", DeliveryError("busy", retryable=True, retry_after_s=1.0), times=1000)
    async with running_bus(tmp_path, platform=away) as harness:
        await harness.bus.notifications.send(ASKED)
        await eventually(lambda: "send" in away.calls)
    async with running_bus(tmp_path) as harness:
        assert (await harness.bus.notifications.send(ASKED)).is_repeat
        await delivered(harness)
        assert harness.platform.texts == ["Backup failed"]


async def test_the_agent_reads_it_with_the_next_message_only(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("hi")
        await harness.expect_replies("Hello you")
        await harness.bus.notifications.send(replace(ASKED, text="Backup failed\nat nine"))
        await delivered(harness)
        await harness.send("what?")
        await eventually(lambda: len(harness.platform.texts) == 3)
        await harness.send("and now?")
        await eventually(lambda: len(harness.platform.texts) == 4)
        quoted = f"{HEADING}\n> Backup failed\n> at nine"
        assert harness.prompts() == ["hi", f"what?\n\n{quoted}", "and now?"]


async def test_a_person_is_found_by_their_private_chat_or_else_written_to_directly(
    tmp_path: Path,
) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/status", user="ann", chat="chat of ann")
        await eventually(lambda: len(harness.platform.shown) == 1)
        for key, person in (("1", "ann"), ("2", "bob")):
            request = replace(ASKED, key=key, chat=person, is_person=True)
            await harness.bus.notifications.send(request)
            await delivered(harness, key)
        assert [one.chat for one in harness.platform.shown[1:]] == ["chat of ann", "bob"]
        await harness.send("why?", user="bob", chat="chat of bob")
        await eventually(lambda: len(harness.prompts()) == 1)
        assert HEADING in harness.prompts()[0]


async def test_people_reply_to_it_in_a_group_without_a_mention(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/status", chat="another")
        await eventually(lambda: len(harness.platform.shown) == 1)
        await harness.bus.notifications.send(replace(ASKED, chat="room"))
        [message_id] = (await delivered(harness)).message_ids
        reply = {"chat": "room", "is_private": False, "is_addressed": False}
        assert await harness.send("why?", replies_to=("unknown",), **reply) == "not_addressed"
        assert await harness.send("why?", replies_to=(message_id,), **reply) == "accepted"
        await eventually(lambda: harness.platform.texts[1:] == ["Backup failed", "Hello you"])
        [run] = harness.server.runs
        message = run.body["input"]["messages"][0]
        assert "is_addressed" not in message["additional_kwargs"]
