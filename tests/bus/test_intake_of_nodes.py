"""Several nodes: events that the receiving node handles, whichever node owns the chat."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

from bus.config import ChannelPolicy
from bus.messages import Sender
from bus.platform import Disposition
from store.config import StoreConfig
from store.conversations import ConversationKey
from tests.bus.harness import BusHarness, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph
from tests.ready_nodes import until_ready

POLICY = ChannelPolicy(dm_policy="open", group_policy="pairing", admin_users=["boss"])
GROUP = ConversationKey(channel="fake", workspace="w", chat="g")


@asynccontextmanager
async def owner_and_other(
    store: StoreConfig, home: Path
) -> AsyncIterator[tuple[BusHarness, BusHarness]]:
    """Run two nodes. Yield the one that should own the group first."""
    async with (
        FakeLangGraph() as server,
        running_bus(home / "one", server=server, store=store, policy=POLICY) as one,
        running_bus(home / "two", server=server, store=store, policy=POLICY) as two,
    ):
        await until_ready(one.database, two.database)
        yield (one, two) if one.bus.owners.prefers(GROUP) else (two, one)


async def test_a_group_is_approved_at_every_node_by_who_adds_the_bot_at_one(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with owner_and_other(store, tmp_path) as (owner, other):
        await other.bus.intake.handle_bot_added(GROUP, Sender(user_id="boss"))
        for harness, event in ((owner, "e1"), (other, "e2")):
            said = await harness.send("hi", event=event, user="ann", chat="g", is_private=False)
            assert said is Disposition.ACCEPTED
        await owner.expect_replies("Hello you", "Hello you")


async def test_why_lists_the_refusals_of_all_nodes_at_any_node(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with owner_and_other(store, tmp_path) as (owner, other):
        chat = {"chat": own_chat(owner), "is_private": False}
        await owner.send("hey", event="e1", user="ann", **chat, is_addressed=False)
        await other.send("you", event="e2", user="ben", **chat, is_addressed=False)
        stored = owner.bus.refused.count_by_reason
        await eventually(lambda: stored("fake"), lambda counts: counts == {"not_addressed": 2})
        await other.send("/why", event="e3", user="boss", chat=own_chat(owner))
        await eventually(lambda: owner.platform.texts)
        _, *here, _, first = owner.platform.texts[0].splitlines()
        assert {line.partition("from ")[2].partition(":")[0] for line in here} == {"`ann`", "`ben`"}
        assert first.startswith("• 2 × `not_addressed`")


def own_chat(harness: BusHarness) -> str:
    """Return the name of a chat that this node owns, because the owner answers commands."""
    names = (f"c{number}" for number in count())
    return next(name for name in names if harness.bus.owners.prefers(replace(GROUP, chat=name)))
