"""Two nodes on one PostgreSQL database: one of them owns each chat, no matter which one receives its messages."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from bus.config import BusConfig, RateLimit
from bus.inbound.rate_limits import COUNTED
from bus.locales.en import ENGLISH
from bus.messages import (
    OutboundText,
    PressResponse,
    ReplyTarget,
    decode_inbound,
    encode_inbound,
    encode_outbound,
)
from bus.nodes.failover import SEARCHES_OF_ALL
from bus.platform import Disposition
from store.chat_owners import SharedOwners
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.inbox import InboxRow, InboxStore, NewInboxRow
from store.node_calls import HAND_OVER, open_node_calls
from store.nodes import preferred_node
from store.outbox import NewOutboxRow, OutboxStore, insert_outbox_rows
from store.transaction import Transaction
from tests.bus.harness import BusHarness, attachment, inbound_message, running_bus
from tests.bus.test_button_presses import press_of, token_of
from tests.bus.test_message_edits import delete, edit
from tests.bus.test_uploads import DownloadingPlatform
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.platform import ButtonPlatform, FakePlatform
from tests.ready_nodes import owner_of, until_heard, until_ready


@dataclass
class TwoNodes:
    """Two buses and the agent's server of both."""

    one: BusHarness
    two: BusHarness
    server: FakeLangGraph

    def owner_first(self, chat: str) -> tuple[BusHarness, BusHarness]:
        """Return the node that should own a chat, and the other one."""
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
async def two_nodes(
    store: StoreConfig,
    home: Path,
    platform: Callable[[], FakePlatform] = FakePlatform,
    *,
    config: BusConfig | None = None,
) -> AsyncIterator[TwoNodes]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(FakeLangGraph())
        one, two = [
            await stack.enter_async_context(
                running_bus(
                    home / name,
                    platform=platform(),
                    server=server,
                    store=store,
                    config=config or BusConfig(drain_s=0.2, max_queue=100),
                )
            )
            for name in ("one", "two")
        ]
        await until_ready(one.database, two.database)
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
        # An event that the platform sends twice is a duplicate at the other node, too.
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
                assert await harness.send(event, event=event) is Disposition.ACCEPTED

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


async def test_an_old_delivery_is_sent_again_though_newer_ones_were_sent_since(
    store: StoreConfig, tmp_path: Path
) -> None:
    body = OutboundText(channel="fake", reply_target=ReplyTarget(chat="c"), markdown="old")
    row = NewOutboxRow(key="old", conversation=key_of("c"), body=encode_outbound(body))

    def fail(tx: Transaction) -> None:
        insert_outbox_rows(tx, [row], now=time.time())
        tx.run("UPDATE outbox SET state = 'failed' WHERE key = 'old'")

    async with two_nodes(store, tmp_path) as nodes:
        owner, other = nodes.owner_first("c")
        await owner.database.transaction(fail)
        await owner.send("hi")
        await eventually(lambda: len(owner.platform.texts) == 1)
        await owner.bus._context.delivery.wait_idle()
        failed = await other.bus.outbox.find("old")
        assert failed is not None
        await other.bus.deliveries.resend(failed.id)
        await eventually(lambda: "old" in owner.platform.texts)
        assert other.platform.texts == []


