"""The intake: limited, without duplicates, and nothing is acknowledged before it is stored."""

import json
import logging
from functools import partial
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from bus.commands import COMMANDS, ParsedCommand, parse_command
from bus.config import BusConfig, ChannelPolicy
from bus.errors import IntakeClosed, IntakeFull
from bus.inbound.clean import clean_message
from bus.locales.en import ENGLISH
from bus.messages import MessageId, ReplyTarget, decode_inbound, encode_inbound
from bus.nodes.failover import SEARCHES_OF_OWN
from bus.platform import Disposition
from store.database import Database, Transaction
from store.errors import StoreUnavailable
from store.inbox import NewInboxRow
from tests.bus.harness import OPEN, attachment, inbound_message, running_bus
from tests.eventually import eventually
from tests.fakes.database import LateDatabase
from tests.fakes.langgraph import FakeLangGraph
from tests.fakes.platform import FakePlatform


async def test_no_more_than_so_many_messages_are_accepted_at_once(tmp_path: Path) -> None:
    outcomes: list[object] = []
    async with running_bus(tmp_path, config=BusConfig(max_intake=3, drain_s=0.1)) as harness:

        async def say(index: int) -> None:
            try:
                outcomes.append(await harness.send("/status", event=f"x{index}"))
            except IntakeFull:
                outcomes.append("full")

        async with anyio.create_task_group() as tasks:
            for index in range(10):
                tasks.start_soon(say, index)
        assert outcomes.count("full") == 7
        assert await harness.send("/status", event="x9") is Disposition.ACCEPTED


async def test_one_delivery_in_many_copies_is_one_message(tmp_path: Path) -> None:
    reasons: list[Disposition] = []
    async with running_bus(tmp_path) as harness:

        async def say() -> None:
            reasons.append(await harness.send("hi", event="same"))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(say)
        assert (reasons.count(Disposition.ACCEPTED), reasons.count(Disposition.DUPLICATE)) == (
            1,
            19,
        )
        await harness.expect_replies("Hello you")


