"""Sending on Slack: messages, answers to commands, lookups, files, reactions."""

import logging
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from bots.slack.adapter import SlackAdapter
from bots.slack.format import escape
from bus.errors import DeliveryError, MessageTooLong
from bus.messages import Button, ReplyTarget
from bus.platform import OutgoingFile, WorkShown
from gateway.playground.slack.server import BOT_USER, USER, FakeSlack
from gateway.playground.slack.state import SlackMessage
from tests.bots.slack_rig import FAST, QUICK, config, fast_slack, running
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake

TEXT = "**Hello** <!channel> & a [link](https://x.org)\n\n- one\n- two"


def place_of(message: SlackMessage) -> ReplyTarget:
    private = message.channel.startswith("D")
    thread = message.thread_ts if private else message.thread_ts or message.ts
    return ReplyTarget(chat=message.channel, thread=thread, reply_to=message.ts)


def outgoing(folder: Path, content: bytes = b"hello", name: str = "a.txt") -> OutgoingFile:
    path = folder / name
    path.write_bytes(content)
    return OutgoingFile(path=path, name=name, mime="text/plain", size_bytes=len(content))


async def test_an_answer_goes_into_the_thread() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.mention("hi")
        sent = await adapter.send(place_of(asked), TEXT, key="7:final:0")
        (answer,) = slack.replies(asked)
        assert answer.ts == sent
        assert answer.thread_ts == asked.ts
        assert answer.metadata == {
            "event_type": "parley_delivery",
            "event_payload": {"key": "7:final:0"},
        }
        assert [block["type"] for block in answer.blocks] == ["rich_text", "markdown"]
        assert "Hello" in answer.text
        await adapter.send(place_of(asked), "more", key="7:final:1")
        assert len(slack.replies(asked)) == 2
    assert slack.violations == []


async def test_an_answer_in_private_is_in_the_channel_of_the_question() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        flat, threaded = slack.dm("hi"), slack.dm("and here", thread_ts="")
        await adapter.send(place_of(flat), "flat", key="1")
        inside = slack.dm("in the thread", thread_ts=threaded.ts)
        await adapter.send(place_of(inside), "inside", key="2")
        assert [(m.text, m.thread_ts) for m in slack.messages(flat.channel) if m.bot_id] == [
            ("flat", ""),
            ("inside", threaded.ts),
        ]
    assert slack.violations == []


async def test_all_pieces_of_a_long_answer_are_taken() -> None:
    markdown = "\n\n".join(f"## Part {n}\n\n{'word ' * 200}\n\n---" for n in range(60))
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        for number, piece in enumerate(adapter.split(markdown)):
            await adapter.send(place_of(asked), piece, key=str(number))
        assert sum(text.count("word") for text in slack.texts(asked.channel)) == 60 * 200
    assert slack.violations == []


@pytest.mark.parametrize("reply", [{"ok": True}, {"ok": True, "ts": ""}, {"ok": True, "ts": 7}])
async def test_ok_without_a_timestamp_is_not_delivered(reply: dict[str, object]) -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        slack.fail("chat.postMessage", reply=reply)
        with pytest.raises(DeliveryError) as caught:
            await adapter.send(place_of(asked), "answer", key="1")
        assert (caught.value.retryable, caught.value.ambiguous) == (True, True)


async def test_sending_works_before_and_after_the_run() -> None:
    async with fast_slack() as slack:
        asked = slack.dm("hi")
        adapter = SlackAdapter(config(slack), timeouts=FAST)
        await adapter.send(place_of(asked), "without a run", key="1")
        assert await adapter.find_message(place_of(asked), key="1", since=time.time() - 5)
        assert slack.texts(asked.channel) == ["without a run"]


async def test_refused_blocks_become_plain_text() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        slack.fail("chat.postMessage", error="invalid_blocks")
        await adapter.send(place_of(asked), TEXT, key="1")
        (answer,) = slack.replies(asked)
        assert answer.blocks == []
        assert answer.text == escape(TEXT)
        assert "<!channel>" not in answer.text
    assert slack.violations == []


