"""Messages that are edited or deleted while they wait, while they run, and after they were answered."""

import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from bus.buttons import ButtonAction, ButtonToken
from bus.config import ChannelPolicy, SessionConfig
from bus.conversation.control import QueuedMessage
from bus.conversation.record import TurnStage
from bus.errors import IntakeClosed
from bus.inbound.message_edits import MAX_EDITS
from bus.locales.en import ENGLISH
from bus.messages import (
    ButtonPress,
    MessageDeletion,
    MessageEdit,
    PressResponse,
    ReplyTarget,
    Sender,
    decode_inbound,
    encode_inbound,
)
from bus.platform import Disposition
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.inbox import InboxRow, InboxStore, NewInboxRow
from store.message_history import MessageHistoryStore, ReceivedEvent
from tests.bus.harness import (
    OPEN,
    STEER,
    BusHarness,
    attachment,
    inbound_message,
    running_bus,
    running_steered_bus,
)
from tests.bus.test_turn import turn_harness
from tests.bus.test_uploads import DownloadingPlatform
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.platform import PART_CHARS, ButtonPlatform, CardPlatform, FakePlatform
from tests.faults.injection import Faults, FaultyDatabase, Mode

KEY = ConversationKey(channel="fake", workspace="w", chat="c")
OFFER = (
    "You edited this message after I answered it. "
    "To get a new answer, press the button or send /retry."
)


async def edit(
    harness: BusHarness, message: str, text: str, event: str, **changes: object
) -> Disposition:
    """Edit a message of the chat `c`, with the platform's event `event`."""
    edited = replace(inbound_message(text, event, **changes), message_id=message)
    key = replace(edited.key, topic="")
    change = MessageEdit(event_id=event, key=key, message_id=message, edited=edited)
    return await harness.bus.intake.handle_edit(change)


async def delete(harness: BusHarness, message: str, event: str = "gone") -> Disposition:
    deletion = MessageDeletion(event_id=event, key=KEY, message_id=message)
    return await harness.bus.intake.handle_deletion(deletion)


async def rerun(
    harness: BusHarness, row_id: int, user: str = "u", event: str = "p"
) -> PressResponse:
    """Press the button of an offer."""
    press = pressed(harness, ButtonToken(ButtonAction.RERUN, row_id), user, event)
    return await harness.bus.intake.handle_button_press(press)


def pressed(
    harness: BusHarness, token: ButtonToken, user: str = "u", event: str = "p"
) -> ButtonPress:
    return ButtonPress(
        event_id=event,
        key=KEY,
        reply_target=ReplyTarget(chat="c"),
        message_id=harness.platform.shown[-1].id,
        token=token.text,
        sender=Sender(user_id=user),
        is_private=True,
    )


async def row_id(harness: BusHarness, event: str) -> int:
    return next(row.id for row in await harness.bus.inbox.list_recent() if row.event_id == event)


async def talk(harness: BusHarness, *words: str) -> None:
    """Send these messages one by one. Each is answered with its own text; the n-th message is `e<n>`."""
    for word in words:
        before = len(harness.platform.texts)
        harness.server.scripts.append(Script(words=(f"You said {word}",)))
        await harness.send(word)
        await eventually(lambda before=before: len(harness.platform.texts) > before)  # type: ignore[misc]
    await harness.wait_until_finished()


# ---- while it waits ---------------------------------------------------------------------------


