"""Chats that move from node to node while messages arrive: each message is answered once, in order.

Nodes join and leave at random. PARLEY_TEST_LONG=1 tries more orders of events.
"""

import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import anyio
import pytest
from anyio.abc import TaskGroup

from bus.config import BusConfig
from bus.errors import IntakeClosed
from bus.nodes.failover import SEARCHES_OF_OWN
from bus.platform import Disposition
from store.config import StoreConfig
from store.database import Database
from store.errors import StoreUnavailable
from tests.bus.harness import BusHarness, inbound_message, running_bus
from tests.bus.test_chats_of_nodes import key_of, two_nodes
from tests.eventually import eventually
from tests.fakes.database import LateDatabase
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.platform import CardPlatform, ShownMessage
from tests.ready_nodes import until_ready

CHATS = [f"c{number}" for number in range(8)]
MESSAGES = 160
SEEDS = range(1, 21 if os.environ.get("PARLEY_TEST_LONG") == "1" else 2)
CONFIG = BusConfig(drain_s=1.0, max_queue=1000)


@dataclass
class Cluster:
    """Buses that join and leave.

    Attributes:
        all: Every bus, including those that have left.
        living: Those that take messages.
    """

    store: StoreConfig
    home: Path
    server: FakeLangGraph
    tasks: TaskGroup
    all: list[BusHarness] = field(default_factory=list)
    living: dict[int, tuple[BusHarness, anyio.Event]] = field(default_factory=dict)
    over: anyio.Event = field(default_factory=anyio.Event)

    async def join(self) -> BusHarness:
        number = len(self.all)
        ready, left = anyio.Event(), anyio.Event()

        async def run() -> None:
            home = self.home / f"node{number}"
            async with running_bus(
                home, server=self.server, store=self.store, config=CONFIG
            ) as harness:
                self.all.append(harness)
                self.living[number] = harness, left
                ready.set()
                if not self.over.is_set():
                    await left.wait()

        self.tasks.start_soon(run)
        await ready.wait()
        return self.living[number][0]

    def leave(self, number: int) -> None:
        _, left = self.living.pop(number)
        left.set()

    async def send(self, random: Random, chat: str, text: str) -> None:
        """Send a message to a random node, and to another one if that node stops, as a platform does."""
        while True:
            harness, _ = random.choice(list(self.living.values()))
            try:
                result = await harness.bus.intake.receive(inbound_message(text, text, chat=chat))
            except (IntakeClosed, StoreUnavailable):
                await anyio.sleep(0.01)
            else:
                assert result in (Disposition.ACCEPTED, Disposition.DUPLICATE)
                return

    def answers(self) -> Counter[str]:
        """The number of answers in each chat."""
        return Counter(shown.chat for one in self.all for shown in one.platform.shown)


@asynccontextmanager
async def cluster(store: StoreConfig, home: Path) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(FakeLangGraph())
        tasks = await stack.enter_async_context(anyio.create_task_group())
        made = Cluster(store, home, server, tasks)
        try:
            yield made
        finally:
            made.over.set()
            for number in list(made.living):
                made.leave(number)