@pytest.mark.parametrize(
    ("trouble", "retryable", "ambiguous", "arrived"),
    [
        ({"status": 500}, True, False, 0),
        ({"status": 503, "body": "<html>down</html>"}, True, False, 0),
        ({"status": 429, "error": "ratelimited", "headers": {"Retry-After": "3"}}, True, False, 0),
        ({"drop": "before"}, True, True, 0),
        ({"drop": "after"}, True, True, 1),
        ({"delay_s": 1.0}, True, True, 1),
        ({"body": "<html>a proxy</html>"}, True, True, 0),
        ({"body": "{not json"}, True, True, 0),
        ({"error": "internal_error"}, True, True, 0),
        ({"error": "is_archived"}, False, False, 0),
        ({"error": "invalid_auth"}, True, False, 0),
    ],
    ids=str,
)
async def test_failures_are_mapped_to_errors_with_decisions(
    trouble: dict[str, object], *, retryable: bool, ambiguous: bool, arrived: int
) -> None:
    async with fast_slack() as slack:
        asked = slack.dm("hi")
        adapter = SlackAdapter(config(slack), timeouts=QUICK)
        slack.fail("chat.postMessage", **trouble)  # type: ignore[arg-type]
        with pytest.raises(DeliveryError) as caught:
            await adapter.send(place_of(asked), "answer", key="k")
        assert (caught.value.retryable, caught.value.ambiguous) == (retryable, ambiguous)
        if arrived:
            await slack.wait_for(lambda: slack.replies(asked))
        assert len(slack.replies(asked)) == arrived
        assert len(slack.asked("chat.postMessage")) == 1


async def test_the_pause_that_slack_asks_for_is_passed_on() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        slack.fail("chat.postMessage", status=429, headers={"Retry-After": "17"})
        with pytest.raises(DeliveryError) as caught:
            await adapter.send(place_of(slack.dm("hi")), "answer", key="k")
        assert caught.value.retry_after_s == 17


async def test_an_unreachable_slack_did_not_receive_the_message() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        await slack.go_offline()
        with pytest.raises(DeliveryError) as caught:
            await adapter.send(place_of(asked), "answer", key="k")
        assert (caught.value.retryable, caught.value.ambiguous) == (True, False)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("unknown", "invite"),
        ("left", "invite"),
        ("archived", "archived"),
        ("thread", "thread_not_found"),
    ],
)
async def test_channels_that_take_nothing(change: str, says: str) -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.mention("hi")
        channel = slack.workspace.channels[asked.channel]
        place = place_of(asked)
        if change == "unknown":
            place = ReplyTarget(chat="C404")
        elif change == "left":
            channel.members.remove(BOT_USER)
        elif change == "archived":
            channel.archived = True
        else:
            slack.workspace.posted.remove(asked)
        with pytest.raises(DeliveryError, match=says) as caught:
            await adapter.send(place, "answer", key="k")
        assert not caught.value.retryable
        assert caught.value.target_gone == (change == "thread")


# -- command answers


async def command_place(slack: FakeSlack, intake: RecordingIntake) -> ReplyTarget:
    slack.slash("help")
    await slack.wait_for(lambda: intake.received)
    return intake.received[0].reply_target


async def test_a_command_is_answered_to_its_author_alone() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        place = await command_place(slack, intake)
        assert await adapter.send(place, TEXT, key="k") == ""
        (answer,) = slack.messages("C1", viewer=USER)
        assert answer.only_for == USER
        assert slack.messages("C1") == []
        assert slack.asked("chat.postMessage") == []
    assert slack.violations == []


async def test_an_answer_that_comes_too_late_is_a_direct_message() -> None:
    """Only its author may see it, so the channel gets no message."""
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        place = await command_place(slack, intake)
        for number in range(7):
            assert await adapter.send(place, str(number), key=str(number)) == ""
        assert [m.words for m in slack.messages("C1", viewer=USER)] == ["0", "1", "2", "3", "4"]
        assert slack.texts(f"D{USER}") == ["5", "6"]
        slack.expire_callbacks()
        await adapter.send_with_buttons(place, "late", (Button(label="A", token="t"),), key="late")
        late = slack.messages(f"D{USER}")[-1]
        assert (late.words, dict(late.buttons)) == ("late", {})
        assert slack.messages("C1") == []
        assert len(slack.asked("conversations.open")) == 1
    assert slack.violations == []


async def test_a_file_that_answers_a_command_is_for_its_author_alone(tmp_path: Path) -> None:
    """A file cannot be shown to a single person in a channel, and the bot may not be in that channel."""
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        place = await command_place(slack, intake)
        slack.workspace.channels["C1"].members.clear()
        file = outgoing(tmp_path)
        await adapter.send_file(place, file, key="7:document:0")
        assert slack.messages("C1") == []
        assert [m.files[0]["name"] for m in slack.messages(f"D{USER}")] == [file.name]
        (told,) = slack.messages("C1", viewer=USER)
        assert file.name in told.words
        slack.expire_callbacks()
        await adapter.send_file(place, file, key="8:document:0")
        assert len(slack.messages(f"D{USER}")) == 2
    assert slack.violations == []


