"""A chat whose ID changes continues, even after a restart, and nothing in it counts as new."""

from pathlib import Path
from typing import Any

from bus.platform import Disposition
from tests.bus.harness import BusHarness, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph
from tests.fakes.platform import FakePlatform


async def say(harness: BusHarness, text: str, chat: str, event: str, **more: object) -> Disposition:
    fields: dict[str, Any] = {"is_private": False, "track_replies": True, "topic": event, **more}
    return await harness.send(text, chat=chat, event=event, **fields)


def scopes(server: FakeLangGraph) -> set[str]:
    return {run.body["context"]["memory_scope"] for run in server.runs}


async def test_a_conversation_goes_on_over_two_chat_migrations_and_a_restart(
    tmp_path: Path,
) -> None:
    async with FakeLangGraph() as server:
        async with running_bus(tmp_path, server=server) as harness:
            assert await say(harness, "one", "g1", "1") is Disposition.ACCEPTED
            await harness.wait_for_runs(1)
            await eventually(lambda: harness.platform.texts == ["Hello you"])
            for old, new in (("g1", "g2"), ("g1", "g2"), ("g2", "g3")):
                await harness.bus.intake.migrate_chat("fake", "w", old, new)
        platform = FakePlatform()
        async with running_bus(tmp_path, server=server, platform=platform) as harness:
            # The same number in the new chat is a different message in a different conversation.
            assert await say(harness, "new", "g3", "9", topic="1") is Disposition.ACCEPTED
            known = "g2:g1:1"
            assert await say(harness, "two", "g3", "8", replies_to=(known,)) is Disposition.ACCEPTED
            await harness.wait_for_runs(3)
            await eventually(lambda: len(platform.texts) == 2)
        first, *later = server.runs
        assert sorted(run.thread_id == first.thread_id for run in later) == [False, True]
        assert scopes(server) == {"room:fake:w:g1"}


async def test_pending_deliveries_are_sent_after_the_migration(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await say(harness, "one", "g1", "1")
        await harness.bus.intake.migrate_chat("fake", "w", "g1", "g2")
        await eventually(lambda: harness.platform.texts == ["Hello you"])
        await eventually(harness.bus.outbox.list_open, lambda rows: not rows)


async def test_no_chat_moves_in_a_circle(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        circle = [("g1", "g2"), ("g2", "g3"), ("g3", "g1"), ("g3", "g2"), ("g4", "g4")]
        for old, new in circle:
            await harness.bus.intake.migrate_chat("fake", "w", old, new)
        await say(harness, "one", "g3", "1")
        await say(harness, "two", "g4", "2")
        await harness.wait_for_runs(2)
        assert scopes(harness.server) == {"room:fake:w:g1", "room:fake:w:g4"}


async def test_chat_migrations_of_other_channels_and_workspaces_change_nothing(
    tmp_path: Path,
) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.bus.intake.migrate_chat("other", "w", "g1", "g2")
        await harness.bus.intake.migrate_chat("fake", "v", "g1", "g2")
        await say(harness, "one", "g1", "1")
        await harness.wait_for_runs(1)
        assert scopes(harness.server) == {"room:fake:w:g1"}
        found = await harness.bus.conversations.list_recent()
        assert [conversation.key.chat for conversation in found] == ["g1"]
