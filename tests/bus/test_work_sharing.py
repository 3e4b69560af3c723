"""Chats that wait for a run slot of their node go to one that has a free one; each message is answered once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count, islice
from pathlib import Path

import anyio
import pytest

from bus.config import BusConfig
from bus.messages import ConversationKey
from bus.nodes.work_sharing import FREE_SLOTS, list_waiting
from store.config import StoreConfig
from tests.bus.harness import BusHarness
from tests.bus.test_chats_of_nodes import TwoNodes, key_of, two_nodes
from tests.eventually import eventually

CONFIG = BusConfig(drain_s=0.2, max_queue=100, max_concurrent_runs=1)


@asynccontextmanager
async def busy_node(
    store: StoreConfig, home: Path
) -> AsyncIterator[tuple[TwoNodes, list[str], anyio.Event]]:
    """Run two nodes with a run slot each; the first one's is taken by its chat "0" until the event is set.

    The chats that are returned are to be that node's.
    """
    async with two_nodes(store, home, config=CONFIG) as nodes:
        one = nodes.one
        first, *chats = _chats_of(one, 4)
        gate = one.hold_next_run("long", "answer")
        await one.send("long work", chat=first, topic="a", event="first")
        await one.wait_for_runs(1)
        yield nodes, [first, *chats], gate
        gate.set()


def _chats_of(node: BusHarness, number: int) -> list[str]:
    """Return chats that nobody owns yet, and that are to be a node's."""
    own = (str(n) for n in count() if node.bus.owners.prefers(key_of(str(n))))
    return list(islice(own, number))


async def until_waiting(node: BusHarness, *chats: str) -> None:
    """Wait until turns of exactly these chats have waited too long."""

    def waiting() -> set[ConversationKey]:
        return {chat.key for chat in list_waiting(node.bus._workers.active)}

    await eventually(waiting, lambda found: found == {key_of(chat) for chat in chats})


async def test_a_chat_that_waits_goes_to_a_node_with_a_free_slot(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with busy_node(store, tmp_path) as (nodes, [_, chat, *_], gate):
        await nodes.one.send("hi", chat=chat, event="h1")
        await nodes.one.send("behind", chat=chat, event="h2")
        await eventually(lambda: nodes.two.platform.texts == ["Hello you", "Hello you"])
        assert nodes.one.platform.texts == []
        # From now on it is the other node's chat.
        await nodes.one.send("later", chat=chat, event="h3")
        await eventually(lambda: len(nodes.two.platform.texts) == 3)
        gate.set()
        await nodes.one.expect_replies("longanswer")
        await nodes.one.wait_until_finished()
        assert nodes.one.prompts() == ["long work", "hi", "behind", "later"]


async def test_a_chat_in_which_a_turn_runs_stays(store: StoreConfig, tmp_path: Path) -> None:
    async with busy_node(store, tmp_path) as (nodes, [busy, other, *_], gate):
        await nodes.one.send("same chat", chat=busy, topic="b", event="h1")
        await nodes.one.send("other chat", chat=other, event="h2")
        await eventually(lambda: nodes.two.platform.texts == ["Hello you"])
        assert await nodes.two.bus.owners.find(key_of(busy)) == nodes.one.database.nodes.number
        gate.set()
        await nodes.one.expect_replies("longanswer", "Hello you")
        assert nodes.one.prompts() == ["long work", "other chat", "same chat"]


async def test_a_node_gets_no_more_chats_than_it_has_free_slots(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with busy_node(store, tmp_path) as (nodes, [_, *chats], gate):
        held = nodes.two.hold_next_run("held")
        for chat in chats:
            await nodes.one.send(f"hi from {chat}", chat=chat, event=chat)
        await nodes.one.wait_for_runs(2)
        assert await nodes.one.bus._context.calls.call(2, FREE_SLOTS, "") == "0"
        await until_waiting(nodes.one, *chats[1:])
        assert await nodes.one.bus.sharing.share() == 0
        held.set()
        await eventually(lambda: len(nodes.two.platform.texts) == 3)
        gate.set()
        await nodes.one.expect_replies("longanswer")


@pytest.mark.parametrize("pause", range(3))
async def test_messages_that_arrive_while_chats_are_given_away_are_answered_once_and_in_order(
    store: StoreConfig, tmp_path: Path, pause: int
) -> None:
    async with busy_node(store, tmp_path) as (nodes, [_, *chats], gate):
        # The other node has no slot until all of them wait.
        held = nodes.two.hold_next_run("held")
        await nodes.two.send("hold", chat=_chats_of(nodes.two, 1)[0], event="hold")
        await nodes.one.wait_for_runs(2)
        texts = [f"{chat} {number}" for number in range(6) for chat in chats]
        for text in texts[:3]:
            await nodes.one.send(text, chat=text.split()[0], event=text)
        await until_waiting(nodes.one, *chats)
        held.set()
        async with anyio.create_task_group() as group:
            group.start_soon(nodes.one.bus.sharing.share)
            for number, text in enumerate(texts[3:]):
                for _ in range(pause):
                    await anyio.lowlevel.checkpoint()
                node = (nodes.one, nodes.two)[number % 2]
                await node.send(text, chat=text.split()[0], event=text)
        await eventually(lambda: len(nodes.two.platform.texts) == len(texts) + 1)
        gate.set()
        await nodes.one.expect_replies("longanswer")
        told = nodes.one.prompts()[2:]
        assert sorted(told) == sorted(texts)
        for chat in chats:
            theirs = [text for text in told if text.startswith(f"{chat} ")]
            assert theirs == sorted(theirs)
