"""A broadcast reaches each chat of its audience once, and does not delay answers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from bus.config import ChannelPolicy
from bus.errors import DeliveryError
from bus.hooks.config import HookConfig
from bus.hooks.hooks import HookRequest
from bus.messages import Sender
from bus.notifications.broadcasts import BroadcastRequest
from bus.notifications.sender import IN_FLIGHT
from bus.platform import ChannelHealth, ConnectionState
from store.errors import RowConflict
from tests.bus.harness import OPEN, BusHarness, running_bus
from tests.bus.test_notifications import saved
from tests.eventually import eventually
from tests.fakes.platform import PART_CHARS, FakePlatform
from tests.hook_senders import SECRET, signed

ASKED = BroadcastRequest(text="Down tonight", key="tonight")


def shown_in(platform: FakePlatform, text: str = ASKED.text) -> list[str]:
    """Return the chats in which a text was shown, sorted."""
    return sorted(message.chat for message in platform.shown if message.text == text)


async def people_write(harness: BusHarness, names: Sequence[str]) -> None:
    """Let people ask for the status, and wait until each got the answer."""
    shown = len(harness.platform.shown)
    for name in names:
        await harness.send("/status", user=name, chat=f"chat of {name}")
    await harness.wait_until_finished()
    await eventually(lambda: len(harness.platform.shown) >= shown + len(names))


async def test_each_private_chat_gets_it_once_and_a_group_does_not(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await people_write(harness, ["ann", "bob"])
        await harness.send("again", user="ann", chat="chat of ann", topic="7")
        await harness.send("hi", user="ann", chat="room", is_private=False)
        broadcasts = harness.bus.broadcasts
        counted = await broadcasts.count(ASKED, ["fake"])
        assert (counted.chats, counted.key) == (2, "")
        receipt = await broadcasts.accept(ASKED, ["fake"])
        assert (receipt.chats, receipt.waiting, receipt.is_repeat) == (2, 2, False)
        await eventually(lambda: shown_in(harness.platform) == ["chat of ann", "chat of bob"])
        again = await broadcasts.accept(ASKED, ["fake"])
        assert (again.chats, again.waiting, again.is_repeat) == (2, 0, True)
        with pytest.raises(RowConflict):
            await broadcasts.accept(BroadcastRequest(text="Other", key="tonight"), ["fake"])
        groups = BroadcastRequest(text="For groups", audience="groups")
        assert (await broadcasts.accept(groups, ["fake"])).chats == 1
        await eventually(lambda: shown_in(harness.platform, "For groups") == ["room"])
        assert shown_in(harness.platform) == ["chat of ann", "chat of bob"]


async def test_an_event_of_another_system_does_not_hide_the_person_of_a_chat(
    tmp_path: Path,
) -> None:
    admitted = ChannelPolicy(allowed_users=["ann"])
    async with running_bus(tmp_path, policy=admitted) as harness:
        await people_write(harness, ["ann"])
        hook = HookConfig(secret=SECRET, channel="fake", chat="chat of ann", prompt="{number}")
        harness.bus.hooks.configure({"builds": hook})
        headers, body = signed({"number": 7}, "1", at=harness.clock())
        await harness.bus.hooks.receive("builds", HookRequest(headers=headers, body=body))
        assert (await harness.bus.broadcasts.count(ASKED, ["fake"])).chats == 1


async def test_a_text_of_several_messages_arrives_whole_in_each_chat(tmp_path: Path) -> None:
    text = "a" * PART_CHARS + "b" * PART_CHARS + "c"
    async with running_bus(tmp_path) as harness:
        names = [f"p{number}" for number in range(IN_FLIGHT + 2)]
        await people_write(harness, names)
        await harness.bus.broadcasts.accept(BroadcastRequest(text=text), ["fake"])

        def parts() -> dict[str, str]:
            shown: dict[str, str] = {}
            for message in harness.platform.shown[len(names) :]:
                shown[message.chat] = shown.get(message.chat, "") + message.text[0]
            return shown

        await eventually(parts, lambda found: found == {f"chat of {one}": "abc" for one in names})


async def test_its_files_reach_each_chat_and_are_stored_once(tmp_path: Path) -> None:
    content = bytes(range(256)) * 3_000  # several parts
    async with running_bus(tmp_path) as harness:
        names = [f"p{number}" for number in range(IN_FLIGHT + 2)]
        await people_write(harness, names)
        file = await saved(tmp_path, "map.png", content)
        asked = replace(ASKED, files=[file])
        assert (await harness.bus.broadcasts.accept(asked, ["fake"])).chats == len(names)
        await anyio.Path(file.path).unlink()
        await eventually(lambda: len(harness.platform.files) == len(names))
        assert harness.platform.files == [("map.png", content)] * len(names)
        assert shown_in(harness.platform) == sorted(f"chat of {name}" for name in names)
        await saved(tmp_path, "map.png", content)
        assert (await harness.bus.broadcasts.accept(asked, ["fake"])).is_repeat
        stored = await harness.database.read("SELECT DISTINCT file_id FROM outbox_file")
        assert len(stored) == 1
        await saved(tmp_path, "map.png", content[1:])
        with pytest.raises(RowConflict):
            await harness.bus.broadcasts.accept(asked, ["fake"])


async def test_a_file_that_a_chat_refused_can_be_sent_there_again(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await people_write(harness, ["ann", "bob"])
        files = [await saved(tmp_path, name, b"1") for name in ("a.csv", "b.csv")]
        harness.platform.fail("send_file", DeliveryError("no files here"))
        only_files = BroadcastRequest(files=files, key="files")
        await harness.bus.broadcasts.accept(only_files, ["fake"])
        await eventually(lambda: len(harness.platform.files) == 3)
        [row] = await eventually(lambda: harness.bus.outbox.list_recent(states=["failed"]))
        assert row.error == "no files here"
        await harness.bus.deliveries.resend(row.id)
        await eventually(lambda: len(harness.platform.files) == 4)
        assert sorted(name for name, _ in harness.platform.files) == ["a.csv"] * 2 + ["b.csv"] * 2
        [listed] = await harness.bus.broadcasts.list_recent(limit=1)
        assert listed.text == "[a.csv]"


async def test_people_reply_to_it_in_a_group_without_a_mention(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("hi", chat="room", is_private=False)
        await harness.expect_replies("Hello you")
        groups = BroadcastRequest(text="For groups", audience="groups")
        await harness.bus.broadcasts.accept(groups, ["fake"])
        await eventually(lambda: shown_in(harness.platform, "For groups") == ["room"])
        reply = {"chat": "room", "is_private": False, "is_addressed": False}
        sent = harness.platform.shown[-1].id

        async def replied() -> str:
            return await harness.send("why?", replies_to=(sent,), **reply)

        await eventually(replied, lambda disposition: disposition == "accepted")


async def test_only_chats_with_a_message_in_so_many_days_get_it(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await people_write(harness, ["ann"])
        harness.clock.ahead += 3 * 86_400
        await people_write(harness, ["bob"])
        lately = BroadcastRequest(text="x", active_days=2)
        assert (await harness.bus.broadcasts.count(lately, ["fake"])).chats == 1
        assert (await harness.bus.broadcasts.count(ASKED, ["fake"])).chats == 2


async def test_people_whom_the_policy_no_longer_admits_get_no_broadcast(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await people_write(harness, ["ann", "bob"])
        guest = Sender(user_id="eve", kind="guest")
        await harness.send("hi", sender=guest, chat="chat of eve")
    policy = OPEN.model_copy(update={"dm_policy": "allowlist", "allowed_users": ["ann"]})
    async with running_bus(tmp_path, policy=policy) as harness:
        receipt = await harness.bus.broadcasts.accept(ASKED, ["fake"])
        reach = receipt.reach["fake"]
        assert (reach.chats, reach.denied) == (1, 1)
        await eventually(lambda: shown_in(harness.platform) == ["chat of ann"])


async def test_a_person_whose_pairing_was_revoked_gets_nothing(tmp_path: Path) -> None:
    policy = ChannelPolicy(dm_policy="pairing")
    async with running_bus(tmp_path, policy=policy) as harness:
        bus = harness.bus
        for name in ("ann", "bob"):
            await harness.send("hi", user=name, chat=f"chat of {name}")
            [waiting] = [one for one in await bus.pairings.list_all() if not one.approved_at]
            await bus.approve(waiting.code)
        await people_write(harness, ["ann", "bob"])
        await bus.pairings.revoke("fake", "bob")
        reach = (await bus.broadcasts.count(ASKED, ["fake"])).reach["fake"]
        assert (reach.chats, reach.denied) == (1, 1)


async def test_an_accepted_broadcast_is_sent_by_the_next_process(tmp_path: Path) -> None:
    platform = FakePlatform()
    async with running_bus(tmp_path, platform=platform) as harness:
        await people_write(harness, [f"p{n}" for n in range(20)])
        harness.bus.broadcast_sender.stop()
        file = await saved(tmp_path, "map.png", b"1")
        asked = replace(ASKED, files=[file])
        await harness.bus.broadcasts.accept(asked, ["fake"])
        [listed] = await harness.bus.broadcasts.list_recent(limit=1)
        assert listed.text == ASKED.text
    assert len(shown_in(platform)) <= IN_FLIGHT
    async with running_bus(tmp_path, platform=platform):
        await eventually(lambda: len(platform.files) == 20)
    assert len(shown_in(platform)) == 20


async def test_while_the_platform_asks_to_wait_others_wait_too(tmp_path: Path) -> None:
    platform = FakePlatform()
    async with running_bus(tmp_path, platform=platform) as harness:
        await people_write(harness, [f"p{n}" for n in range(3 * IN_FLIGHT)])
        busy = DeliveryError("busy", retryable=True, retry_after_s=1.0)
        platform.fail("send", busy, times=IN_FLIGHT)
        await harness.bus.broadcasts.accept(ASKED, ["fake"])
        await eventually(lambda: len(shown_in(platform)) == 3 * IN_FLIGHT)
        refused = sorted(f"chat of p{n}" for n in range(3 * IN_FLIGHT))[:IN_FLIGHT]
        first = next(message.chat for message in platform.shown if message.text == ASKED.text)
        assert first in refused


class DisconnectedPlatform(FakePlatform):
    """A platform that is not connected at first. `asked`: how often the state was read."""

    is_connected = False
    asked = 0

    @override
    def health(self) -> ChannelHealth:
        self.asked += 1
        connected = ConnectionState.CONNECTED if self.is_connected else ConnectionState.RECONNECTING
        return ChannelHealth(state=connected)


async def test_a_channel_that_is_not_connected_gets_it_soon_after_it_is(tmp_path: Path) -> None:
    away = DisconnectedPlatform()
    async with running_bus(tmp_path, platform=away) as harness:
        await people_write(harness, ["ann"])
        await harness.bus.broadcasts.accept(ASKED, ["fake"])
        looks = away.asked
        await eventually(lambda: away.asked > looks)
        assert shown_in(away) == []
        away.is_connected = True
        await eventually(lambda: shown_in(away) == ["chat of ann"])


async def test_a_chat_that_refuses_it_fails_visibly_and_holds_up_nobody(tmp_path: Path) -> None:
    platform = FakePlatform()
    async with running_bus(tmp_path, platform=platform) as harness:
        await people_write(harness, [f"p{n}" for n in range(8)])
        platform.fail("send", DeliveryError("the bot was blocked"), times=1)
        await harness.bus.broadcasts.accept(ASKED, ["fake"])
        await eventually(lambda: len(shown_in(platform)) == 7)

        async def failed() -> list[str | None]:
            rows = await harness.bus.outbox.list_recent(states=["failed"])
            return [row.error for row in rows]

        await eventually(failed, lambda errors: errors == ["the bot was blocked"])


async def test_a_chat_is_known_after_the_inbox_has_forgotten_its_messages(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await people_write(harness, ["ann"])
        for column, table in (("received_at", "inbox"), ("updated_at", "conversation")):
            earlier = f"UPDATE {table} SET {column} = {column} - 8 * 86400"  # noqa: S608 - literals only
            await harness.database.execute(earlier, {})
    async with running_bus(tmp_path) as harness:
        # Housekeeping begins at startup. It records the chat, then deletes the message.
        await eventually(harness.bus.inbox.list_recent, lambda rows: not rows)
        await harness.bus.broadcasts.accept(ASKED, ["fake"])
        await eventually(lambda: shown_in(harness.platform) == ["chat of ann"])