@pytest.mark.parametrize(
    "trouble", [{"status": 503}, {"drop": "before"}, {"error": "user_disabled"}], ids=str
)
async def test_direct_messages_that_cannot_be_opened_leave_no_doubt(
    trouble: dict[str, object],
) -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake, timeouts=QUICK) as adapter:
        place = await command_place(slack, intake)
        slack.expire_callbacks()
        slack.fail("conversations.open", **trouble)  # type: ignore[arg-type]
        with pytest.raises(DeliveryError) as caught:
            await adapter.send(place, "late", key="k")
        assert not caught.value.ambiguous
        assert caught.value.retryable == ("error" not in trouble)
        with pytest.raises(DeliveryError, match="no more answers"):
            await adapter.send(replace(place, user=""), "late", key="k")
        await adapter.send(place, "late", key="k")
        assert slack.texts(f"D{USER}") == ["late"]
        assert slack.messages("C1") == []


@pytest.mark.parametrize(
    ("trouble", "ambiguous"),
    [
        ({"status": 503}, False),
        ({"status": 429}, False),
        ({"drop": "before"}, True),
        ({"delay_s": 1.0}, True),
    ],
    ids=str,
)
async def test_a_command_answer_that_fails_is_tried_again_and_its_address_kept_secret(
    trouble: dict[str, object], *, ambiguous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake, timeouts=QUICK) as adapter:
        place = await command_place(slack, intake)
        slack.fail("response_url", **trouble)  # type: ignore[arg-type]
        with pytest.raises(DeliveryError) as caught:
            await adapter.send(place, "answer", key="k")
        assert (caught.value.retryable, caught.value.ambiguous) == (True, ambiguous)
        secret = place.response_url.rpartition("/")[2]
        assert secret not in f"{caught.value}{caught.value.__cause__}{caplog.text}"
        await adapter.send(place, "answer", key="k")


# -- looking up


async def test_a_message_is_found_by_its_key_in_its_thread() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        began = time.time()
        asked, other = slack.mention("hi"), slack.mention("other")
        sent = await adapter.send(place_of(asked), "answer", key="k1")
        assert await adapter.find_message(place_of(asked), key="k1", since=began) == sent
        assert await adapter.find_message(place_of(asked), key="k2", since=began) is None
        assert await adapter.find_message(place_of(other), key="k1", since=began) is None
        assert await adapter.find_message(place_of(asked), key="k1", since=began + 3600) is None
    assert slack.violations == []


async def test_a_message_is_found_in_a_private_chat_over_several_pages() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        slack.server.methods.page_size = 3
        asked = slack.dm("hi")
        sent = [await adapter.send(place_of(asked), str(n), key=f"k{n}") for n in range(8)]
        assert (
            await adapter.find_message(place_of(asked), key="k0", since=time.time() - 60) == sent[0]
        )
        assert len(slack.asked("conversations.history")) == 3
    assert slack.violations == []


async def test_the_message_of_another_bot_is_not_taken_for_ours() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.mention("hi")
        twin = slack.bot_says("answer", thread_ts=asked.ts)
        twin.metadata = {"event_type": "parley_delivery", "event_payload": {"key": "k"}}
        assert await adapter.find_message(place_of(asked), key="k", since=time.time() - 60) is None


async def test_a_failed_lookup_of_a_send_is_reported(tmp_path: Path) -> None:
    """The lookups are for an answer that only its reader sees, and for a file that an earlier process sent."""
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.mention("hi")
        private = ReplyTarget(chat="C1", response_url="https://hooks.test/x")
        with pytest.raises(DeliveryError) as caught:
            await adapter.find_message(private, key="k", since=0)
        assert not caught.value.retryable
        await adapter.send_file(place_of(asked), outgoing(tmp_path), key="7:file:0")
        later = SlackAdapter(config(slack), timeouts=FAST)
        with pytest.raises(DeliveryError, match="which file") as caught:
            await later.find_message(place_of(asked), key="7:file:0", since=0)
        assert not caught.value.retryable


async def test_the_lookup_of_a_sent_message_can_fail() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        slack.fail("conversations.history", status=429, headers={"Retry-After": "5"})
        with pytest.raises(DeliveryError) as caught:
            await adapter.find_message(place_of(asked), key="k", since=0)
        assert caught.value.retry_after_s == 5


# -- files


