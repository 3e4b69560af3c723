"""Two nodes on one PostgreSQL database: each chat has one of them, whichever accepts its messages."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from bus.messages import OutboundText, ReplyTarget, encode_inbound, encode_outbound
from bus.platform import Disposition
from store.chat_owners import ChatOwners
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.inbox import InboxRow, InboxStore, NewInboxRow
from store.nodes import preferred_node
from store.outbox import NewOutboxRow, OutboxStore
from tests.bus.harness import BusHarness, inbound_message, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph
from tests.fakes.platform import FakePlatform
from tests.fakes.postgres import MISSING, PostgresServer


@pytest.fixture
def store(postgres: PostgresServer | None) -> Iterator[StoreConfig]:
    if postgres is None:
        pytest.skip(MISSING)
    with postgres.database() as url:
        yield StoreConfig(url=url)


@dataclass
class TwoNodes:
    """Two buses and the agent's server of both."""

    one: BusHarness
    two: BusHarness
    server: FakeLangGraph

    def owner_first(self, chat: str) -> tuple[BusHarness, BusHarness]:
        """Return the node that is to own a chat, and the other one."""
        owners = self.one.bus.owners
        if owners.prefers(key_of(chat)):
            return self.one, self.two
        return self.two, self.one

    def texts(self) -> list[str]:
        return [*self.one.platform.texts, *self.two.platform.texts]


def new_row(chat: str) -> NewInboxRow:
    message = inbound_message("hi", "e", chat=chat)
    return NewInboxRow(
        key=message.key,
        event_id="e",
        message_id="e",
        kind="chat",
        body=encode_inbound(message),
        received_at=time.time(),
    )


def key_of(chat: str) -> ConversationKey:
    return ConversationKey(channel="fake", workspace="w", chat=chat)


@asynccontextmanager
async def two_nodes(store: StoreConfig, home: Path) -> AsyncIterator[TwoNodes]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(FakeLangGraph())
        one, two = [
            await stack.enter_async_context(
                running_bus(home / name, platform=FakePlatform(), server=server, store=store)
            )
            for name in ("one", "two")
        ]
        await eventually(lambda: len(one.database.nodes.living) == 2)
        yield TwoNodes(one, two, server)