async def test_a_caller_that_gives_up_does_not_lose_the_message(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await harness.send("hi", event="e1")
        assert await harness.send("hi", event="e1") is Disposition.DUPLICATE
        await harness.expect_replies("Hello you")
        assert len(harness.server.runs) == 1


async def test_when_nothing_can_be_kept_nothing_is_acknowledged(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:

        def break_inbox(tx: Transaction) -> None:
            tx.run("ALTER TABLE inbox RENAME TO away")

        def mend_inbox(tx: Transaction) -> None:
            tx.run("ALTER TABLE away RENAME TO inbox")

        await harness.database.transaction(break_inbox)
        with pytest.raises(StoreUnavailable):
            await harness.send("hi", event="e1")
        await harness.database.transaction(mend_inbox)
        assert await harness.send("hi", event="e1") is Disposition.ACCEPTED
        await harness.expect_replies("Hello you")


async def test_a_closed_intake_keeps_nothing(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.bus.drain()
        with pytest.raises(IntakeClosed):
            await harness.send("hi")
        assert await harness.bus.inbox.list_recent() == []


async def test_a_message_committed_while_the_bus_stops_waits_for_the_next_process(
    tmp_path: Path,
) -> None:
    late: list[LateDatabase] = []
    outcomes: list[Disposition] = []

    def wrap(database: Database) -> Database:
        late.append(LateDatabase(database))
        return late[0]

    async with FakeLangGraph() as server, anyio.create_task_group() as tasks:
        async with running_bus(tmp_path, server=server, wrap=wrap) as harness:

            async def say() -> None:
                outcomes.append(await harness.send("hi", event="e1"))

            late[0].held = "INSERT INTO inbox"
            tasks.start_soon(say)
            await late[0].committed.wait()
        late[0].goes_on.set()
        await eventually(lambda: outcomes == [Disposition.ACCEPTED])
        async with running_bus(tmp_path, server=server) as harness:
            await harness.expect_replies("Hello you")


async def test_a_channel_without_policy_is_closed(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        assert await harness.send("hi", channel="nowhere") is Disposition.DISABLED


async def test_silence_is_counted_and_logged_without_the_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bus")
    async with running_bus(tmp_path, policy=ChannelPolicy(dm_policy="allowlist")) as harness:
        assert await harness.send("my secret") is Disposition.NOT_ALLOWED
        harness.bus.intake.report_ignored("fake", Disposition.UNSUPPORTED, "an edit\nof something")
        assert harness.bus.counters() == {
            ("fake", Disposition.NOT_ALLOWED): 1,
            ("fake", Disposition.UNSUPPORTED): 1,
        }
    lines = [
        record.getMessage()
        for record in caplog.records
        if record.name in ("bus.inbound.pipeline", "bus.inbound.intake")
    ]
    assert len(lines) == 2
    assert "not_allowed" in lines[0]
    assert "'e1'" in lines[0]
    assert "unsupported" in lines[1]
    assert "secret" not in caplog.text


async def test_a_channel_takes_a_bounded_number_of_pairing_requests(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=ChannelPolicy(dm_policy="pairing")) as harness:
        for user in (*range(101), 100):
            assert await harness.send("hi", user=str(user), chat=str(user)) is Disposition.PAIRING
        pairings = await harness.bus.pairings.list_all()
        assert len(pairings) == 100
        codes = [ENGLISH.pairing_code.format(code=pairing.code) for pairing in pairings]
        await harness.expect_replies(*codes, ENGLISH.pairing_full)  # the last one is notified once


async def test_a_command_needs_the_same_permission_as_chat(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=ChannelPolicy(dm_policy="allowlist")) as harness:
        assert await harness.send("/models") is Disposition.NOT_ALLOWED
        assert await harness.bus.inbox.list_recent() == []


async def test_a_row_that_cannot_be_read_is_given_up(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("hi", event="e1")
        await harness.expect_replies("Hello you")

        def spoil(tx: Transaction) -> None:
            tx.run("UPDATE inbox SET state = 'new', body = '{}'")

        await harness.database.transaction(spoil)
    async with running_bus(tmp_path) as harness:
        await eventually(harness.bus.inbox.list_recent, lambda rows: rows[0].state == "dead")
        assert await harness.send("hi", event="e2") is Disposition.ACCEPTED


async def test_a_message_that_nobody_holds_is_found_by_the_search(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        lost = inbound_message("lost between its commit and its conversation", "e1")
        row = NewInboxRow(
            key=lost.key,
            event_id="e1",
            message_id="e1",
            kind="chat",
            body=encode_inbound(lost),
            received_at=harness.clock(),
        )
        await harness.bus.inbox.accept(row, cap=20)
        for _ in range(2 * SEARCHES_OF_OWN):
            await harness.bus.failover.search()
        await harness.expect_replies("Hello you")
        assert await harness.bus.dispatcher.find_forgotten() == set()


def test_a_policy_that_was_not_written_is_not_open() -> None:
    assert OPEN.dm_policy == "open"
    assert ChannelPolicy().dm_policy is None


@given(st.text(st.characters(), max_size=300), st.text(st.characters(), max_size=50))
def test_any_text_survives_json_and_utf8(text: str, name: str) -> None:
    clean = clean_message(
        inbound_message(text, name or "e", attachments=(attachment(name),), user=name)
    )
    body = encode_inbound(clean)
    assert decode_inbound(body) == clean
    assert json.loads(body.encode("utf-8"))["text"] == clean.text
    assert clean_message(clean) == clean


@given(st.text(st.characters(categories=("L", "N", "P", "Z", "Cc")), max_size=40))
def test_parsing_never_fails_and_finds_only_commands_of_the_table(text: str) -> None:
    parsed = parse_command(f"/{text}")
    assert parsed is None or parsed.name in {command.name for command in COMMANDS}


@pytest.mark.parametrize("space", [" ", "\n", "\t", "\u00a0", "\u3000"])
def test_any_space_ends_a_command(space: str) -> None:
    assert parse_command(f"{space}/NEW{space}x{space}") == ParsedCommand("new", "x")


class SlowSendPlatform(FakePlatform):
    """Shows a message before the call returns, as every platform does."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = anyio.Event()

    @override
    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        message = await super().send(place, markdown, key=key)
        await self.go_on.wait()
        return message


async def test_a_reply_that_arrives_before_the_send_returns_continues_the_conversation(
    tmp_path: Path,
) -> None:
    platform = SlowSendPlatform()
    group: dict[str, object] = {"is_private": False, "chat": "room", "track_replies": True}
    async with running_bus(tmp_path, platform=platform) as harness:
        await harness.send("root", event="x1", topic="x1", **group)
        await platform.until(1)
        reply = {"event": "x2", "topic": "x2", "replies_to": (platform.shown[0].id,), **group}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(harness.send, "and you?", is_addressed=False, **reply))
            await anyio.sleep(0.1)  # long enough to look the message up
            platform.go_on.set()
        await harness.wait_for_runs(2)
        assert len({run.thread_id for run in harness.server.runs}) == 1