async def test_a_file_is_shared_in_the_thread(tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.mention("hi")
        ref = await adapter.send_file(
            place_of(asked), outgoing(tmp_path, content, "图.bin"), key="k"
        )
        (answer,) = slack.replies(asked)
        assert [(file["id"], file["name"]) for file in answer.files] == [(ref, "图.bin")]
        assert slack.workspace.files[ref].content == content
    assert slack.violations == []


@pytest.mark.parametrize(
    ("method", "trouble", "retryable", "ambiguous"),
    [
        ("files.getUploadURLExternal", {"drop": "after"}, True, False),
        ("files.getUploadURLExternal", {"error": "file_uploads_disabled"}, False, False),
        ("upload", {"status": 500}, True, False),
        ("upload", {"drop": "before"}, True, False),
        ("files.completeUploadExternal", {"drop": "after"}, True, True),
        ("files.completeUploadExternal", {"status": 429}, True, False),
    ],
    ids=str,
)
async def test_only_sharing_a_file_can_be_uncertain(
    tmp_path: Path, method: str, trouble: dict[str, object], *, retryable: bool, ambiguous: bool
) -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        slack.fail(method, **trouble)  # type: ignore[arg-type]
        with pytest.raises(DeliveryError) as caught:
            await adapter.send_file(place_of(asked), outgoing(tmp_path), key="k")
        assert (caught.value.retryable, caught.value.ambiguous) == (retryable, ambiguous)
        assert len(slack.replies(asked)) == int(ambiguous)
        found = await adapter.find_message(place_of(asked), key="k", since=time.time() - 60)
        assert bool(found) == ambiguous


async def test_files_that_cannot_be_sent(tmp_path: Path) -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        with pytest.raises(DeliveryError, match="empty"):
            await adapter.send_file(place_of(asked), outgoing(tmp_path, b""), key="k")
        gone = outgoing(tmp_path)
        gone.path.unlink()
        with pytest.raises(DeliveryError, match="no longer be read") as caught:
            await adapter.send_file(place_of(asked), gone, key="k")
        assert not caught.value.retryable
        assert str(tmp_path) not in caught.value.user_message


async def test_an_image_is_described_to_those_who_cannot_see_it(tmp_path: Path) -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        image = replace(outgoing(tmp_path, name="sales_by-region.png"), mime="image/png")
        ref = await adapter.send_file(place_of(asked), image, key="k")
        assert slack.workspace.files[ref].extra == {"alt_txt": "sales by region"}
        ref = await adapter.send_file(place_of(asked), outgoing(tmp_path), key="k2")
        assert slack.workspace.files[ref].extra == {}
    assert slack.violations == []


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("file_type_not_allowed", "type"),
        ("file_uploads_disabled", "turned off"),
        ("file_uploads_except_images_disabled", "only image uploads"),
        ("storage_limit_reached", "full"),
        ("file_upload_size_restricted", "size"),
    ],
)
async def test_the_reason_why_a_workspace_refuses_files_is_reported(
    tmp_path: Path, error: str, says: str
) -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        slack.fail("files.getUploadURLExternal", error=error)
        with pytest.raises(DeliveryError, match=says) as caught:
            await adapter.send_file(place_of(asked), outgoing(tmp_path), key="k")
        assert not caught.value.retryable


# -- long code

CODE = "\n".join(f"print({n})  # <!channel>" for n in range(900))
FENCED = f"```python\n{CODE}\n```"


async def test_code_that_no_message_holds_is_a_file() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.mention("hi")
        pieces = adapter.split(f"Here it is:\n\n{FENCED}\n\nThat is all.")
        assert len(pieces) == 3
        for number, piece in enumerate(pieces):
            await adapter.send(place_of(asked), piece, key=f"7:reply:{number}")
        before, file, after = slack.replies(asked)
        assert (before.words, after.words) == ("Here it is:", "That is all.")
        (shared,) = file.files
        assert shared["name"] == "code.py"
        assert slack.workspace.files[shared["id"]].content == CODE.encode()
        found = await adapter.find_message(place_of(asked), key="7:reply:1", since=time.time() - 60)
        assert found == shared["id"]
    assert slack.violations == []


async def test_without_permission_for_files_long_code_is_sent_as_several_messages() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        slack.fail("files.getUploadURLExternal", error="file_uploads_disabled")
        with pytest.raises(MessageTooLong) as refused:
            await adapter.send(place_of(asked), FENCED, key="k")
        assert slack.texts(asked.channel) == []
        for number, piece in enumerate(refused.value.pieces):
            await adapter.send(place_of(asked), piece, key=f"k+{number}")
        texts = slack.texts(asked.channel)
        assert len(texts) > 1
        assert sum(text.count("print(") for text in texts) == 900
    assert slack.violations == []