async def test_an_edited_message_that_waits_is_run_as_it_reads_now(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        gate = harness.hold_next_run("First")
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("tow")
        await harness.send("three")
        assert await edit(harness, "e2", "too", "c1") is Disposition.ACCEPTED
        assert await edit(harness, "e2", "two", "c2") is Disposition.ACCEPTED
        assert await edit(harness, "e2", "TWO", "c1") is Disposition.DUPLICATE
        gate.set()
        await harness.expect_replies("First", "Hello you", "Hello you")
        assert harness.prompts() == ["one", "two", "three"]


async def test_a_deleted_message_that_waits_is_not_run_and_the_next_one_is(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        gate = harness.hold_next_run("First")
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("two")
        await harness.send("three")
        assert await delete(harness, "e2") is Disposition.ACCEPTED
        assert await harness.unfinished_events() == ["e1", "e3"]
        gate.set()
        await harness.expect_replies("First", "Hello you")
        assert harness.prompts() == ["one", "three"]
        await harness.wait_until_finished()


async def test_files_can_be_changed_while_a_message_waits(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        gate = harness.hold_next_run("First")
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("two", attachments=(attachment("a.txt"),))
        same = (replace(attachment("a.txt"), ref="named anew"),)
        assert await edit(harness, "e2", "two", "c1", attachments=same) is Disposition.UNCHANGED
        other = (attachment("b.txt"),)
        assert await edit(harness, "e2", "two", "c2", attachments=other) is Disposition.ACCEPTED
        gate.set()
        await harness.expect_replies("First", "Hello you")
        assert "b.txt" in harness.prompts()[1]
        assert "a.txt" not in harness.prompts()[1]


# ---- while it runs ----------------------------------------------------------------------------


async def test_an_edited_message_that_is_running_runs_again_in_its_card(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=CardPlatform("fake")) as harness:
        await talk(harness, "zero")
        harness.server.scripts.append(Script(words=("Wrong", " way"), hang_after=1))
        await harness.send("left")
        await eventually(lambda: "Wrong" in harness.platform.texts)
        harness.server.scripts.append(Script(words=("Right",)))
        assert await edit(harness, "e2", "right", "c1") is Disposition.ACCEPTED
        await eventually(lambda: harness.platform.texts == ["You said zero", "Right"])
        await harness.wait_until_finished()
        assert harness.server.runs[1].canceled.is_set()
        assert harness.prompts() == ["zero", "left", "right"]
        assert harness.thread_messages() == ["zero", "You said zero", "right", "Right"]
        assert "" not in [text for _, text, _ in harness.platform.frames]  # type: ignore[attr-defined]
        # Undo and retry apply to the message's current text.
        await harness.send("/retry")
        await eventually(lambda: harness.prompts()[-1] == "right" and len(harness.prompts()) == 4)
        await harness.wait_until_finished()
        assert harness.thread_messages()[:3] == ["zero", "You said zero", "right"]


async def test_files_are_uploaded_once_for_a_repeated_turn(tmp_path: Path) -> None:
    platform = DownloadingPlatform()
    platform.content["r"] = [b"1,2"]
    async with running_bus(tmp_path, platform=platform) as harness:
        harness.server.scripts.append(Script(hang_after=0))
        await harness.send("sum", attachments=(attachment("a.csv"),))
        await harness.wait_for_runs(1)
        await edit(harness, "e1", "average", "c1", attachments=(attachment("a.csv"),))
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["sum", "average"]
        assert [name for _, name, _ in harness.gateway.uploads] == ["a.csv"]
        [told] = harness.server.runs[1].body["input"]["messages"]
        assert told["additional_kwargs"]["files"]


async def test_quick_edits_are_one(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=CardPlatform("fake")) as harness:
        harness.server.scripts.append(Script(hang_after=0))
        await harness.send("a")
        await harness.wait_for_runs(1)
        for number, text in enumerate(("ab", "abc", "abcd")):
            assert await edit(harness, "e1", text, f"c{number}") is Disposition.ACCEPTED
        await eventually(lambda: harness.platform.texts == ["Hello you"])
        assert harness.prompts() == ["a", "abcd"]
        assert harness.thread_messages() == ["abcd", "Hello you"]


async def test_stop_ends_a_message_that_is_about_to_run_again(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=CardPlatform("fake")) as harness:
        harness.server.scripts.append(Script(hang_after=0))
        await harness.send("a")
        await harness.wait_for_runs(1)
        await edit(harness, "e1", "b", "c1")
        await harness.send("/stop")
        await eventually(lambda: harness.platform.texts == ["⏹ Stopped.", "Stopped."])
        await harness.wait_until_finished()
        assert harness.prompts() == ["a"]


async def test_a_deleted_message_that_runs_is_stopped_and_forgotten(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=CardPlatform("fake")) as harness:
        await talk(harness, "zero")
        harness.server.scripts.append(Script(words=("Secret", " plan"), hang_after=1))
        await harness.send("my password is x")
        await eventually(lambda: "Secret" in harness.platform.texts)
        assert await delete(harness, "e2") is Disposition.ACCEPTED
        assert await delete(harness, "e2") in (Disposition.DUPLICATE, Disposition.UNCHANGED)
        await eventually(lambda: harness.platform.texts == ["You said zero", "⏹ Stopped."])
        assert harness.server.runs[1].canceled.is_set()
        await harness.wait_until_finished()
        assert harness.thread_messages() == ["zero", "You said zero"]
        await talk(harness, "next")


async def test_an_edit_is_injected_into_the_run_of_a_steered_session(tmp_path: Path) -> None:
    async with running_steered_bus(tmp_path) as harness:
        gate = harness.hold_next_run("Right")
        await harness.send("left")
        await harness.wait_for_runs(1)
        assert await edit(harness, "e1", "right", "c1") is Disposition.ACCEPTED
        await harness.server.runs[0].injection_arrived.wait()
        gate.set()
        await harness.expect_replies("Right")
        await harness.wait_until_finished()
        assert harness.thread_messages() == [
            "left",
            "[I edited my message. It now reads:]\n\nright",
            "Right",
        ]
        assert len(harness.server.runs) == 1


async def test_an_edit_that_came_too_late_for_the_run_starts_it_again(tmp_path: Path) -> None:
    async with running_steered_bus(tmp_path) as harness:
        ends = anyio.Event()
        harness.server.scripts.append(Script(words=("Left",), ends=ends))
        await harness.send("left")
        await harness.wait_for_runs(1)
        await edit(harness, "e1", "right", "c1")
        await harness.server.runs[0].injection_arrived.wait()
        ends.set()
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["left", "right"]
        assert harness.thread_messages() == ["right", "Hello you"]


async def test_the_last_edit_counts_while_a_turn_is_about_to_run_again(tmp_path: Path) -> None:
    """It arrives after the run with the first text ended, and before the run with the second text begins."""
    async with turn_harness(tmp_path) as harness, anyio.create_task_group() as tasks:
        harness.server.accepts_injection = True
        ends = anyio.Event()
        harness.server.scripts.append(Script(words=("Left",), ends=ends))
        turn = await harness.accept_turn("left")
        tasks.start_soon(turn.run)
        await eventually(lambda: harness.server.runs)
        turn.control.steer(edited(turn.message, "right"))
        await harness.server.runs[0].injection_arrived.wait()
        ends.set()
        await eventually(lambda: turn.stage is TurnStage.CANCELING, every_s=0.001)
        turn.control.steer(edited(turn.message, "straight on"))
        await turn.control.finished.wait()
        said = [run.body["input"]["messages"][0]["content"] for run in harness.server.runs]
        assert said == ["left", "straight on"]


def edited(message: QueuedMessage, text: str) -> QueuedMessage:
    count = message.inbound.edit_count + 1
    return replace(
        message, inbound=replace(message.inbound, text=text, edit_count=count), text=text
    )


async def test_injected_messages_are_injected_again_when_their_run_is_repeated(
    tmp_path: Path,
) -> None:
    queue = SessionConfig(busy="steer", users={"u": SessionConfig(busy="steer")})
    policy = OPEN.model_copy(update={"session": queue})
    async with running_steered_bus(tmp_path, policy=policy) as harness:
        ends = anyio.Event()
        harness.server.scripts.append(Script(words=("Left",), ends=ends))
        await harness.send("left")
        await harness.wait_for_runs(1)
        await harness.send("please")
        await eventually(lambda: harness.server.runs[0].injected)
        await edit(harness, "e1", "right", "c1")
        await eventually(lambda: len(harness.server.runs[0].injected) == 2)
        gate = harness.hold_next_run("Right")
        ends.set()
        await harness.wait_for_runs(2)
        await harness.server.runs[1].injection_arrived.wait()
        gate.set()
        await harness.expect_replies("Right")
        assert harness.thread_messages() == ["right", "please", "Right"]
        await harness.wait_until_finished()


async def test_servers_without_injection_run_the_edited_message_again(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=STEER) as harness:
        harness.server.scripts.append(Script(hang_after=1))
        await harness.send("left")
        await harness.wait_for_runs(1)
        await edit(harness, "e1", "right", "c1")
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["left", "right"]


@pytest.mark.parametrize("policy", [OPEN, STEER])
@pytest.mark.parametrize("alive", [True, False], ids=["run alive", "run dead"])
async def test_an_edit_is_kept_over_a_crash(
    tmp_path: Path, policy: ChannelPolicy, *, alive: bool
) -> None:
    """The process dies right after the edit was stored. The run with the earlier text still works, or died as well."""
    async with FakeLangGraph() as server:
        server.accepts_injection = True
        async with running_bus(tmp_path, server=server, policy=policy) as harness:
            harness.server.scripts.append(Script(words=("Left", "!"), hang_after=1))
            await harness.send("left")
            await harness.wait_for_runs(1)
            await eventually(lambda: harness.thread_messages() == ["left"])
            await leave(harness, "right")
        if not alive:
            server.runs[0].status = "interrupted"
            server.runs[0].canceled.set()
        async with running_bus(
            tmp_path, server=server, policy=policy, platform=FakePlatform()
        ) as harness:
            await harness.expect_replies("Hello you")
            assert harness.prompts() == ["left", "right"]
            assert server.runs[0].status == "interrupted"
            assert harness.thread_messages() == ["right", "Hello you"]
            await harness.wait_until_finished()


def has_run_of(server: FakeLangGraph) -> Callable[[Sequence[InboxRow]], bool]:
    """Return whether the journal knows the server's last run."""
    return lambda rows: [row.run_id for row in rows] == [server.runs[-1].run_id]


async def leave(harness: BusHarness, text: str) -> None:
    """Store an edit of the first message, like a process that dies right after it."""
    [row] = await harness.bus.inbox.list_unfinished()
    edited = replace(decode_inbound(row.body), text=text, edit_count=1)
    event = ReceivedEvent(key=row.key, event_id="edit", at=time.time())
    history = MessageHistoryStore(harness.database)
    assert await history.update_body(row.id, encode_inbound(edited), event, reset_starts=True)


@pytest.mark.parametrize("is_edited", [False, True])
async def test_a_deletion_is_kept_over_a_crash(tmp_path: Path, *, is_edited: bool) -> None:
    """The card says that it was stopped, even if the message was edited before, which resets its starts."""
    async with FakeLangGraph() as server:
        platform = CardPlatform("fake")
        async with running_bus(tmp_path, server=server, platform=platform) as harness:
            hanging = Script(words=("Left", "!"), hang_after=1)
            harness.server.scripts.extend([hanging, hanging])
            await harness.send("left")
            await eventually(lambda: "Left" in harness.platform.texts)
            if is_edited:
                assert await edit(harness, "e1", "right", "edit") is Disposition.ACCEPTED
                await harness.wait_for_runs(2)
                await eventually(lambda: harness.thread_messages() == ["right"])
                await eventually(lambda: "Left" in harness.platform.texts)
                await eventually(harness.bus.inbox.list_unfinished, has_run_of(server))
            [row] = await harness.bus.inbox.list_unfinished()
            deleted = replace(decode_inbound(row.body), is_stopped=True)
            assert await harness.bus.inbox.update_body(row.id, encode_inbound(deleted))
        async with running_bus(tmp_path, server=server, platform=platform) as harness:
            await eventually(lambda: harness.platform.texts == ["⏹ Stopped."])
            await harness.wait_until_finished()
            assert harness.prompts() == (["left", "right"] if is_edited else ["left"])
            assert server.runs[-1].status == "interrupted"


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "stopped"])
async def test_a_message_after_a_deleted_or_stopped_one_is_answered_after_a_crash(
    tmp_path: Path, *, is_deleted: bool
) -> None:
    """The process dies after the deletion or the press of the stop button was stored, and before the run was canceled.

    The run of the deleted message consumed the injected message. After the stop, a message was only received.
    """
    async with FakeLangGraph() as server:
        async with running_steered_bus(tmp_path, server=server) as harness:
            gate = harness.hold_next_run("Never")
            server.scripts[-1].ends = anyio.Event()
            await harness.send("one")
            await harness.wait_for_runs(1)
            [row] = await harness.bus.inbox.list_unfinished()
            if is_deleted:
                await harness.send("two")
                await server.runs[0].injection_arrived.wait()
                gate.set()
                await eventually(lambda: harness.thread_messages() == ["one", "two"])
            ended = replace(decode_inbound(row.body), is_stopped=True, is_deleted=is_deleted)
            assert await harness.bus.inbox.update_body(row.id, encode_inbound(ended))
        if not is_deleted:
            async with Database.open(StoreConfig(), tmp_path) as database:
                said = inbound_message("two", "e2")
                new = NewInboxRow(
                    key=said.key,
                    event_id="e2",
                    message_id="e2",
                    kind="chat",
                    body=encode_inbound(said),
                    received_at=time.time(),
                )
                await InboxStore(database).accept(new, cap=10)
        async with running_steered_bus(tmp_path, server=server, platform=FakePlatform()) as harness:
            await harness.wait_until_finished()
            await harness.expect_replies("Hello you")
            assert harness.prompts() == ["one", "two"]
            assert server.runs[0].status == "interrupted"
            if is_deleted:
                assert harness.thread_messages() == ["two", "Hello you"]


async def test_messages_that_a_deleted_messages_run_consumed_are_answered(
    tmp_path: Path,
) -> None:
    async with running_steered_bus(tmp_path) as harness:
        gate = harness.hold_next_run("Never")
        harness.server.scripts[-1].ends = anyio.Event()
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("two")
        await harness.server.runs[0].injection_arrived.wait()
        gate.set()
        await eventually(lambda: harness.thread_messages() == ["one", "two"])
        harness.server.accepts_updates = False
        assert await delete(harness, "e1") is Disposition.ACCEPTED
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["one", "two"]
        await harness.wait_until_finished()


class SlowSplitPlatform(ButtonPlatform):
    """Splits a text slowly, so that storing the turn takes long."""

    def __init__(self) -> None:
        super().__init__("fake")
        self.cutting = threading.Event()
        self.cut = threading.Event()

    @override
    def split(self, markdown: str) -> Sequence[str]:
        if len(markdown) > PART_CHARS:
            self.cutting.set()
            assert self.cut.wait(10)
        return super().split(markdown)


async def test_an_edit_while_the_answer_is_stored_is_offered_with_it_however_long_that_takes(
    tmp_path: Path,
) -> None:
    platform = SlowSplitPlatform()
    answer = "x" * 2 * PART_CHARS  # a short one is split at once
    async with running_bus(tmp_path, platform=platform) as harness:
        harness.hold_next_run(answer).set()
        await harness.send("one")
        await eventually(platform.cutting.is_set)
        assert await edit(harness, "e1", "two", "c1") is Disposition.ACCEPTED
        assert await edit(harness, "e1", "three", "c2") is Disposition.ACCEPTED
        platform.cut.set()
        parts = [answer[:PART_CHARS], answer[PART_CHARS:]]
        await harness.expect_replies(*parts, OFFER)
        assert (await rerun(harness, await row_id(harness, "e1"))).text == ""
        await eventually(lambda: harness.prompts() == ["one", "three"])


@pytest.mark.parametrize("policy", [OPEN, STEER])
async def test_an_edit_while_the_answer_waits_for_the_journal_is_offered(
    tmp_path: Path, policy: ChannelPolicy
) -> None:
    faults = Faults("TurnSteps.finish > InboxStore.finish", Mode.ERROR)
    async with running_bus(
        tmp_path, policy=policy, wrap=lambda database: FaultyDatabase(database, faults)
    ) as harness:
        faults.is_on = True
        await harness.send("left")
        await faults.happened.wait()
        assert await edit(harness, "e1", "right", "edit") is Disposition.ACCEPTED
        await harness.expect_replies("Hello you", OFFER)
        assert harness.prompts() == ["left"]
        await harness.wait_until_finished()


async def test_an_edit_that_arrives_after_a_later_one_changes_nothing(tmp_path: Path) -> None:
    """Slack resends an event that the bot missed, even if others were sent since."""
    async with running_bus(tmp_path) as harness:
        gate = harness.hold_next_run("First")
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("left")
        assert await edit(harness, "e2", "straight on", "c2", edited_at=2.0) is Disposition.ACCEPTED
        assert await edit(harness, "e2", "right", "c1", edited_at=1.0) is Disposition.UNCHANGED
        assert await edit(harness, "e2", "back", "c3", edited_at=2.0) is Disposition.ACCEPTED
        gate.set()
        await harness.expect_replies("First", "Hello you")
        assert harness.prompts() == ["one", "back"]


async def test_an_edit_that_addressed_the_bot_is_not_changed_by_an_earlier_one(
    tmp_path: Path,
) -> None:
    async with running_bus(tmp_path) as harness:
        now = time.time()
        late = {"sent_at": now, "is_addressed": True}
        assert (
            await edit(harness, "e9", "second", "c2", edited_at=2.0, **late) is Disposition.ACCEPTED
        )
        assert await edit(harness, "e9", "first", "c1", edited_at=1.0, **late) in (
            Disposition.UNCHANGED,
        )
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["second"]


async def test_a_message_can_be_edited_a_limited_number_of_times(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        gate = harness.hold_next_run("First")
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("0")
        for number in range(1, MAX_EDITS + 1):
            assert await edit(harness, "e2", f"{number}", f"c{number}") is Disposition.ACCEPTED
        assert await edit(harness, "e2", "too many", "c") is Disposition.RATE_LIMITED
        gate.set()
        await harness.expect_replies("First", "Hello you")
        assert harness.prompts() == ["one", f"{MAX_EDITS}"]


# ---- after it was answered --------------------------------------------------------------------


async def test_an_answered_message_is_offered_to_be_run_again(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as harness:
        await talk(harness, "one", "two")
        assert await edit(harness, "e2", "too", "c1") is Disposition.ACCEPTED
        assert await edit(harness, "e2", "2", "c2") is Disposition.ACCEPTED
        await eventually(lambda: len(harness.platform.texts) == 3)
        offer = harness.platform.shown[-1]
        assert (offer.text, [b.label for b in offer.buttons]) == (
            OFFER,
            ["Run again with the edit"],
        )
        row = await row_id(harness, "e2")
        assert (await rerun(harness, row, user="v")).urgent
        harness.server.scripts.append(Script(words=("Two",)))
        assert (await rerun(harness, row)).text == ""
        await eventually(lambda: harness.platform.texts[-1] == "Two")
        await harness.wait_until_finished()
        assert harness.prompts() == ["one", "two", "2"]
        assert harness.thread_messages() == ["one", "You said one", "2", "Two"]
        await eventually(
            lambda: harness.platform.shown[2].text.endswith("✓ Run again with the edit")
        )
        assert harness.platform.shown[2].buttons == ()
        assert (await rerun(harness, row, event="p2")).text
        assert len(harness.platform.texts) == 4
        # After another edit, it is offered again. The thread contains it once.
        await edit(harness, "e2", "II", "c3")
        await eventually(lambda: len(harness.platform.texts) == 5)
        await rerun(harness, row, event="p3")
        await eventually(lambda: harness.platform.texts[-1] == "Hello you")
        assert harness.thread_messages() == ["one", "You said one", "II", "Hello you"]


async def test_a_message_stopped_by_its_button_can_be_run_again_with_an_edit(
    tmp_path: Path,
) -> None:
    async with running_bus(tmp_path, platform=CardPlatform("fake")) as harness:
        harness.server.scripts.append(Script(words=("Wrong", "!"), hang_after=1))
        await harness.send("left")
        await eventually(lambda: "Wrong" in harness.platform.texts)
        row = await row_id(harness, "e1")
        await harness.bus.intake.handle_button_press(
            pressed(harness, ButtonToken(ButtonAction.STOP, row))
        )
        await harness.wait_until_finished()
        assert await edit(harness, "e1", "right", "c1") is Disposition.ACCEPTED
        await eventually(lambda: harness.platform.texts[-1] == OFFER)
        await rerun(harness, row)
        await eventually(lambda: harness.platform.texts[-1] == "Hello you")
        assert harness.thread_messages() == ["right", "Hello you"]


async def test_servers_that_take_nothing_back_answer_the_edit_behind_it(tmp_path: Path) -> None:
    async with (
        FakeLangGraph("deerflow") as server,
        running_bus(tmp_path, platform=ButtonPlatform("fake"), server=server) as harness,
    ):
        await talk(harness, "one", "two")
        await edit(harness, "e2", "2", "c1")
        await eventually(lambda: len(harness.platform.texts) == 3)
        await rerun(harness, await row_id(harness, "e2"))
        await eventually(lambda: harness.platform.texts[-1] == "Hello you")
        assert harness.thread_messages()[-2:] == ["2", "Hello you"]
        harness.server.scripts.append(Script(hang_after=0))
        await harness.send("left")
        await harness.wait_for_runs(4)
        await edit(harness, "e3", "right", "c2")
        await eventually(lambda: harness.prompts()[-1] == "right")
        await harness.wait_until_finished()


async def test_an_edit_that_the_platform_sends_again_is_offered(tmp_path: Path) -> None:
    """The platform disconnects as soon as the edit is stored, and resends it."""
    async with running_bus(tmp_path) as harness:
        await talk(harness, "one")
        with (
            closing(sqlite3.connect(tmp_path / "parley.db")) as journal,
            anyio.CancelScope() as request,
        ):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(edit, harness, "e1", "two", "c1")
                while "two" not in journal.execute("SELECT body FROM inbox").fetchone()[0]:
                    await anyio.lowlevel.checkpoint()
                request.cancel()
        assert await edit(harness, "e1", "two", "c1") is Disposition.UNCHANGED
        await eventually(lambda: harness.platform.texts[-1] == OFFER)


async def test_an_edit_of_an_injected_message_during_the_delivery_is_offered_after_it(
    tmp_path: Path,
) -> None:
    platform = SlowSplitPlatform()
    answer = "x" * 2 * PART_CHARS  # a short one is split at once
    async with running_steered_bus(tmp_path, platform) as harness:
        gate = harness.hold_next_run(answer)
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("two")
        await harness.server.runs[0].injection_arrived.wait()
        gate.set()
        await eventually(platform.cutting.is_set)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(edit, harness, "e2", "three", "c1")
            await anyio.wait_all_tasks_blocked()
            platform.cut.set()
        parts = [answer[:PART_CHARS], answer[PART_CHARS:]]
        await eventually(lambda: harness.platform.texts == [*parts, OFFER])


async def test_an_injected_message_that_was_edited_too_late_for_the_run_is_offered(
    tmp_path: Path,
) -> None:
    async with running_steered_bus(tmp_path) as harness:
        gate, ends = anyio.Event(), anyio.Event()
        harness.server.scripts.append(Script(words=("Both",), gate=gate, ends=ends))
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("two")
        await harness.server.runs[0].injection_arrived.wait()
        gate.set()
        await eventually(lambda: harness.thread_messages()[:2] == ["one", "two"])
        await edit(harness, "e2", "three", "c1")
        await eventually(lambda: harness.server.runs[0].injected)
        ends.set()
        later = ENGLISH.rerun_offer_later
        await eventually(lambda: harness.platform.texts == ["Both", later])
        await harness.wait_until_finished()


async def test_the_offer_says_what_is_taken_back_as_well(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as harness:
        await talk(harness, "one", "two", "three")
        await edit(harness, "e2", "2", "c1")
        await eventually(lambda: len(harness.platform.texts) == 4)
        assert "removes everything said here since" in harness.platform.texts[-1]
        await rerun(harness, await row_id(harness, "e2"))
        await eventually(lambda: harness.platform.texts[-1] == "Hello you")
        assert harness.thread_messages() == ["one", "You said one", "2", "Hello you"]


@pytest.mark.parametrize("words", [(), ("other",)])
async def test_the_offer_in_a_new_conversation_promises_nothing_of_the_old_one(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as harness:
        await talk(harness, "one", "two")
        await harness.send("/new")
        await eventually(lambda: len(harness.platform.texts) == 3)
        await talk(harness, *words)
        await edit(harness, "e1", "1", "c1")
        await eventually(lambda: harness.platform.texts[-1] == ENGLISH.rerun_offer_former)
        await rerun(harness, await row_id(harness, "e1"))
        await eventually(lambda: harness.platform.texts[-1] == "Hello you")
        *_, last = harness.server.threads.values()
        said = [text for word in words for text in (word, f"You said {word}")]
        assert [message["content"] for message in last] == [*said, "1", "Hello you"]
        # The answer is the last one now.
        await edit(harness, "e1", "I", "c2")
        await eventually(lambda: harness.platform.texts[-1] == OFFER)


async def test_the_offer_takes_no_notice_of_what_was_undone(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as harness:
        await talk(harness, "one", "two")
        await harness.send("/undo")
        await eventually(lambda: len(harness.platform.texts) == 3)
        await edit(harness, "e1", "1", "c1")
        await eventually(lambda: harness.platform.texts[-1] == OFFER)
        await edit(harness, "e2", "2", "c2")
        await eventually(lambda: harness.platform.texts[-1] == ENGLISH.rerun_offer_former)


async def test_the_offer_considers_waiting_messages(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as harness:
        await talk(harness, "one")
        gate = harness.hold_next_run("Two")
        await harness.send("two")
        await harness.wait_for_runs(2)
        await edit(harness, "e1", "1", "c1")
        await eventually(lambda: ENGLISH.rerun_offer_later in harness.platform.texts)
        gate.set()
        await harness.wait_until_finished()


async def test_a_turn_that_a_new_conversation_left_behind_offers_nothing_of_it(
    tmp_path: Path,
) -> None:
    platform = SlowSplitPlatform()
    answer = "x" * 2 * PART_CHARS  # a short one is split at once
    async with running_bus(tmp_path, platform=platform) as harness:
        gate = harness.hold_next_run(answer)
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("/new")
        gate.set()
        await eventually(platform.cutting.is_set)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(edit, harness, "e1", "1", "c1")
            await anyio.wait_all_tasks_blocked()
            platform.cut.set()
        await eventually(lambda: harness.platform.texts[-1] == ENGLISH.rerun_offer_former)


async def test_retry_answers_the_message_as_it_reads_now(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await talk(harness, "one", "two")
        await edit(harness, "e2", "2", "c1")
        await eventually(lambda: len(harness.platform.texts) == 3)
        await harness.send("/retry")
        await eventually(lambda: harness.platform.texts[-1] == "Hello you")
        assert harness.prompts() == ["one", "two", "2"]
        assert harness.thread_messages() == ["one", "You said one", "2", "Hello you"]
        await harness.send("/undo")
        await eventually(lambda: harness.platform.texts[-1] == "Undone: “2”.")
        assert harness.thread_messages() == ["one", "You said one"]


async def test_a_message_that_was_retried_is_run_again_with_its_edit(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as harness:
        await talk(harness, "one")
        await harness.send("/retry")
        await eventually(lambda: len(harness.platform.texts) == 2)
        await edit(harness, "e1", "1", "c1")
        await eventually(lambda: len(harness.platform.texts) == 3)
        await rerun(harness, await row_id(harness, "e1"))
        await eventually(lambda: len(harness.platform.texts) == 4)
        assert harness.thread_messages() == ["1", "Hello you"]


async def test_after_new_an_edit_is_answered_in_the_present_thread(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as harness:
        await talk(harness, "one")
        await harness.send("/new")
        await edit(harness, "e1", "1", "c1")
        await eventually(lambda: len(harness.platform.texts) == 3)
        await rerun(harness, await row_id(harness, "e1"))
        await eventually(lambda: harness.platform.texts[-1] == "Hello you")
        assert sorted(
            [str(m["content"]) for m in messages] for messages in harness.server.threads.values()
        ) == [["1", "Hello you"], ["one", "You said one"]]


async def test_deleting_an_answered_message_changes_nothing(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await talk(harness, "one")
        assert await delete(harness, "e1") is Disposition.UNCHANGED
        await talk(harness, "two")


# ---- edits that do not count ------------------------------------------------------------------


async def test_edits_without_a_change_are_ignored(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await talk(harness, "one")
        await harness.send("/status", event="cmd")
        await eventually(lambda: len(harness.platform.texts) == 2)
        assert await edit(harness, "e1", "one", "unfurled") is Disposition.UNCHANGED
        assert await edit(harness, "e1", "mine now", "c1", user="v") is Disposition.NOT_ALLOWED
        assert await edit(harness, "cmd", "/new", "c2") is Disposition.UNSUPPORTED
        assert await delete(harness, "cmd", "d1") is Disposition.UNCHANGED
        assert await edit(harness, "e1", "/new", "c3") is Disposition.UNSUPPORTED
        assert await edit(harness, "e1", " ", "c4") is Disposition.EMPTY
        assert await delete(harness, "unheard of", "d2") is Disposition.NOT_ADDRESSED
        assert len(harness.platform.texts) == 2
        assert harness.bus.counters()[("fake", Disposition.UNCHANGED)] == 2


async def test_edits_by_people_without_access_are_ignored(tmp_path: Path) -> None:
    listed = ChannelPolicy(dm_policy="allowlist", allowed_users=["u"])
    async with running_bus(tmp_path, policy=listed) as harness:
        await talk(harness, "one")
    away = ChannelPolicy(dm_policy="allowlist", allowed_users=["w"])
    async with running_bus(tmp_path, policy=away, platform=FakePlatform()) as harness:
        assert await edit(harness, "e1", "1", "c1") is Disposition.NOT_ALLOWED
        assert harness.platform.texts == []


@pytest.mark.parametrize(
    ("age_s", "reason"), [(30.0, Disposition.ACCEPTED), (900.0, Disposition.NOT_ADDRESSED)]
)
async def test_a_mention_that_was_forgotten_can_be_added(
    tmp_path: Path, age_s: float, reason: Disposition
) -> None:
    async with running_bus(tmp_path) as harness:
        group: dict[str, object] = {"is_private": False, "sent_at": harness.clock() - age_s}
        assert await harness.send("hi", is_addressed=False, **group) is Disposition.NOT_ADDRESSED
        assert await edit(harness, "e1", "hi there", "c1", is_addressed=False, **group) in (
            Disposition.NOT_ADDRESSED,
        )
        assert await edit(harness, "e1", "hi bot", "c2", **group) is reason
        if reason is Disposition.ACCEPTED:
            await harness.expect_replies("Hello you")
            assert await edit(harness, "e1", "hi bot", "c2", **group) is Disposition.UNCHANGED
            assert harness.prompts() == ["hi bot"]


async def test_an_edit_that_comes_before_its_message_is_what_is_answered(tmp_path: Path) -> None:
    """The platform resent both messages later, after the process had been down or its clock was wrong."""
    async with running_bus(tmp_path) as harness:
        sent_at = harness.clock() - 3_600.0
        group: dict[str, object] = {"is_private": False, "sent_at": sent_at}
        late = await edit(harness, "e1", "hi", "c2", edited_at=sent_at + 700.0, **group)
        assert late is Disposition.NOT_ADDRESSED
        assert (
            await edit(harness, "e1", "hello", "c1", edited_at=sent_at + 30.0, **group)
            is Disposition.ACCEPTED
        )
        await harness.expect_replies("Hello you")
        assert await harness.send("helo", event="e1", **group) is Disposition.DUPLICATE
        assert harness.prompts() == ["hello"]


async def test_an_edit_that_removes_the_mention_still_applies(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        gate = harness.hold_next_run("First")
        await harness.send("one", is_private=False)
        await harness.wait_for_runs(1)
        await harness.send("two", is_private=False)
        assert (
            await edit(harness, "e2", "2", "c1", is_private=False, is_addressed=False)
            is Disposition.ACCEPTED
        )
        gate.set()
        await harness.expect_replies("First", "Hello you")
        assert harness.prompts() == ["one", "2"]


async def test_a_closed_intake_keeps_no_change(tmp_path: Path) -> None:
    async with closed(tmp_path) as harness:
        with pytest.raises(IntakeClosed):
            await delete(harness, "e1")


@asynccontextmanager
async def closed(home: Path) -> AsyncIterator[BusHarness]:
    async with running_bus(home) as harness:
        harness.bus.local_intake.close()
        yield harness