@pytest.mark.parametrize("seed", SEEDS)
async def test_messages_of_chats_that_move_are_answered_once_and_in_order(
    store: StoreConfig, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)  # noqa: S311 - which node and when, no secret
    async with cluster(store, tmp_path) as nodes:
        await nodes.join()
        await nodes.join()

        async def change() -> None:
            while True:
                await nodes.join()
                await anyio.sleep(random.uniform(0.1, 1.0))
                nodes.leave(random.choice(list(nodes.living)))
                await anyio.sleep(random.uniform(0.0, 0.3))

        async def talk(chat: str) -> None:
            for number in range(MESSAGES // len(CHATS)):
                await nodes.send(random, chat, f"{chat} {number:03}")
                await anyio.sleep(random.choice((0.0, 0.05, 0.4)))

        async with anyio.create_task_group() as changes:
            changes.start_soon(change)
            async with anyio.create_task_group() as talks:
                for chat in CHATS:
                    talks.start_soon(talk, chat)
            changes.cancel_scope.cancel()
        await eventually(lambda: sum(nodes.answers().values()) >= MESSAGES, within_s=60)
        [[harness, _], *_] = nodes.living.values()
        await harness.wait_until_finished()
        assert nodes.answers() == Counter(dict.fromkeys(CHATS, MESSAGES // len(CHATS)))
        prompts = harness.prompts()
        for chat in CHATS:
            told = [prompt for prompt in prompts if prompt.startswith(f"{chat} ")]
            assert told == sorted(set(told)), chat
            assert len(told) == MESSAGES // len(CHATS)


async def test_a_chat_that_migrates_into_one_of_another_node_is_answered_once(
    store: StoreConfig, tmp_path: Path
) -> None:
    shown: list[ShownMessage] = []

    def platform() -> CardPlatform:
        made = CardPlatform("fake")
        made.shown = shown  # the nodes share one platform, so either can edit the growing answer
        return made

    def greetings() -> int:
        return sum(message.text == "Hello you" for message in shown)

    async with two_nodes(store, tmp_path, platform) as nodes:
        names = [str(number) for number in range(100)]
        old = next(name for name in names if nodes.owner_first(name)[0] is nodes.one)
        new = next(name for name in names if nodes.owner_first(name)[0] is nodes.two)
        gate = anyio.Event()
        nodes.server.scripts.append(Script(words=("first", "answer"), ends=gate))
        await nodes.one.send("first", chat=old, event="e1")
        await nodes.one.wait_for_runs(1)
        await nodes.two.send("hi", chat=new, event="e2")
        await eventually(lambda: greetings() == 1)
        await nodes.two.bus.intake.migrate_chat("fake", "w", old, new)
        await nodes.one.send("second", chat=new, event="e3")
        await eventually(lambda: greetings() == 2)
        # The owner of the new chat has checked its chats twice, and found a message that it must not answer.
        for _ in range(2 * SEARCHES_OF_OWN):
            await nodes.two.bus.failover.search()
        assert nodes.two.bus.load() == (0, 0)
        gate.set()
        await nodes.one.wait_until_finished()
        assert nodes.one.prompts() == ["first", "hi", "second"]
        expected = ["Hello you", "Hello you", "firstanswer"]
        await eventually(lambda: sorted(message.text for message in shown) == expected)


async def test_messages_that_a_dead_node_held_for_a_migrated_chat_are_answered(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with cluster(store, tmp_path) as nodes:
        one, two = await nodes.join(), await nodes.join()
        await until_ready(one.database, two.database)
        names = [str(number) for number in range(100)]
        old = next(name for name in names if one.bus.owners.prefers(key_of(name)))
        new = next(name for name in names if two.bus.owners.prefers(key_of(name)))
        gate = one.hold_next_run("first", "answer")
        await one.send("first", chat=old, event="e1")
        await one.wait_for_runs(1)
        await two.send("hi", chat=new, event="e2")
        await two.expect_replies("Hello you")
        await two.bus.intake.migrate_chat("fake", "w", old, new)
        nodes.leave(0)
        gate.set()
        await two.expect_replies("Hello you", "firstanswer")
        await two.wait_until_finished()


async def _send_late(harness: BusHarness, database: LateDatabase, text: str, **more: str) -> None:
    """Send a message, and again if it was not accepted in time, as platforms do."""
    try:
        await harness.send(text, **more)
    except StoreUnavailable:  # the intake waits a limited time for the journal
        await database.goes_on.wait()
        assert await harness.send(text, **more) is Disposition.DUPLICATE


@pytest.mark.parametrize("held", ["INSERT INTO inbox", "ORDER BY inbox.conversation_id, inbox.seq"])
async def test_a_message_that_arrives_while_its_chat_migrates_is_answered_once(
    store: StoreConfig, tmp_path: Path, held: str
) -> None:
    """When it is asked, the former owner has accepted the message, or read it from the journal, but not started it."""
    late: list[LateDatabase] = []

    def wrap(database: Database) -> Database:
        late.append(LateDatabase(database))
        return late[0]

    async with (
        FakeLangGraph() as server,
        running_bus(tmp_path / "one", server=server, store=store, wrap=wrap) as one,
        running_bus(tmp_path / "two", server=server, store=store) as two,
        anyio.create_task_group() as tasks,
    ):
        await until_ready(one.database, two.database)
        names = {one.bus.owners.prefers(key_of(str(n))): str(n) for n in range(100)}
        old, new = names[True], names[False]
        await one.send("first", chat=old, event="e1")
        await two.send("second", chat=new, event="e2")
        await one.expect_replies("Hello you")
        await two.expect_replies("Hello you")
        late[0].held = held
        # The owner accepts it itself, or reads it after the other node accepted it.
        accepting = one if held == "INSERT INTO inbox" else two
        tasks.start_soon(partial(_send_late, accepting, late[0], "third", chat=old, event="e3"))
        await late[0].committed.wait()
        former = one.database.nodes.number
        with one.database.signals.subscribe(f"node:{former}") as asked:
            await two.bus.intake.migrate_chat("fake", "w", old, new)
            await anext(payload async for payload in asked if "bus.held" in payload)
            with pytest.raises(StoreUnavailable):
                # Its answer follows the answer to the question before it, if there is one.
                await two.bus._context.calls.call(former, "unknown", "")
        if held == "INSERT INTO inbox":
            # The node that now has the message answered it. A second answer, from a node that only read it, would be
            # visible.
            await eventually(lambda: two.bus.load() == (0, 0))
        late[0].goes_on.set()
        await two.wait_until_finished()
        await two.send("fourth", chat=new, event="e4")
        await two.wait_until_finished()
        assert sorted(two.prompts()) == ["first", "fourth", "second", "third"]
        await eventually(lambda: len([*one.platform.texts, *two.platform.texts]) == 4)
