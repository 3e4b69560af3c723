"""Files that are sent together are one turn, in order, even if other messages arrive in between."""

from pathlib import Path
from typing import Any

from bus.config import ChannelPolicy
from bus.messages import Attachment, MessageEdit
from bus.platform import Disposition
from store.database import Transaction
from tests.bus.harness import (
    BusHarness,
    FakeGateway,
    attachment,
    inbound_message,
    running_bus,
)
from tests.bus.test_uploads import DownloadingPlatform
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph

TEAM = ChannelPolicy(dm_policy="open", group_policy="mention")


def platform() -> DownloadingPlatform:
    made = DownloadingPlatform()
    made.content = {"r": [b"x"]}
    return made


def names(gateway: FakeGateway) -> list[str]:
    return [name for _, name, _ in gateway.uploads]


async def send(
    harness: BusHarness, name: str, text: str = "", *, album: str = "A", **changes: object
) -> Disposition:
    return await harness.send(text, attachments=(attachment(name),), album=album, **changes)


async def test_an_album_is_one_turn_with_all_its_files(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        assert await send(harness, "1.pdf", "compare these") is Disposition.ACCEPTED
        assert await send(harness, "2.pdf") is Disposition.ACCEPTED
        assert await send(harness, "3.pdf", "and this") is Disposition.ACCEPTED
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["[1.pdf] compare these\n[3.pdf] and this"]
        assert names(harness.gateway) == ["1.pdf", "2.pdf", "3.pdf"]


async def test_a_part_that_comes_again_is_not_added_again(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        await send(harness, "1.pdf", event="a")
        await send(harness, "2.pdf", event="b")
        assert await send(harness, "2.pdf", event="b") is Disposition.DUPLICATE
        assert await send(harness, "1.pdf", event="a") is Disposition.DUPLICATE
        await harness.expect_replies("Hello you")
        assert await send(harness, "2.pdf", event="b") is Disposition.DUPLICATE
        assert names(harness.gateway) == ["1.pdf", "2.pdf"]


async def test_a_message_after_an_album_is_answered_after_it(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        await send(harness, "1.pdf", "compare")
        await send(harness, "2.pdf")
        await harness.send("and then this")
        await harness.wait_for_runs(2)
        assert harness.prompts() == ["compare", "and then this"]
        assert names(harness.gateway) == ["1.pdf", "2.pdf"]


async def test_two_albums_are_two_turns(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        for album in ("A", "B"):
            for number in (1, 2):
                await send(harness, f"{album}{number}.pdf", album, album=album)
        await harness.wait_for_runs(2)
        assert harness.prompts() == ["[A1.pdf] A\n[A2.pdf] A", "[B1.pdf] B\n[B2.pdf] B"]


async def test_a_late_part_in_a_group_stays_in_the_conversation(tmp_path: Path) -> None:
    group: dict[str, Any] = {"is_private": False, "chat": "g", "track_replies": True}
    async with running_bus(tmp_path, platform=platform(), policy=TEAM) as harness:
        first = {"topic": "e1", "event": "e1", **group}
        await send(harness, "1.pdf", "look", **first)
        await harness.expect_replies("Hello you")
        late = {"topic": "e2", "event": "e2", "is_addressed": False, **group}
        assert await send(harness, "2.pdf", **late) is Disposition.ACCEPTED
        await harness.wait_for_runs(2)
        assert len(harness.server.threads) == 1
        other = {"topic": "e3", "event": "e3", "is_addressed": False, "user": "x", **group}
        assert await send(harness, "3.pdf", **other) is Disposition.NOT_ADDRESSED


async def test_a_part_without_the_mention_belongs_to_the_one_that_has_it(tmp_path: Path) -> None:
    group: dict[str, Any] = {"is_private": False, "chat": "g", "track_replies": True}
    async with running_bus(tmp_path, platform=platform(), policy=TEAM) as harness:
        await send(harness, "1.pdf", "look", topic="e1", event="e1", **group)
        later = {"topic": "e2", "event": "e2", "is_addressed": False, **group}
        assert await send(harness, "2.pdf", **later) is Disposition.ACCEPTED
        stranger = {"topic": "e3", "event": "e3", "is_addressed": False, "user": "x", **group}
        assert await send(harness, "3.pdf", **stranger) is Disposition.NOT_ADDRESSED
        await harness.expect_replies("Hello you")
        assert names(harness.gateway) == ["1.pdf", "2.pdf"]
        # A reply to its second picture continues the conversation.
        reply = {
            "topic": "e4",
            "event": "e4",
            "is_addressed": False,
            "replies_to": ("e2",),
            **group,
        }
        assert await harness.send("the second one", **reply) is Disposition.ACCEPTED
        await harness.wait_for_runs(2)
        assert len(harness.server.threads) == 1


async def test_files_that_come_before_the_mention_belong_to_it(tmp_path: Path) -> None:
    group: dict[str, Any] = {"is_private": False, "chat": "g", "track_replies": True}
    async with running_bus(tmp_path, platform=platform(), policy=TEAM) as harness:
        early = {"topic": "e1", "event": "e1", "is_addressed": False, **group}
        assert await send(harness, "1.pdf", **early) is Disposition.NOT_ADDRESSED
        stranger = {"topic": "e0", "event": "e0", "is_addressed": False, "user": "x", **group}
        assert await send(harness, "0.pdf", **stranger) is Disposition.NOT_ADDRESSED
        await send(harness, "2.pdf", "look", topic="e2", event="e2", **group)
        await harness.expect_replies("Hello you")
        assert names(harness.gateway) == ["1.pdf", "2.pdf"]
        assert harness.prompts() == ["[2.pdf] look"]


async def test_a_restart_in_between_loses_nothing_and_answers_once(tmp_path: Path) -> None:
    async with FakeLangGraph() as server:
        async with running_bus(tmp_path, platform=platform(), server=server) as harness:
            await send(harness, "1.pdf", "compare", event="a")
        assert server.runs == []
        async with running_bus(tmp_path, platform=platform(), server=server) as harness:
            assert await send(harness, "1.pdf", "compare", event="a") is Disposition.DUPLICATE
            assert await send(harness, "2.pdf", event="b") is Disposition.ACCEPTED
            await harness.expect_replies("Hello you")
            assert harness.prompts() == ["compare"]
            assert names(harness.gateway) == ["1.pdf", "2.pdf"]


async def test_a_caption_edited_at_once_counts(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        await send(harness, "1.pdf", "wrong", event="a")
        edited = inbound_message("right", "edit", album="A", attachments=(attachment("1.pdf"),))
        change = MessageEdit(event_id="edit", key=edited.key, message_id="a", edited=edited)
        assert await harness.bus.intake.handle_edit(change) is Disposition.ACCEPTED
        await send(harness, "2.pdf", event="b")
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["right"]
        assert names(harness.gateway) == ["1.pdf", "2.pdf"]


async def test_an_incomplete_album_is_queued_after_its_deadline(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        await harness.send("", attachments=(Attachment(name="a.csv", ref="r"),), album="A")
        await eventually(lambda: harness.server.runs)
        assert harness.prompts() == ["[Attached: a.csv]"]


async def test_an_album_whose_row_became_unreadable_is_answered_as_it_was(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        await send(harness, "1.pdf", "compare these")

        def spoil(tx: Transaction) -> None:
            tx.run("UPDATE inbox SET body = '{}'")

        await harness.database.transaction(spoil)
        await harness.expect_replies("Hello you")
        assert names(harness.gateway) == ["1.pdf"]
        await harness.send("next", chat="other")
        await harness.wait_for_runs(2)
