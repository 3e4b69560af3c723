"""The verdict finds planted problems: a lost, a doubled, a stale and a stuck message, and a damaged database."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bus.locales import LANGUAGES
from store.sqlite_file import connect
from tests.people.chat_user import Arrival, ShownMessage
from tests.prove.databases import SqliteDatabase
from tests.prove.journal import InboxRecord, Journal, OutboxRecord
from tests.prove.model import TOOL_FAILED, answer_text
from tests.prove.plan import MessageKind, ModelBehavior
from tests.prove.verdict import (
    Evidence,
    Outcome,
    SentEdit,
    SentMessage,
    Verdict,
    ViolationKind,
    judge,
)

PLACE, CHANNEL, CHAT = "telegram private 1", "telegram", "5001"


def sent(number: int = 1, **changes: Any) -> SentMessage:  # noqa: ANN401
    mark = f"m{number:05d}"
    message = SentMessage(
        id=mark,
        place=PLACE,
        channel=CHANNEL,
        chat=CHAT,
        kind=MessageKind.CHAT,
        behavior=ModelBehavior.ANSWER,
        versions=(f"{mark}v1 hello",),
        message_id=str(100 + number),
        sent_at=1000.0 + number,
        arrival=Arrival.CONFIRMED,
    )
    return replace(message, **changes)


def accepted(number: int = 1, **changes: Any) -> InboxRecord:  # noqa: ANN401
    row = InboxRecord(
        id=number,
        conversation_id=1,
        seq=number,
        channel=CHANNEL,
        chat=CHAT,
        topic="",
        event_id=str(9000 + number),
        message_id=str(100 + number),
        kind="chat",
        state="done",
        starts=1,
        thread_id="thread-1",
        run_id=f"run-{number}",
        run_status="success",
        run_version=f"{CHANNEL}:{9000 + number}",
        has_question=False,
        received_at=1000.5 + number,
        body={"text": "hello"},
    )
    return replace(row, **changes)


def delivered(number: int = 1, **changes: Any) -> OutboxRecord:  # noqa: ANN401
    row = OutboxRecord(
        id=number,
        key=f"{number}:reply:0",
        conversation_id=1,
        channel=CHANNEL,
        chat=CHAT,
        topic="",
        state="delivered",
        attempts=1,
        uncertain_attempts=0,
        platform_id=str(200 + number),
        error="",
        created_at=1001.0 + number,
        updated_at=1001.5 + number,
        body={"kind": "text", "provisional": False},
    )
    return replace(row, **changes)


def shown(number: int = 1, **changes: Any) -> ShownMessage:  # noqa: ANN401
    message = ShownMessage(id=str(200 + number), text=answer_text(f"m{number:05d}", 1))
    return replace(message, **changes)


def verdict(
    messages: Sequence[SentMessage],
    inbox: Sequence[InboxRecord] = (),
    outbox: Sequence[OutboxRecord] = (),
    seen: Sequence[ShownMessage] = (),
    **more: Any,  # noqa: ANN401
) -> Verdict:
    journal = Journal(inbox=tuple(inbox), outbox=tuple(outbox))
    chats = {PLACE: (CHANNEL, CHAT)}
    shown = {PLACE: seen}
    return judge(Evidence(messages=messages, shown=shown, chats=chats, journal=journal, **more))


def kinds(found: Verdict) -> list[ViolationKind]:
    return [violation.kind for violation in found.violations]


def outcomes(found: Verdict) -> list[Outcome | None]:
    return [history.outcome for history in found.histories]


def test_an_answered_message_is_fine() -> None:
    found = verdict([sent()], [accepted()], [delivered()], [shown()])
    assert (outcomes(found), kinds(found)) == ([Outcome.ANSWERED], [])


def test_a_lost_message_is_found() -> None:
    assert kinds(verdict([sent()])) == [ViolationKind.SILENT]
    assert kinds(verdict([sent()], [accepted()])) == [ViolationKind.SILENT]
    never = verdict([sent(arrival=Arrival.WAITING)])
    assert kinds(never) == [ViolationKind.STUCK]


def test_an_answer_that_only_the_journal_contains_is_no_answer() -> None:
    assert kinds(verdict([sent()], [accepted()], [delivered()])) == [ViolationKind.SILENT]


def test_in_a_group_a_model_may_say_nothing() -> None:
    empty = sent(behavior=ModelBehavior.EMPTY)
    in_group = accepted(body={"text": "m00001v1 hello", "is_private": False})
    assert outcomes(verdict([empty], [in_group])) == [Outcome.NOTHING_SAID]
    alone = replace(in_group, body={**in_group.body, "is_private": True})
    assert kinds(verdict([empty], [alone])) == [ViolationKind.SILENT]
    assert kinds(verdict([sent()], [in_group])) == [ViolationKind.SILENT]
    joined = replace(in_group, id=2, message_id="102", event_id="9002", run_id="run-1")
    joined = replace(joined, body={"text": "m00002v1 hello", "is_private": False})
    both = verdict([empty, sent(2)], [in_group, joined])
    assert outcomes(both) == [Outcome.NOTHING_SAID, Outcome.NOTHING_SAID]


def test_a_stop_ends_its_own_topic_or_all_of_its_senders_turns_in_the_chat() -> None:
    own = accepted(topic="7", body={"text": "hello", "sender": {"user_id": "ann"}})
    stop = accepted(2, conversation_id=2, kind="command", topic="102")
    stop = replace(stop, body={"text": "/stop", "sender": {"user_id": "ann"}})
    assert outcomes(verdict([sent()], [own, stop])) == [Outcome.STOPPED]
    elsewhere = replace(stop, topic="8")
    assert kinds(verdict([sent()], [own, elsewhere])) == [ViolationKind.SILENT]
    by_another = replace(stop, body={"text": "/stop", "sender": {"user_id": "bob"}})
    assert kinds(verdict([sent()], [own, by_another])) == [ViolationKind.SILENT]


def test_events_that_the_platform_gave_up_are_not_violations() -> None:
    found = verdict([sent(arrival=Arrival.GIVEN_UP)])
    assert (outcomes(found), kinds(found)) == ([Outcome.UNDELIVERED], [])


def test_an_answer_of_an_earlier_turn_that_ran_again_may_be_shown_twice_if_it_is_uncertain() -> (
    None
):
    """Message 2 was injected into the run of message 1, which ran again after an edit and answered both."""
    inbox = [accepted(run_id="again"), accepted(2, run_id="first")]
    both = "\n\n".join(answer_text(f"m{number:05d}", 1) for number in (1, 2))
    seen = [shown(text=both), shown(9, text=both)]
    doubt = delivered(state="uncertain", attempts=2, uncertain_attempts=1)
    assert kinds(verdict([sent(), sent(2)], inbox, [doubt], seen)) == []
    sure = verdict([sent(), sent(2)], inbox, [delivered()], seen)
    assert set(kinds(sure)) == {ViolationKind.DOUBLED}


def test_a_doubled_answer_is_found_unless_the_outbox_says_uncertain() -> None:
    twice = [shown(), shown(id="299")]
    found = verdict([sent()], [accepted()], [delivered()], twice)
    assert set(kinds(found)) == {ViolationKind.DOUBLED}
    row = delivered(state="uncertain", attempts=2, uncertain_attempts=1)
    excused = verdict([sent()], [accepted()], [row], twice)
    assert (outcomes(excused), kinds(excused)) == ([Outcome.REPEATED], [])
    again = delivered(state="delivered", attempts=2, uncertain_attempts=1)
    four = [shown(), *(shown(id=str(number)) for number in (297, 298, 299))]
    found = verdict([sent()], [accepted()], [again], four)
    assert set(kinds(found)) == {ViolationKind.DOUBLED}


def test_an_answer_without_a_mark_or_outbox_row_is_found() -> None:
    failed = shown(text="⚠️ Sorry.")
    found = verdict([sent()], [accepted()], [delivered()], [failed, replace(failed, id="299")])
    assert kinds(found) == [ViolationKind.DOUBLED]
    two = verdict(
        [sent(1), sent(2)],
        [accepted(1), accepted(2)],
        [delivered(1), delivered(2)],
        [failed, replace(failed, id="202")],
    )
    assert kinds(two) == []


def test_a_message_that_was_accepted_twice_is_found() -> None:
    rows = [accepted(), accepted(2, message_id="101")]
    sends = [delivered(), delivered(2)]
    found = verdict([sent()], rows, sends, [shown(), shown(id="202")])
    assert kinds(found) == [ViolationKind.DOUBLED]


def test_files_and_words_that_were_sent_together_have_one_answer() -> None:
    file = sent(1, kind=MessageKind.FILE)
    words = sent(2)
    together = accepted(
        1,
        message_id="101",
        body={"text": "m00002v1 hello", "attachments": [{"name": "m00001v1.txt"}]},
    )
    answer = shown(1, text=answer_text("m00002", 1))
    found = verdict([file, words], [together], [delivered(1)], [answer])
    assert (outcomes(found), kinds(found)) == ([Outcome.ANSWERED, Outcome.ANSWERED], [])


@pytest.mark.parametrize("version", [1, 2])
def test_a_part_of_a_gesture_has_the_answer_of_the_whole(version: int) -> None:
    words = sent(1, versions=("m00001v1 hello", "m00001v2 hello, edited"))
    file = sent(2, kind=MessageKind.FILE)
    whole = {"text": f"m00001v{version} hello", "attachments": [{"name": "m00002v1.txt"}]}
    part = accepted(2, run_id=None, run_status=None, run_version=None, body={"part_of": 1})
    answer = shown(text=answer_text("m00001", version))
    found = verdict([words, file], [accepted(body=whole), part], [delivered()], [answer])
    assert (outcomes(found), kinds(found)) == ([Outcome.ANSWERED, Outcome.ANSWERED], [])


def test_a_part_of_a_gesture_that_its_first_row_does_not_contain_is_found() -> None:
    part = accepted(2, run_id=None, run_status=None, run_version=None, body={"part_of": 1})
    rows = [accepted(body={"text": "m00001v1 hello"}), part]
    found = verdict([sent(), sent(2)], rows, [delivered()], [shown()])
    assert ViolationKind.SILENT in kinds(found)


def test_an_answer_that_the_person_asked_for_again_may_be_there_twice() -> None:
    again = accepted(2, event_id="press:1:retry", message_id="")
    sends = [delivered(), delivered(2)]
    found = verdict([sent()], [accepted(), again], sends, [shown(), shown(id="202")])
    assert (outcomes(found), kinds(found)) == ([Outcome.ANSWERED], [])


def test_a_card_that_still_works_and_a_reaction_that_is_left_are_found() -> None:
    card = shown(text="Reply to m00001v1: as", unfinished=True)
    found = verdict([sent()], [accepted()], [delivered()], [card])
    assert kinds(found) == [ViolationKind.INCOMPLETE, ViolationKind.STUCK]
    left = verdict([sent(working_signs=("eyes",))], [accepted()], [delivered()], [shown()])
    assert kinds(left) == [ViolationKind.STUCK]


def test_an_end_of_unknown_outcome_may_be_missing() -> None:
    begun = shown(text="Reply to m00001v1: as")
    end = delivered(2, key="1:reply:1", platform_id="", state="uncertain")
    found = verdict([sent()], [accepted()], [delivered(), end], [begun])
    assert kinds(found) == []
    sent_end = replace(end, state="delivered", platform_id="202")
    found = verdict([sent()], [accepted()], [delivered(), sent_end], [begun])
    assert kinds(found) == [ViolationKind.INCOMPLETE]


def test_rows_that_are_left_open_are_found() -> None:
    assert kinds(verdict([sent()], [accepted(state="running")])) == [ViolationKind.STUCK]
    rows = [accepted()], [delivered(), delivered(2, key="1:file:0", state="pending")]
    assert kinds(verdict([sent()], *rows, [shown()])) == [ViolationKind.STUCK]
    foreign = accepted(7, event_id="press:1:retry", message_id="", state="new")
    assert kinds(verdict([], [foreign])) == [ViolationKind.STUCK]


def test_a_stale_answer_is_found_unless_a_new_one_is_offered() -> None:
    edits = (SentEdit(2, 1003.0, Arrival.CONFIRMED),)
    edited = sent(versions=("m00001v1 a", "m00001v2 b"), edits=edits)
    assert kinds(verdict([edited], [accepted()], [delivered()], [shown()])) == [ViolationKind.STALE]
    offer = delivered(3, key="1:rerun:0", platform_id="203")
    offered = [shown(), ShownMessage(id="203", text="You edited this message")]
    assert kinds(verdict([edited], [accepted()], [delivered(), offer], offered)) == []
    taken = replace(
        edited, edits=(SentEdit(2, 1003.0, Arrival.GIVEN_UP),)
    )  # Its acknowledgement was lost.
    second = [shown(text=answer_text("m00001", 2))]
    assert kinds(verdict([taken], [accepted()], [delivered()], second)) == []
    unheard = replace(edited, edits=(SentEdit(2, 1003.0, Arrival.GIVEN_UP),))
    assert kinds(verdict([unheard], [accepted()], [delivered()], [shown()])) == []


def test_answers_in_the_wrong_order_are_found() -> None:
    messages, rows = [sent(1), sent(2)], [accepted(1), accepted(2)]
    found = verdict(messages, rows, [delivered(1), delivered(2)], [shown(2), shown(1)])
    assert kinds(found) == [ViolationKind.OUT_OF_ORDER]
    rows = [accepted(1), accepted(2, thread_id="thread-2")]  # /new came in between
    found = verdict(messages, rows, [delivered(1), delivered(2)], [shown(2), shown(1)])
    assert kinds(found) == []


def test_a_missing_file_is_found() -> None:
    asked = sent(kind=MessageKind.FILE_REQUEST, behavior=ModelBehavior.FILE)
    rows = [accepted()], [delivered(), delivered(2, key="1:file:0", body={"kind": "file"})]
    assert kinds(verdict([asked], *rows, [shown()])) == [ViolationKind.INCOMPLETE]
    failed = [shown(text=f"{answer_text('m00001', 1)} {TOOL_FAILED}")]
    assert kinds(verdict([asked], *rows, failed)) == []
    file = ShownMessage(id="202", text="", file="m00001.txt")
    assert kinds(verdict([asked], *rows, [shown(), file])) == []
    unknown = delivered(
        2, key="1:file:0", state="uncertain", body={"kind": "file", "name": "m00001.txt"}
    )
    found = verdict([asked], [accepted()], [delivered(), unknown], [shown()])
    assert (outcomes(found), kinds(found)) == ([Outcome.UNCERTAIN], [])


def test_an_aside_is_not_answered() -> None:
    aside = sent(kind=MessageKind.ASIDE)
    assert outcomes(verdict([aside])) == [Outcome.IGNORED]
    found = verdict([aside], [accepted()], [delivered()], [shown()])
    assert kinds(found) == [ViolationKind.UNEXPECTED]


def test_a_refusal_counts_if_the_person_was_notified() -> None:
    words = {"kind": "text", "markdown": "Too many.", "reply_target": {"reply_to": "101"}}
    own = delivered(5, key="full:1:9000", body=words)
    assert outcomes(verdict([sent()], [], [own])) == [Outcome.REFUSED]
    of_another = replace(own, body=words | {"reply_target": {"reply_to": "7"}})
    assert kinds(verdict([sent()], [], [of_another])) == [ViolationKind.SILENT]
    assert None in outcomes(verdict([sent()], [], [replace(own, state="failed")]))
    assert outcomes(verdict([sent(has_failed_sign=True)])) == [Outcome.REFUSED]


def test_one_notice_covers_as_many_refusals_as_it_names() -> None:
    more = LANGUAGES["en"].refused_more.format(count=2)
    words = {"kind": "text", "markdown": more, "reply_target": {"reply_to": "103"}}
    notice = delivered(5, key="full:1:9000", body=words)
    found = verdict([sent(1), sent(2), sent(3)], [], [notice])
    assert outcomes(found) == [Outcome.REFUSED] * 3
    found = verdict([sent(1), sent(2), sent(3), sent(4)], [], [notice])
    assert kinds(found) == [ViolationKind.SILENT]


def test_a_notice_of_unknown_outcome_leaves_what_it_names_uncertain() -> None:
    more = LANGUAGES["en"].refused_more.format(count=2)
    words = {"kind": "text", "markdown": more, "reply_target": {"reply_to": "103"}}
    notice = delivered(5, key="full:1:9000", body=words, state="uncertain")
    found = verdict([sent(1), sent(2), sent(3)], [], [notice])
    assert outcomes(found) == [Outcome.UNCERTAIN] * 3
    found = verdict([sent(1), sent(2), sent(3), sent(4)], [], [notice])
    assert kinds(found) == [ViolationKind.SILENT]


def test_a_stranger_is_notified_and_not_answered() -> None:
    stranger = sent(kind=MessageKind.STRANGER)
    found = verdict([stranger], [], [], [shown(text="Your pairing code is 1234.")])
    assert (outcomes(found), kinds(found)) == ([Outcome.NOT_ALLOWED], [])
    assert kinds(verdict([stranger])) == [ViolationKind.SILENT]
    notice = delivered(5, key="refused:not_allowed:1")
    assert kinds(verdict([stranger], [], [notice])) == [ViolationKind.SILENT]
    found = verdict([stranger], [], [replace(notice, state="uncertain")])
    assert (outcomes(found), kinds(found)) == ([Outcome.UNCERTAIN], [])
    found = verdict([stranger], [accepted()], [delivered()], [shown()])
    assert kinds(found) == [ViolationKind.UNEXPECTED]


def test_messages_that_a_run_consumed_share_its_turns_failure() -> None:
    together = [accepted(1, state="dead"), accepted(2, state="dead", run_id="run-1")]
    failed = shown(1, text="⚠️ Sorry.")
    found = verdict([sent(1), sent(2)], together, [delivered(1)], [failed])
    assert (outcomes(found), kinds(found)) == ([Outcome.GIVEN_UP] * 2, [])
    apart = [accepted(1, state="dead"), accepted(2, state="dead")]
    found = verdict([sent(1), sent(2)], apart, [delivered(1)], [failed])
    assert kinds(found) == [ViolationKind.SILENT]


def test_a_turn_is_interrupted_by_a_later_message_only() -> None:
    canceled = accepted(1, run_status="interrupted")
    both, answer = [canceled, accepted(2)], ([delivered(2)], [shown(2)])
    found = verdict([sent(1)], both, *answer, interrupting=[CHANNEL])
    assert (outcomes(found), kinds(found)) == ([Outcome.INTERRUPTED], [])
    assert kinds(verdict([sent(1)], [canceled], interrupting=[CHANNEL])) == [ViolationKind.SILENT]
    failed = [accepted(1, run_status="error"), accepted(2)]
    found = verdict([sent(1)], failed, *answer, interrupting=[CHANNEL])
    assert kinds(found) == [ViolationKind.SILENT]
    told = shown(1, text="Stopped: I am answering your newer message first.")
    rows = [delivered(1), *answer[0]]
    found = verdict([sent(1)], failed, rows, [told, *answer[1]], interrupting=[CHANNEL])
    assert (outcomes(found), kinds(found)) == ([Outcome.INTERRUPTED], [])
    found = verdict([sent(1)], both, *answer)
    assert kinds(found) == [ViolationKind.SILENT]


def test_the_run_of_a_former_version_is_not_the_one_that_was_interrupted() -> None:
    edited = accepted(1, body={"text": "hello, edited", "edit_count": 1})
    message = sent(1, versions=("m00001v1 hello", "m00001v2 hello, edited"))
    rest = ([delivered(2)], [shown(2)])
    found = verdict([message], [edited, accepted(2)], *rest, interrupting=[CHANNEL])
    assert (outcomes(found), kinds(found)) == ([Outcome.INTERRUPTED], [])
    complete = replace(edited, run_version=f"{CHANNEL}:9001#1")
    found = verdict([message], [complete, accepted(2)], *rest, interrupting=[CHANNEL])
    assert kinds(found) == [ViolationKind.SILENT]


def test_another_answer_is_due_to_a_retry() -> None:
    twice = [shown(1), shown(2, text=answer_text("m00001", 1))]
    rows = [delivered(1), delivered(2)]
    again = accepted(2, body={"text": "/retry"})
    found = verdict([sent(1)], [accepted(1), again], rows, twice)
    assert (outcomes(found), kinds(found)) == ([Outcome.ANSWERED], [])
    found = verdict([sent(1)], [accepted(1), accepted(2)], rows, twice)
    assert kinds(found) == [ViolationKind.DOUBLED]


def test_a_slash_command_is_answered_in_private() -> None:
    command = sent(kind=MessageKind.COMMAND, versions=("/help",), message_id="slash:t1")
    row = accepted(kind="command", message_id="", event_id="slash:t1", body={"text": "/help"})
    answer = delivered(platform_id="")
    found = verdict([replace(command, answers=(shown(text="Commands"),))], [row], [answer])
    assert (outcomes(found), kinds(found)) == ([Outcome.ANSWERED], [])
    assert kinds(verdict([command], [row], [answer])) == [ViolationKind.SILENT]


def test_a_failure_that_the_person_reads_is_given_up() -> None:
    found = verdict([sent()], [accepted(state="dead")], [delivered()], [shown(text="⚠️ Sorry.")])
    assert (outcomes(found), kinds(found)) == ([Outcome.GIVEN_UP], [])


def test_errors_of_the_service_and_the_platforms_are_violations() -> None:
    found = verdict([], platform_violations=["slack: no"], service_failures=["exit code 1"])
    assert kinds(found) == [ViolationKind.PLATFORM_RULE, ViolationKind.SERVICE]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with closing(connect(tmp_path / "parley.db", busy_timeout_ms=100)) as connection:
        connection.execute(
            "INSERT INTO conversation (channel, workspace, chat, created_at, updated_at)"
            " VALUES ('telegram', '7', '5001', 1.0, 1.0)"
        )
    return tmp_path


def test_a_whole_journal_has_no_problems(home: Path) -> None:
    assert SqliteDatabase(home).read().problems == ()


def test_orphans_and_wrong_positions_in_the_journal_are_found(home: Path) -> None:
    with closing(sqlite3.connect(home / "parley.db")) as connection:
        connection.execute(
            "INSERT INTO inbox (conversation_id, seq, event_id, kind, body, received_at, state)"
            " SELECT id, column1, column1, 'chat', '{}', 1.0, 'done' FROM conversation, (VALUES (2), (1))"
        )
        connection.execute(
            "INSERT INTO outbox (key, conversation_id, body, created_at, updated_at)"
            " VALUES ('1:reply:0', 77, '{}', 1.0, 1.0)"
        )
        connection.commit()
    problems = " ".join(SqliteDatabase(home).read().problems)
    assert "orphan rows in outbox" in problems
    assert "not behind that of the one accepted before: 2" in problems


def test_an_answer_to_a_later_message_may_cover_an_earlier_one_again() -> None:
    both = "\n\n".join(answer_text(mark, 1) for mark in ("m00001", "m00002"))
    rows = [accepted(1), accepted(2)]
    sent_rows = [delivered(1), delivered(2)]
    found = verdict([sent(1), sent(2)], rows, sent_rows, [shown(1), shown(2, text=both)])
    assert (outcomes(found), kinds(found)) == ([Outcome.ANSWERED] * 2, [])
    found = verdict([sent(1), sent(2)], rows, sent_rows, [shown(1, text=both), shown(2, text=both)])
    assert kinds(found) == [ViolationKind.DOUBLED]


def test_words_quoted_from_a_thread_are_not_a_messages_own() -> None:
    text = "m00002v1\n\n[Earlier in this thread]\n> Ann: m00001v1"
    rows, sent_rows = [accepted(2, body={"text": text}), accepted(1)], [delivered(1), delivered(2)]
    found = verdict([sent(1), sent(2)], rows, sent_rows, [shown(2), shown(1)])
    assert (outcomes(found), kinds(found)) == ([Outcome.ANSWERED] * 2, [])
    of_the_first = shown(2, text=answer_text("m00001", 1))
    found = verdict([sent(1), sent(2)], rows, sent_rows, [of_the_first, shown(1)])
    assert set(kinds(found)) == {ViolationKind.DOUBLED, ViolationKind.SILENT}


def test_a_message_is_answered_again_with_one_that_its_run_answered_too() -> None:
    rows = [accepted(1), accepted(2, run_id="run-1"), accepted(3, event_id="rerun:2:1")]
    seen = [shown(1), shown(2), shown(3, text=shown(1).text)]
    found = verdict([sent(1), sent(2)], rows, [delivered(1), delivered(2), delivered(3)], seen)
    assert kinds(found) == []
    apart = [accepted(1), accepted(2), accepted(3, event_id="rerun:2:1")]
    found = verdict([sent(1), sent(2)], apart, [delivered(1), delivered(2), delivered(3)], seen)
    assert kinds(found) == [ViolationKind.DOUBLED]


def test_the_answer_to_a_slash_command_is_no_duplicate() -> None:
    copies = [shown(1), shown(9, text=answer_text("m00001", 1))]
    rows = [accepted(1), accepted(2, kind="command", body={"text": "/retry"})]
    through_url = delivered(2, platform_id="")
    assert kinds(verdict([sent(1)], rows, [delivered(1), through_url], copies)) == []
    assert kinds(verdict([sent(1)], rows, [delivered(1)], copies)) == [ViolationKind.DOUBLED]


def test_a_file_may_be_the_whole_answer_of_a_command() -> None:
    export = accepted(1, kind="command", body={"text": "/export"})
    file = delivered(1, key="1:document:0", platform_id="F1", body={"kind": "file", "name": "a.md"})
    asked = sent(1, kind=MessageKind.COMMAND, versions=("/export",))
    found = verdict([asked], [export], [file], [shown(1, text="", file="a.md")])
    assert (outcomes(found), kinds(found)) == ([Outcome.ANSWERED], [])
    assert kinds(verdict([asked], [export], [file], [])) == [ViolationKind.SILENT]
