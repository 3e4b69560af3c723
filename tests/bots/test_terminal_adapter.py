"""The terminal adapter."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from bots.terminal.adapter import BUFFERED_EVENTS, TerminalAdapter
from bots.terminal.received_files import AttachedFileMissing, ReceivedFiles
from bots.terminal.session import (
    TerminalButton,
    TerminalFile,
    TerminalIndicator,
    TerminalLine,
    TerminalMessage,
    TerminalToolStep,
)
from bus.errors import DeliveryError, FileTooLarge, IntakeClosed
from bus.messages import (
    Button,
    MessageId,
    ReplyTarget,
    ToolStep,
)
from bus.platform import (
    Adapter,
    ConnectionState,
    Disposition,
    OutgoingFile,
    SupportsButtons,
    SupportsDownloads,
    SupportsIndicators,
    SupportsStreaming,
    SupportsToolSteps,
)
from tests.eventually import is_waiting
from tests.fakes.clock import ManualClock
from tests.fakes.intake import RecordingIntake

PLACE = ReplyTarget(chat="s1")


@asynccontextmanager
async def running(adapter: TerminalAdapter) -> AsyncIterator[RecordingIntake]:
    intake = RecordingIntake()
    async with anyio.create_task_group() as tasks:
        await tasks.start(adapter.run, intake)
        yield intake
        tasks.cancel_scope.cancel()


def test_it_is_an_adapter_with_cards_and_signs(tmp_path: Path) -> None:
    adapter = TerminalAdapter(files=tmp_path)
    assert isinstance(adapter, Adapter)
    assert isinstance(adapter, SupportsStreaming)
    assert isinstance(adapter, SupportsIndicators)
    assert adapter.name == "terminal"
    assert adapter.split("x" * 100_000) == ["x" * 100_000]


async def test_a_typed_line_becomes_a_private_message(tmp_path: Path) -> None:
    adapter = TerminalAdapter(files=tmp_path)
    async with running(adapter) as intake:
        with adapter.attach("s1") as session:
            assert await session.say("hello") is Disposition.ACCEPTED
            assert await session.say("again") is Disposition.ACCEPTED
    first, second = intake.received
    assert (first.text, first.is_private, first.is_addressed) == ("hello", True, True)
    assert (first.key.channel, first.key.chat, first.key.topic) == ("terminal", "s1", "")
    assert first.reply_target == PLACE
    assert first.event_id != second.event_id
    assert first.event_id == first.message_id


async def test_an_event_id_of_the_caller_is_kept(tmp_path: Path) -> None:
    adapter = TerminalAdapter(files=tmp_path)
    async with running(adapter) as intake:
        await adapter.say("s1", "hello", event_id="e1")
    assert intake.received[0].event_id == "e1"


async def test_a_refusal_reaches_the_speaker(tmp_path: Path) -> None:
    adapter = TerminalAdapter(files=tmp_path)
    async with running(adapter) as intake:
        intake.errors.append(IntakeClosed())
        with adapter.attach("s1") as session, pytest.raises(IntakeClosed):
            await session.say("hello")


async def test_events_reach_every_attached_terminal_in_order(tmp_path: Path) -> None:
    adapter = TerminalAdapter(files=tmp_path)
    with adapter.attach("s1") as one, adapter.attach("s1") as two, adapter.attach("s2") as other:
        await adapter.show_working(PLACE)
        card = await adapter.start_streaming(PLACE, "…", key="k1")
        await adapter.update_streaming(PLACE, card, "Hel", final=False)
        await adapter.update_streaming(PLACE, card, "Hello", final=True)
        await adapter.send(PLACE, "More", key="k2")
        await adapter.show_finished(PLACE, ok=True)
        for session in (one, two):
            events = session.events()
            assert [await anext(events) for _ in range(6)] == [
                TerminalIndicator(state="working"),
                TerminalMessage(id="k1", text="…", final=False),
                TerminalMessage(id="k1", text="Hel", final=False),
                TerminalMessage(id="k1", text="Hello", final=True),
                TerminalMessage(id="k2", text="More", final=True),
                TerminalIndicator(state="ok"),
            ]
        assert await is_waiting(lambda: anext(other.events()))


async def test_buttons_belong_to_finished_messages_and_can_be_pressed(tmp_path: Path) -> None:
    adapter = TerminalAdapter(files=tmp_path)
    assert isinstance(adapter, SupportsButtons)
    buttons = [Button(label="Red", token="option:1:0")]
    async with running(adapter) as intake:
        with adapter.attach("s1") as session:
            card = await adapter.start_streaming(PLACE, "…", key="k1", buttons=buttons)
            await adapter.update_streaming(PLACE, card, "Whi", final=False, buttons=buttons)
            await adapter.update_streaming(PLACE, card, "Which?", final=True, buttons=buttons)
            await adapter.send_with_buttons(PLACE, "Again?", buttons, key="k2")
            events = session.events()
            shown = [await anext(events) for _ in range(4)]
        assert [getattr(event, "buttons", None) for event in shown] == [
            (), (), (TerminalButton(label="Red", token="option:1:0"),),
            (TerminalButton(label="Red", token="option:1:0"),),
        ]  # fmt: skip
        await adapter.press("s1", "option:1:0", message="k2", event_id="p1")
    (press,) = intake.pressed
    assert (press.event_id, press.token, press.message_id) == ("p1", "option:1:0", "k2")
    assert (press.key.chat, press.is_private) == ("s1", True)


async def test_tool_calls_and_lines_reach_every_attached_terminal(tmp_path: Path) -> None:
    adapter = TerminalAdapter(files=tmp_path)
    assert isinstance(adapter, SupportsToolSteps)
    step = ToolStep(id="c1", title="`ls` /mnt", arguments="path: /mnt", result="a")
    async with running(adapter):
        with adapter.attach("s1") as one, adapter.attach("s1") as two:
            await adapter.say("s1", "hello", event_id="e1")
            await adapter.show_tool_step(PLACE, step)
            for session in (one, two):
                events = session.events()
                assert await anext(events) == TerminalLine(id="e1", text="hello")
                assert await anext(events) == TerminalToolStep(
                    id="c1", title="`ls` /mnt", arguments="path: /mnt", result="a", failed=False
                )


async def test_without_a_terminal_a_message_is_kept_for_a_while(tmp_path: Path) -> None:
    clock = ManualClock()
    adapter = TerminalAdapter(files=tmp_path, grace_s=60, retry_s=2, now=clock)
    with pytest.raises(DeliveryError) as early:
        await adapter.send(PLACE, "x", key="k")
    assert (early.value.retryable, early.value.retry_after_s) == (True, 2)
    for absent_s, retry_s in ((10, 5), (50, 20)):
        clock.now += absent_s - (clock.now - adapter.health().since)
        with pytest.raises(DeliveryError) as later:
            await adapter.send(PLACE, "x", key="k")
        assert later.value.retry_after_s == retry_s
    clock.now += 61
    with pytest.raises(DeliveryError) as late:
        await adapter.send(PLACE, "x", key="k")
    assert not late.value.retryable
    with adapter.attach("s1"):
        await adapter.send(PLACE, "x", key="k")
    with pytest.raises(DeliveryError) as left:
        await adapter.send(PLACE, "x", key="k")
    assert left.value.retryable


async def test_an_indicator_for_nobody_is_not_tried_again(tmp_path: Path) -> None:
    """A session must not keep a task for ten minutes after its client got the answer and left."""
    adapter = TerminalAdapter(files=tmp_path)
    await adapter.show_working(PLACE)
    await adapter.show_finished(PLACE, ok=True)
    with adapter.attach("s1") as session:
        await adapter.show_finished(PLACE, ok=False)
        assert await anext(session.events()) == TerminalIndicator(state="failed")


async def test_a_terminal_that_does_not_read_skips_patches_but_no_answer(tmp_path: Path) -> None:
    adapter = TerminalAdapter(files=tmp_path)
    with adapter.attach("s1"):
        for number in range(BUFFERED_EVENTS + 10):
            await adapter.update_streaming(PLACE, MessageId("k"), str(number), final=False)
        with pytest.raises(DeliveryError) as refused:
            await adapter.send(PLACE, "answer", key="k")
    assert refused.value.retryable


async def test_files_are_kept_under_free_names(tmp_path: Path) -> None:
    source = tmp_path / "download"
    source.write_bytes(b"1,2")
    adapter = TerminalAdapter(files=tmp_path / "terminal")
    file = OutgoingFile(path=source, name="../../data.csv", mime="text/csv", size_bytes=3)
    with adapter.attach("s1") as session:
        await adapter.send_file(PLACE, file, key="f1")
        await adapter.send_file(PLACE, file, key="f2")
        events = session.events()
        assert await anext(events) == TerminalFile(
            id="f1", name="../../data.csv", path="s1/data.csv"
        )
        assert (await anext(events)) == TerminalFile(
            id="f2", name="../../data.csv", path="s1/data-1.csv"
        )
    assert (tmp_path / "terminal/s1/data-1.csv").read_bytes() == b"1,2"


async def test_a_full_disk_is_a_delivery_error(tmp_path: Path) -> None:
    source = tmp_path / "file"
    source.write_text("x")
    adapter = TerminalAdapter(files=source / "not-a-folder")
    with adapter.attach("s1"), pytest.raises(DeliveryError):
        await adapter.send_file(
            PLACE, OutgoingFile(path=source, name="a", mime="text/plain", size_bytes=1), key="k"
        )


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", ".hidden", "x" * 65, "a\n"])
def test_session_names_are_checked(tmp_path: Path, name: str) -> None:
    adapter = TerminalAdapter(files=tmp_path)
    with pytest.raises(ValueError, match="session"), adapter.attach(name):
        pass


async def test_health_reports_the_true_state(tmp_path: Path) -> None:
    clock = ManualClock()
    adapter = TerminalAdapter(files=tmp_path, patience_s=0.01, now=clock)
    assert adapter.health().state is ConnectionState.CONNECTING
    with pytest.raises(DeliveryError):
        await adapter.say("s1", "too early")
    async with running(adapter):
        assert adapter.health().state is ConnectionState.CONNECTED
        clock.now += 5
        await adapter.say("s1", "x")
        assert adapter.health().last_event_at == clock.now
        assert adapter.health().since == clock.now - 5
    assert adapter.health().state is ConnectionState.STOPPED


async def in_chunks(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def test_an_attached_file_reaches_the_bus_and_can_be_downloaded(tmp_path: Path) -> None:
    adapter = TerminalAdapter(files=tmp_path)
    assert isinstance(adapter, SupportsDownloads)
    async with running(adapter) as intake:
        with adapter.attach("s1") as session:
            ref = await session.attach("../a b.png", in_chunks(b"12", b"3"))
            await session.say("look", [ref])
    (file,) = intake.received[0].attachments
    assert (file.name, file.mime, file.kind, file.size_bytes) == (
        ".._a b.png",
        "image/png",
        "image",
        3,
    )
    async with adapter.download(file, max_bytes=3) as chunks:
        assert b"".join([chunk async for chunk in chunks]) == b"123"
    with pytest.raises(FileTooLarge):
        async with adapter.download(file, max_bytes=2) as chunks:
            _ = [chunk async for chunk in chunks]


@pytest.mark.parametrize("ref", ["", "..", "../../secret", "0" * 32, "/etc"])
async def test_only_attached_files_can_be_named(tmp_path: Path, ref: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("x")
    adapter = TerminalAdapter(files=tmp_path / "files")
    async with running(adapter) as intake:
        with pytest.raises(AttachedFileMissing):
            await adapter.say("s1", "hello", files=[ref])
    assert intake.received == []


async def test_incomplete_and_old_files_are_removed(tmp_path: Path) -> None:
    files = ReceivedFiles(tmp_path)
    old = await files.save("old", in_chunks(b"1"), max_bytes=5)
    folder = tmp_path / ".attached" / old
    os.utime(folder, (0, 0))
    with pytest.raises(FileTooLarge):
        await files.save("large", in_chunks(b"123", b"456"), max_bytes=5)
    assert list((tmp_path / ".attached").iterdir()) == []


async def test_a_full_disk_refuses_an_attached_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DeliveryError) as refused:
        await ReceivedFiles(tmp_path / "file").save("a", in_chunks(b"1"), max_bytes=5)
    assert refused.value.retryable


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="there is no /proc")
async def test_a_file_that_the_disk_does_not_give_back_can_be_fetched_again(tmp_path: Path) -> None:
    files = ReceivedFiles(tmp_path)
    ref = await files.save("a", in_chunks(b"1"), max_bytes=5)
    stored = tmp_path / ".attached" / ref / "a"
    stored.unlink()
    stored.symlink_to("/proc/self/mem")  # reading it fails, as on a damaged disk
    async with files.open(ref, max_bytes=5) as chunks:
        with pytest.raises(DeliveryError, match="cannot be read") as failed:
            await anext(chunks)
    assert failed.value.retryable