async def test_a_command_that_is_answered_with_long_code_is_answered_in_private() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        place = await command_place(slack, intake)
        with pytest.raises(MessageTooLong) as refused:
            await adapter.send(place, FENCED, key="k")
        for piece in refused.value.pieces:
            await adapter.send(place, piece, key="k")
        texts = slack.texts("C1", viewer=USER)
        assert sum(text.count("print(") for text in texts) == 900
        assert slack.texts("C1") == []
    assert slack.violations == []


# -- signs


@pytest.mark.parametrize(("ok", "sign"), [(True, "white_check_mark"), (False, "x")])
async def test_reactions_show_work_and_its_end(*, ok: bool, sign: str) -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.mention("hi")
        await adapter.show_working(place_of(asked))
        await adapter.show_working(place_of(asked))
        assert slack.reactions(asked) == {"eyes"}
        await adapter.show_finished(place_of(asked), ok=ok)
        await adapter.show_finished(place_of(asked), ok=ok)
        assert slack.reactions(asked) == {sign}
    assert slack.violations == []


async def test_the_outcome_is_shown_while_the_working_reaction_cannot_be_removed() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.mention("hi")
        await adapter.show_working(place_of(asked))
        slack.fail(
            "reactions.remove", status=429, error="ratelimited", headers={"Retry-After": "1"}
        )
        with pytest.raises(DeliveryError) as caught:
            await adapter.show_finished(place_of(asked), ok=True)
        assert (caught.value.retryable, caught.value.retry_after_s) == (True, 1)
        assert slack.reactions(asked) == {"eyes", "white_check_mark"}
        with pytest.raises(DeliveryError) as caught:
            await adapter.show_finished(place_of(asked), ok=True)
        assert 0 < (caught.value.retry_after_s or 0) <= 1
        assert len(slack.asked("reactions.remove")) == 1  # no more requests to Slack before that

        async def finish() -> bool:
            with suppress(DeliveryError):
                await adapter.show_finished(place_of(asked), ok=True)
            return slack.reactions(asked) == {"white_check_mark"}

        await eventually(finish)
        assert len(slack.asked("reactions.add")) == 2


async def test_a_busy_workspace_has_no_more_working_reactions_than_can_be_removed() -> None:
    """Slack permits 20 removals a minute. With more messages, removals would pile up and be retried for hours."""
    async with fast_slack() as slack, running(slack) as adapter:
        asked = [slack.mention(f"hi {number}") for number in range(70)]
        for message in asked:
            await adapter.show_working(place_of(message))
        assert sum(slack.reactions(message) == {"eyes"} for message in asked) == 20
        for message in asked:
            await adapter.show_finished(place_of(message), ok=True, was_shown=WorkShown.HERE)
        signs = [sign for message in asked for sign in slack.reactions(message)]
        assert signs == ["white_check_mark"] * 30
        assert len(slack.asked("reactions.remove")) == 20
    assert slack.violations == []


async def test_a_reaction_of_an_earlier_process_goes_although_there_was_no_room_for_another() -> (
    None
):
    """Seed 2611102 of the proof: after a restart, the reaction stayed on messages while removals were limited."""
    async with fast_slack() as slack:
        asked = slack.mention("hi")
        async with running(slack) as earlier:
            await earlier.show_working(place_of(asked))
        assert slack.reactions(asked) == {"eyes"}
        async with running(slack) as adapter:
            others = [slack.mention(f"hi {number}") for number in range(20)]
            for message in others:
                await adapter.show_working(place_of(message))
            await adapter.show_working(place_of(asked))
            with pytest.raises(DeliveryError, match="Too many reactions") as caught:
                await adapter.show_finished(place_of(asked), ok=True)
            assert caught.value.retryable  # so it is tried again


async def test_indicators_that_were_never_shown_are_not_removed() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.mention("hi")
        await adapter.show_finished(place_of(asked), ok=True, was_shown=WorkShown.NO)
        assert slack.reactions(asked) == {"white_check_mark"}
        assert slack.asked("reactions.remove") == []
    assert slack.violations == []


async def test_a_command_has_no_message_to_react_on() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        await adapter.show_working(ReplyTarget(chat="C1"))
        await adapter.show_finished(ReplyTarget(chat="C1"), ok=True)
        assert slack.asked("reactions.add") == []


async def test_a_missing_permission_is_reported_once_and_not_tried_again() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        slack.server.scopes.discard("reactions:write")
        with pytest.raises(DeliveryError, match="reactions:write") as caught:
            await adapter.show_working(place_of(slack.mention("hi")))
        assert not caught.value.retryable
