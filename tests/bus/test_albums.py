"""Files that are sent together are one turn, in their order, whatever happens in between."""

from pathlib import Path
from typing import Any

from bus.config import ChannelPolicy
from bus.messages import Attachment, MessageEdit
from bus.platform import Disposition
from store.database import Transaction
from tests.bus.rig import FakeGateway, House, file, house, said, until
from tests.bus.test_uploads import DownloadingPlatform
from tests.fakes.langgraph import FakeLangGraph

TEAM = ChannelPolicy(dm_policy="open", group_policy="mention")


def platform() -> DownloadingPlatform:
    made = DownloadingPlatform()
    made.content = {"r": [b"x"]}
    return made


def names(gateway: FakeGateway) -> list[str]:
    return [name for _, name, _, _ in gateway.uploads]


async def send(
    home: House, name: str, text: str = "", *, album: str = "A", **changes: object
) -> Disposition:
    return await home.say(text, attachments=(file(name),), album=album, **changes)


async def test_an_album_is_one_turn_with_all_its_files(tmp_path: Path) -> None:
    async with house(tmp_path, platform=platform()) as home:
        assert await send(home, "1.pdf", "compare these") is Disposition.ACCEPTED
        assert await send(home, "2.pdf") is Disposition.ACCEPTED
        assert await send(home, "3.pdf", "and this") is Disposition.ACCEPTED
        await home.reads("Hello you")
        assert home.prompts() == ["compare these\nand this"]
        assert names(home.gateway) == ["1.pdf", "2.pdf", "3.pdf"]


async def test_a_part_that_comes_again_is_not_added_again(tmp_path: Path) -> None:
    async with house(tmp_path, platform=platform()) as home:
        await send(home, "1.pdf", event="a")
        await send(home, "2.pdf", event="b")
        assert await send(home, "2.pdf", event="b") is Disposition.DUPLICATE
        assert await send(home, "1.pdf", event="a") is Disposition.DUPLICATE
        await home.reads("Hello you")
        assert await send(home, "2.pdf", event="b") is Disposition.DUPLICATE
        assert names(home.gateway) == ["1.pdf", "2.pdf"]


async def test_what_is_said_after_an_album_is_answered_after_it(tmp_path: Path) -> None:
    async with house(tmp_path, platform=platform()) as home:
        await send(home, "1.pdf")
        await send(home, "2.pdf")
        await home.say("what do they say?")
        await home.runs(2)
        assert home.prompts()[1] == "what do they say?"
        assert names(home.gateway) == ["1.pdf", "2.pdf"]


async def test_two_albums_are_two_turns(tmp_path: Path) -> None:
    async with house(tmp_path, platform=platform()) as home:
        for album in ("A", "B"):
            for number in (1, 2):
                await send(home, f"{album}{number}.pdf", album, album=album)
        await home.runs(2)
        assert home.prompts() == ["A\nA", "B\nB"]


async def test_a_late_part_in_a_group_stays_in_the_conversation(tmp_path: Path) -> None:
    group: dict[str, Any] = {"is_private": False, "chat": "g", "track_replies": True}
    async with house(tmp_path, platform=platform(), policy=TEAM) as home:
        first = {"topic": "e1", "event": "e1", **group}
        await send(home, "1.pdf", "look", **first)
        await home.reads("Hello you")
        late = {"topic": "e2", "event": "e2", "is_addressed": False, **group}
        assert await send(home, "2.pdf", **late) is Disposition.ACCEPTED
        await home.runs(2)
        assert len(home.server.threads) == 1
        other = {"topic": "e3", "event": "e3", "is_addressed": False, "user": "x", **group}
        assert await send(home, "3.pdf", **other) is Disposition.NOT_ADDRESSED