async def test_messages_of_a_chat_are_answered_in_order_by_its_owner(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        owner, other = nodes.owner_first("c")
        for number in range(20):
            harness = other if number % 3 else owner
            assert await harness.send(f"m{number}", event=f"e{number}") is Disposition.ACCEPTED
        await eventually(lambda: len(owner.platform.texts) == 20)
        assert nodes.two.prompts() == [f"m{number}" for number in range(20)]
        assert other.platform.texts == []
        # What the platform sends twice is a duplicate at the other node, too.
        assert await owner.send("again", event="e1") is Disposition.DUPLICATE
        assert await other.send("again", event="e0") is Disposition.DUPLICATE


async def test_chats_are_divided_whichever_node_accepts(store: StoreConfig, tmp_path: Path) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        for number in range(24):
            await nodes.one.send("hi", chat=f"c{number}")
        await eventually(lambda: len(nodes.texts()) == 24)
        assert len(nodes.one.platform.texts) >= 4
        assert len(nodes.two.platform.texts) >= 4


async def test_messages_accepted_by_both_at_once_are_answered_once_and_in_order(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with two_nodes(store, tmp_path) as nodes:

        async def send(harness: BusHarness, sender: str) -> None:
            for number in range(8):
                event = f"{sender}{number}"
                await harness.send(event, event=event)

        async with anyio.create_task_group() as group:
            group.start_soon(send, nodes.one, "a")
            group.start_soon(send, nodes.two, "b")
        await eventually(lambda: len(nodes.texts()) == 16, within_s=60)
        prompts = nodes.one.prompts()
        for sender in ("a", "b"):
            assert [one for one in prompts if one[0] == sender] == [
                f"{sender}{number}" for number in range(8)
            ]
        rows = await nodes.one.bus.inbox.list_recent()
        assert [row.state for row in rows] == ["done"] * 16
        by_seq = sorted(rows, key=lambda row: row.seq)
        assert prompts == [row.event_id for row in by_seq]


async def test_a_message_stops_waiting_at_the_owner_for_a_command_at_the_other_node(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        owner, other = nodes.owner_first("c")
        owner.hold_next_run("never")
        await other.send("long work")
        await owner.wait_for_runs(1)
        await other.send("/stop")
        await eventually(lambda: len(owner.platform.texts) >= 1)
        await owner.wait_until_finished()
        assert not any("never" in text for text in nodes.texts())


async def test_a_delivery_is_sent_by_the_owner_of_its_chat(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        owner, other = nodes.owner_first("c")
        await owner.send("hi")
        await eventually(lambda: len(owner.platform.texts) == 1)
        body = OutboundText(channel="fake", reply_target=ReplyTarget(chat="c"), markdown="notice")
        row = NewOutboxRow(key="n", conversation=key_of("c"), body=encode_outbound(body))
        await other.bus._context.delivery.enqueue(key_of("c"), [row])
        await eventually(lambda: "notice" in owner.platform.texts)
        assert other.platform.texts == []


async def test_a_node_takes_over_what_one_that_stopped_left(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with (
        FakeLangGraph() as server,
        running_bus(tmp_path / "two", server=server, store=store) as two,
    ):
        async with running_bus(tmp_path / "one", server=server, store=store) as one:
            await eventually(lambda: len(one.database.nodes.living) == 2)
            [chat, *_] = [
                str(number) for number in range(100) if one.bus.owners.prefers(key_of(str(number)))
            ]
            gate = one.hold_next_run("first", "answer")
            await two.send("first", chat=chat)
            await one.wait_for_runs(1)
            await two.send("second", chat=chat, event="second")
        assert two.platform.texts == []
        gate.set()
        await two.expect_replies("firstanswer", "Hello you")
        await two.wait_until_finished()


async def test_what_a_dead_node_accepted_and_was_to_send_is_taken_over(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with running_bus(tmp_path / "bus", store=store) as harness:
        async with Database.open(store, tmp_path / "dead") as database:
            await eventually(lambda: len(harness.database.nodes.living) == 2)
            owners = ChatOwners(database)
            [chat, *_] = [
                str(number) for number in range(100) if owners.prefers(key_of(str(number)))
            ]
            accepted = await InboxStore(database, owners=owners).accept(new_row(chat), cap=9)
            assert isinstance(accepted, InboxRow)
            assert accepted.owner == database.nodes.number
            body = OutboundText(
                channel="fake", reply_target=ReplyTarget(chat=chat), markdown="unsent"
            )
            row = NewOutboxRow(key="n", conversation=key_of(chat), body=encode_outbound(body))
            await OutboxStore(database).enqueue([row])
            # A node that lives keeps its chats.
            await anyio.sleep(1.2)
            assert harness.platform.texts == []
        await eventually(lambda: sorted(harness.platform.texts) == ["Hello you", "unsent"])


async def test_a_lost_signal_delays_a_message(store: StoreConfig, tmp_path: Path) -> None:
    async with (
        running_bus(tmp_path / "bus", store=store) as harness,
        Database.open(store, tmp_path / "silent") as database,
    ):
        await eventually(lambda: len(database.nodes.living) == 2)
        owners = ChatOwners(database)
        [chat, *_] = [
            str(number) for number in range(100) if not owners.prefers(key_of(str(number)))
        ]
        # The store alone sends no signal.
        await InboxStore(database, owners=owners).accept(new_row(chat), cap=9)
        await harness.expect_replies("Hello you")


async def test_new_chats_prefer_one_node_and_keep_it(store: StoreConfig, tmp_path: Path) -> None:
    async with (
        Database.open(store, tmp_path / "one") as one,
        Database.open(store, tmp_path / "two") as two,
    ):
        await eventually(lambda: len(one.nodes.living) == 2)
        here, there = ChatOwners(one), ChatOwners(two)
        chats = [key_of(str(number)) for number in range(20)]
        claimed = [await here.claim(chat) for chat in chats]
        assert set(claimed) == {one.nodes.number, two.nodes.number}
        assert [await there.claim(chat) for chat in chats] == claimed
        assert claimed == [
            preferred_node(two.nodes.living, f"fake\0w\0{chat.chat}") for chat in chats
        ]