async def test_an_old_delivery_that_is_open_again_is_found_without_a_signal(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with running_bus(tmp_path, store=store) as harness:
        await harness.send("hi", event="e0")
        await eventually(lambda: len(harness.platform.texts) == 1)
        await harness.send("hi", event="e1")
        await eventually(lambda: len(harness.platform.texts) == 2)
        await harness.bus._context.delivery.wait_idle()
        first, *_ = sorted(await harness.bus.outbox.list_recent(), key=lambda row: row.id)
        reopen = "UPDATE outbox SET state = 'pending', attempts = 0 WHERE id = :id"
        await harness.database.transaction(lambda tx: tx.run(reopen, {"id": first.id}))
        for _ in range(SEARCHES_OF_ALL):
            await harness.bus.failover.search()
        await eventually(lambda: len(harness.platform.texts) == 3)


async def test_a_node_takes_over_the_chats_of_a_stopped_node(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with (
        FakeLangGraph() as server,
        running_bus(tmp_path / "two", server=server, store=store) as two,
    ):
        async with running_bus(tmp_path / "one", server=server, store=store) as one:
            await until_ready(one.database, two.database)
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


async def test_messages_and_deliveries_of_a_dead_node_are_taken_over(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with running_bus(tmp_path / "bus", store=store) as harness:
        async with Database.open(store, tmp_path / "dead") as database:
            await database.nodes.mark_ready()
            await until_ready(harness.database, database)
            owners = SharedOwners(database)
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
            # A live node keeps its chats.
            assert await harness.bus.failover.search() == 0
        await eventually(lambda: sorted(harness.platform.texts) == ["Hello you", "unsent"])


async def test_a_lost_signal_delays_a_message(store: StoreConfig, tmp_path: Path) -> None:
    async with (
        running_bus(tmp_path / "bus", store=store) as harness,
        Database.open(store, tmp_path / "silent") as database,
    ):
        await database.nodes.mark_ready()
        await until_ready(harness.database, database)
        owners = SharedOwners(database)
        [chat, *_] = [
            str(number) for number in range(100) if not owners.prefers(key_of(str(number)))
        ]
        # The store alone sends no signal.
        await InboxStore(database, owners=owners).accept(new_row(chat), cap=9)
        await harness.expect_replies("Hello you")


async def test_a_chat_is_answered_by_the_node_that_runs_its_channel(
    store: StoreConfig, tmp_path: Path
) -> None:
    """Configurations differ, for example while the nodes get a new channel one by one."""
    new, chats = FakePlatform("new"), [str(number) for number in range(100)]
    async with (
        FakeLangGraph() as server,
        running_bus(tmp_path / "one", server=server, store=store) as one,
        running_bus(tmp_path / "two", server=server, store=store, others={"new": new}) as two,
    ):
        await until_ready(one.database, two.database)
        prefers = one.bus.owners.prefers
        [chat, *_] = [
            chat
            for chat in chats
            if prefers(ConversationKey(channel="new", workspace="w", chat=chat))
        ]
        await two.send("hi", channel="new", chat=chat)
        await eventually(lambda: new.texts == ["Hello you"])
        assert (one.platform.texts, two.platform.texts) == ([], [])


async def test_a_signal_that_cannot_be_read_is_dropped(store: StoreConfig, tmp_path: Path) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        owner, other = nodes.owner_first("c")
        for payload in ("no JSON", "7", "[1]", '["fake", "w"]'):
            other.database.signals.publish(f"chats:{owner.bus.owners.number}", payload)
        await other.send("hi")
        await owner.expect_replies("Hello you")


async def test_a_node_that_joins_gets_no_chat_before_it_listens(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with (
        running_bus(tmp_path / "bus", store=store) as harness,
        Database.open(store, tmp_path / "starting") as starting,
    ):
        await eventually(lambda: len(harness.database.nodes.living) == 2)
        for number in range(20):
            await harness.send("hi", chat=f"c{number}")
        await eventually(lambda: len(harness.platform.texts) == 20)
        await eventually(harness.bus.outbox.list_open, lambda rows: not rows)
        # Later it gets the chats that it should own.
        await starting.nodes.mark_ready()
        await until_ready(harness.database, starting)
        owners = SharedOwners(starting)
        [chat, *_] = [f"c{number}" for number in range(20) if owners.prefers(key_of(f"c{number}"))]
        await eventually(lambda: owner_of(starting, key_of(chat)), lambda owner: owner is None)


async def test_a_node_that_begins_to_stop_gets_no_chat(store: StoreConfig, tmp_path: Path) -> None:
    """A turn still runs there."""
    async with (
        FakeLangGraph() as server,
        running_bus(
            tmp_path / "one", server=server, store=store, config=BusConfig(drain_s=60)
        ) as one,
        running_bus(tmp_path / "two", server=server, store=store) as two,
        anyio.create_task_group() as group,
    ):
        await until_ready(one.database, two.database)
        chats = [str(number) for number in range(100)]
        busy, *others = [chat for chat in chats if one.bus.owners.prefers(key_of(chat))]
        # The fake server ends no run for a node that stops.
        gate = one.hold_next_run("long", "answer")
        await one.send("long work", chat=busy)
        await one.wait_for_runs(1)
        group.start_soon(one.bus.drain)
        await eventually(lambda: two.bus.owners.prefers(key_of(busy)))
        for chat in others[:5]:
            await two.send("hi", chat=chat, event=chat)
        await eventually(lambda: len(two.platform.texts) == 5)
        assert one.platform.texts == []
        gate.set()
        await eventually(lambda: [*one.platform.texts, *two.platform.texts[5:]] == ["longanswer"])


async def test_new_chats_prefer_one_node_and_keep_it(store: StoreConfig, tmp_path: Path) -> None:
    async with (
        Database.open(store, tmp_path / "one") as one,
        Database.open(store, tmp_path / "two") as two,
    ):
        await one.nodes.mark_ready()
        await two.nodes.mark_ready()
        await until_ready(one, two)
        here, there = SharedOwners(one), SharedOwners(two)
        chats = [key_of(str(number)) for number in range(20)]
        claimed = [await here.claim(chat) for chat in chats]
        assert set(claimed) == {one.nodes.number, two.nodes.number}
        assert [await there.claim(chat) for chat in chats] == claimed
        assert claimed == [
            preferred_node(two.nodes.living, f"fake\0w\0{chat.chat}", otherwise=0) for chat in chats
        ]


async def test_an_edit_at_the_other_node_changes_the_turn_that_runs(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        owner, other = nodes.owner_first("c")
        owner.hold_next_run("wrong")
        await other.send("wrogn", event="m")
        await owner.wait_for_runs(1)
        assert await edit(other, "m", "right", "edit") is Disposition.ACCEPTED
        # The platform sends it again, to the other node.
        assert await edit(owner, "m", "right", "edit") is Disposition.UNCHANGED
        await eventually(lambda: owner.platform.texts == ["Hello you"])
        assert nodes.one.prompts()[-1] == "right"


async def test_a_deletion_at_the_other_node_ends_the_turn(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        owner, other = nodes.owner_first("c")
        owner.hold_next_run("never")
        await owner.send("oops", event="m")
        await owner.wait_for_runs(1)
        assert await delete(other, "m") is Disposition.ACCEPTED
        await owner.wait_until_finished()
        assert nodes.texts() == []


async def test_a_stop_button_works_at_the_other_node(store: StoreConfig, tmp_path: Path) -> None:
    def platform() -> ButtonPlatform:
        return ButtonPlatform("fake", notice_after_s=0.01)

    async with two_nodes(store, tmp_path, platform) as nodes:
        owner, other = nodes.owner_first("c")
        owner.server.scripts.append(Script(hang_after=1))
        await other.send("long work")
        await owner.wait_for_runs(1)
        await eventually(lambda: owner.platform.shown)
        message = owner.platform.shown[0]
        pressed = press_of(token_of(message.buttons, ENGLISH.button_stop), message)
        response = await other.bus.intake.handle_button_press(pressed)
        assert response == PressResponse(text=ENGLISH.press_stopping)
        await eventually(lambda: owner.server.runs[0].status == "interrupted")


async def test_files_of_an_album_that_come_to_both_nodes_are_one_turn(
    store: StoreConfig, tmp_path: Path
) -> None:
    def platform() -> DownloadingPlatform:
        made = DownloadingPlatform()
        made.content = {"r": [b"x"]}
        return made

    async with two_nodes(store, tmp_path, platform) as nodes:
        owner, other = nodes.owner_first("c")
        for number, harness in enumerate((other, owner, other)):
            sent = harness.send(
                f"part {number}",
                event=f"e{number}",
                attachments=(attachment(f"{number}.pdf"),),
                album="A",
            )
            assert await sent is Disposition.ACCEPTED
        await eventually(lambda: owner.platform.texts == ["Hello you"])
        assert owner.prompts() == ["[0.pdf] part 0\n[1.pdf] part 1\n[2.pdf] part 2"]
        assert other.platform.texts == []


async def test_a_file_and_its_words_that_come_to_both_nodes_are_one_turn(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        for first_at_owner in (True, False):
            chat = f"chat {first_at_owner}"
            owner, other = nodes.owner_first(chat)
            await owner.send("hello", event=f"{chat} 1", chat=chat)
            await eventually(nodes.texts)
            await owner.wait_until_finished()
            first, second = (owner, other) if first_at_owner else (other, owner)
            file = (attachment("a.pdf"),)
            await first.send("", event=f"{chat} 2", chat=chat, attachments=file)
            await second.send("what is this?", event=f"{chat} 3", chat=chat)
            await owner.wait_until_finished()
            assert owner.prompts()[-1].startswith("what is this?")
        assert len(nodes.server.runs) == 4


async def test_forwards_behind_a_mention_may_come_to_another_node(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        owner, other = nodes.owner_first("g")
        group: dict[str, Any] = {"chat": "g", "is_private": False, "topic": "t"}
        owner.hold_next_run("never")
        await owner.send("who is right?", event="e1", **group)
        await owner.wait_for_runs(1)
        part = {**group, "is_addressed": False, "quoted": "> Ann: me", "is_forwarded": True}
        assert await other.send("", event="e2", **part) is Disposition.ACCEPTED
        await eventually(lambda: owner.platform.texts == ["Hello you"])
        assert owner.prompts()[-1] == "who is right?\n\n> Ann: me"
        assert other.platform.texts == []


async def test_messages_at_another_node_before_the_mention_belong_to_it(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        owner, other = nodes.owner_first("g")
        group: dict[str, Any] = {"chat": "g", "is_private": False, "topic": "t"}
        await owner.send("hello", event="e1", **group)
        await owner.wait_until_finished()
        await eventually(lambda: owner.platform.texts == ["Hello you"])
        part = {**group, "is_addressed": False, "quoted": "> Ann: me", "is_forwarded": True}
        assert await other.send("", event="e2", **part) is Disposition.NOT_ADDRESSED
        await other.send("who is right?", event="e3", **group)
        await eventually(lambda: owner.platform.texts == ["Hello you"] * 2)
        assert owner.prompts()[-1] == "who is right?\n\n> Ann: me"


async def test_an_edit_waits_for_the_owner_that_takes_over(
    store: StoreConfig, tmp_path: Path
) -> None:
    """The owner is killed while the edit is on its way to it."""
    async with (
        running_bus(tmp_path / "bus", store=store) as harness,
        anyio.create_task_group() as group,
    ):
        results: list[Disposition] = []

        async def send_edit() -> None:
            results.append(await edit(harness, "e", "hello", "edit", chat=chat))

        async with Database.open(store, tmp_path / "deaf") as database:
            await database.nodes.mark_ready()
            await until_ready(harness.database, database)
            owners = SharedOwners(database)
            [chat, *_] = [
                str(number) for number in range(100) if owners.prefers(key_of(str(number)))
            ]
            await InboxStore(database, owners=owners).accept(new_row(chat), cap=9)
            is_called = anyio.Event()

            async def never_answer(_: str) -> str:
                is_called.set()
                await anyio.sleep_forever()
                raise AssertionError

            async with open_node_calls(database) as calls:
                calls.serve("bus.edit", never_answer)
                group.start_soon(send_edit)
                await is_called.wait()
            assert results == []
        await eventually(lambda: results == [Disposition.ACCEPTED])
        [row] = await harness.bus.inbox.list_recent()
        assert decode_inbound(row.body).text == "hello"


async def test_a_setting_made_at_one_node_holds_at_the_other(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        settings = [one.bus._context.settings for one in (nodes.one, nodes.two)]
        await settings[0].update(key_of("c"), model="qwen")
        await eventually(lambda: settings[1].get(key_of("c")).model == "qwen")


async def test_a_person_has_one_rate_limit_at_all_nodes(store: StoreConfig, tmp_path: Path) -> None:
    config = BusConfig(rate_limit=RateLimit(messages=3, per_seconds=3600))
    async with two_nodes(store, tmp_path, config=config) as nodes:
        one, two = nodes.one, nodes.two
        databases = (one.database, two.database)
        await until_heard(COUNTED, *databases)
        for number, node in enumerate((one, two, one)):
            accepted = await node.send("hi", chat=f"c{number}", event=f"e{number}")
            assert accepted is Disposition.ACCEPTED
            await until_heard(COUNTED, *databases)  # signals of a node arrive in their order
        assert await two.send("hi", chat="c3", event="e3") is Disposition.RATE_LIMITED
        assert await one.send("hi", chat="c4", event="e4") is Disposition.RATE_LIMITED
        assert await one.send("hi", chat="c5", event="e5", user="bob") is Disposition.ACCEPTED


async def test_a_chat_that_migrates_keeps_its_owner(store: StoreConfig, tmp_path: Path) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        owner, other = nodes.owner_first("c")
        gate = owner.hold_next_run("first", "answer")
        await owner.send("first", event="e1")
        await owner.wait_for_runs(1)
        await other.bus.intake.migrate_chat("fake", "w", "c", "c2")
        await eventually(
            lambda: owner.bus._context.delivery._migrated.current_key(key_of("c")).chat == "c2"
        )
        await other.send("second", chat="c2", event="e2")
        gate.set()
        # The second message is in the queue of the new ID, so either answer may come first.
        await eventually(lambda: sorted(owner.platform.texts) == ["Hello you", "firstanswer"])
        assert other.platform.texts == []


async def test_an_adapters_exclusive_work_runs_at_one_node(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        one, two = nodes.one.bus.intake, nodes.two.bus.intake
        assert (one.divide_limit(50), two.divide_limit(50)) == (25, 25)
        waits, entered = anyio.Event(), anyio.Event()

        async def enter() -> None:
            async with two.exclusive("poll", waits.set):
                entered.set()

        async with anyio.create_task_group() as group:
            async with one.exclusive("poll"):
                group.start_soon(enter)
                await waits.wait()
                assert not entered.is_set()
            await entered.wait()


async def test_idle_chats_move_to_a_node_that_comes(store: StoreConfig, tmp_path: Path) -> None:
    async with FakeLangGraph() as server, AsyncExitStack() as stack:
        one = await stack.enter_async_context(
            running_bus(tmp_path / "one", server=server, store=store)
        )
        chats = [f"c{number}" for number in range(12)]
        for chat in chats:
            await one.send("hi", chat=chat)
        await eventually(lambda: len(one.platform.texts) == 12)
        await one.wait_until_finished()
        two = await stack.enter_async_context(
            running_bus(tmp_path / "two", server=server, store=store)
        )
        await until_ready(one.database, two.database)
        moving = [chat for chat in chats if two.bus.owners.prefers(key_of(chat))]
        assert moving
        assert len(moving) < len(chats)

        async def owners() -> list[int | None]:
            return [await owner_of(two.database, key_of(chat)) for chat in moving]

        await eventually(owners, lambda found: one.database.nodes.number not in found)
        for chat in chats:
            await one.send("again", chat=chat, event=f"again {chat}")
        await eventually(lambda: len(two.platform.texts) == len(moving))
        await eventually(lambda: len(one.platform.texts) == 24 - len(moving))


async def test_a_question_is_answered_without_a_reply_at_the_node_that_got_its_chat(
    store: StoreConfig, tmp_path: Path
) -> None:
    group: dict[str, object] = {"is_private": False, "track_replies": True}
    async with FakeLangGraph() as server, AsyncExitStack() as stack:
        one = await stack.enter_async_context(
            running_bus(
                tmp_path / "one", platform=ButtonPlatform("fake"), server=server, store=store
            )
        )
        chats = [f"c{number}" for number in range(12)]
        for chat in chats:
            server.scripts.append(Script(words=(), question="Which?", options=("red", "green")))
            await one.send("paint it", chat=chat, event=chat, topic=chat, **group)
        await one.wait_for_runs(12)
        await one.wait_until_finished()
        two = await stack.enter_async_context(
            running_bus(
                tmp_path / "two", platform=ButtonPlatform("fake"), server=server, store=store
            )
        )
        await until_ready(one.database, two.database)
        chat = next(chat for chat in chats if two.bus.owners.prefers(key_of(chat)))

        async def owner() -> int | None:
            return await owner_of(two.database, key_of(chat))

        await eventually(owner, lambda number: number != one.database.nodes.number)
        await one.send("2", chat=chat, event="answer", topic="answer", **group)
        await one.wait_for_runs(13)
        by_thread = [run.thread_id for run in server.runs]
        assert by_thread[12] in by_thread[:12]


async def test_a_node_that_stops_gives_idle_chats_up_at_once_and_busy_ones_at_its_end(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        one, two = nodes.one, nodes.two
        chats = [str(number) for number in range(100)]
        busy, idle, *_ = [chat for chat in chats if one.bus.owners.prefers(key_of(chat))]
        await one.send("hi", chat=idle, event="i1")
        await eventually(lambda: one.platform.texts == ["Hello you"])
        gate = one.hold_next_run("long", "answer")
        await one.send("long work", chat=busy, event="b1")
        await one.wait_for_runs(2)
        async with anyio.create_task_group() as group:
            group.start_soon(one.bus.failover.leave)
            await eventually(lambda: any(not node.takes_work for node in two.database.nodes.living))

            async def owner_of_idle() -> int | None:
                return await owner_of(two.database, key_of(idle))

            await eventually(owner_of_idle, lambda owner: owner is None)
            await two.send("again", chat=idle, event="i2")
            await eventually(lambda: two.platform.texts == ["Hello you"])
            # Its turn continues at the node where it runs, and no other node runs it.
            await two.send("behind", chat=busy, event="b2")
            gate.set()
            await eventually(lambda: one.platform.texts[1:] == ["longanswer", "Hello you"])
            assert await owner_of(two.database, key_of(busy)) in (None, one.database.nodes.number)
            group.cancel_scope.cancel()
        assert two.platform.texts == ["Hello you"]
        assert nodes.one.prompts() == ["hi", "long work", "again", "behind"]


async def test_a_turn_whose_run_is_handed_over_goes_on_at_another_node(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with (
        FakeLangGraph() as server,
        running_bus(tmp_path / "two", server=server, store=store) as two,
    ):

        async def stop_runs(_body: str) -> str:
            for run in server.runs:
                run.status = "interrupted"
                run.canceled.set()
                run.changed.set()
            return ""

        config = BusConfig(drain_s=60)
        async with running_bus(tmp_path / "one", server=server, store=store, config=config) as one:
            await until_ready(one.database, two.database)
            [chat, *_] = [
                str(number) for number in range(100) if one.bus.owners.prefers(key_of(str(number)))
            ]
            one.bus._context.calls.serve(HAND_OVER, stop_runs)
            server.scripts.append(Script(hang_after=1))
            await one.send("long work", chat=chat)
            await one.wait_for_runs(1)
        assert one.platform.texts == []
        await two.expect_replies("Hello you")
        await two.wait_until_finished()