async def test_a_part_without_the_mention_belongs_to_the_one_that_has_it(tmp_path: Path) -> None:
    group: dict[str, Any] = {"is_private": False, "chat": "g", "track_replies": True}
    async with house(tmp_path, platform=platform(), policy=TEAM) as home:
        await send(home, "1.pdf", "look", topic="e1", event="e1", **group)
        later = {"topic": "e2", "event": "e2", "is_addressed": False, **group}
        assert await send(home, "2.pdf", **later) is Disposition.ACCEPTED
        stranger = {"topic": "e3", "event": "e3", "is_addressed": False, "user": "x", **group}
        assert await send(home, "3.pdf", **stranger) is Disposition.NOT_ADDRESSED
        await home.reads("Hello you")
        assert names(home.gateway) == ["1.pdf", "2.pdf"]
        # A reply to its second picture goes on there.
        reply = {
            "topic": "e4",
            "event": "e4",
            "is_addressed": False,
            "replies_to": ("e2",),
            **group,
        }
        assert await home.say("the second one", **reply) is Disposition.ACCEPTED
        await home.runs(2)
        assert len(home.server.threads) == 1


async def test_files_that_come_before_the_mention_belong_to_it(tmp_path: Path) -> None:
    group: dict[str, Any] = {"is_private": False, "chat": "g", "track_replies": True}
    async with house(tmp_path, platform=platform(), policy=TEAM) as home:
        early = {"topic": "e1", "event": "e1", "is_addressed": False, **group}
        assert await send(home, "1.pdf", **early) is Disposition.NOT_ADDRESSED
        stranger = {"topic": "e0", "event": "e0", "is_addressed": False, "user": "x", **group}
        assert await send(home, "0.pdf", **stranger) is Disposition.NOT_ADDRESSED
        await send(home, "2.pdf", "look", topic="e2", event="e2", **group)
        await home.reads("Hello you")
        assert sorted(names(home.gateway)) == ["1.pdf", "2.pdf"]
        assert home.prompts() == ["look"]


async def test_a_restart_in_between_loses_nothing_and_answers_once(tmp_path: Path) -> None:
    async with FakeLangGraph() as server:
        async with house(tmp_path, platform=platform(), server=server) as home:
            await send(home, "1.pdf", "compare", event="a")
        assert server.runs == []
        async with house(tmp_path, platform=platform(), server=server) as home:
            assert await send(home, "1.pdf", "compare", event="a") is Disposition.DUPLICATE
            assert await send(home, "2.pdf", event="b") is Disposition.ACCEPTED
            await home.reads("Hello you")
            assert home.prompts() == ["compare"]
            assert names(home.gateway) == ["1.pdf", "2.pdf"]


async def test_a_caption_edited_at_once_counts(tmp_path: Path) -> None:
    async with house(tmp_path, platform=platform()) as home:
        await send(home, "1.pdf", "wrong", event="a")
        edited = said("right", "edit", album="A", attachments=(file("1.pdf"),))
        change = MessageEdit(event_id="edit", key=edited.key, message_id="a", edited=edited)
        assert await home.bus.intake.handle_edit(change) is Disposition.ACCEPTED
        await send(home, "2.pdf", event="b")
        await home.reads("Hello you")
        assert home.prompts() == ["right"]
        assert names(home.gateway) == ["1.pdf", "2.pdf"]


async def test_an_album_alone_does_not_wait_for_ever(tmp_path: Path) -> None:
    async with house(tmp_path, platform=platform()) as home:
        await home.say("", attachments=(Attachment(name="a.csv", ref="r"),), album="A")
        await until(lambda: home.server.runs)
        assert home.prompts() == ["[Attached: a.csv]"]


async def test_an_album_whose_row_became_unreadable_is_answered_as_it_was(tmp_path: Path) -> None:
    async with house(tmp_path, platform=platform()) as home:
        await send(home, "1.pdf", "compare these")

        def spoil(tx: Transaction) -> None:
            tx.run("UPDATE inbox SET body = '{}'")

        await home.database.transaction(spoil)
        await home.reads("Hello you")
        assert names(home.gateway) == ["1.pdf"]
        await home.say("next", chat="other")
        await home.runs(2)
