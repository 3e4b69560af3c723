"""Long conversations continue at a bounded cost: the limits of `make bench BENCH=agent` with smaller numbers."""

import re
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage

from agent.middleware.important import marked_words, newest_words
from agent.paths import WORKSPACE
from agent.saved_texts import CONVERSATION, RESULTS
from tests.agent.long_conversations import (
    THREAD,
    LongConversation,
    file_of,
    long_conversation,
    long_turn,
    many_turns,
    turns_with_reads,
)
from tests.eventually import eventually
from tests.fakes.model import ModelReply, ToolCall

WINDOW = 16_000
READ_CHARS = 6_000
READ_LINES = 91


def saved_files(conversation: LongConversation, folder: str) -> list[str]:
    """Return the texts of a folder's files, in order of their names."""
    outputs = conversation.agents.services.folders.folders(THREAD).outputs
    return [file.read_text() for file in sorted((outputs / folder.rpartition("/")[2]).glob("*"))]


def without_numbers(text: str) -> str:
    """Return a text without the numbers that read_file writes before its lines."""
    return re.sub(r"^(\d+\t)+", "", text, flags=re.MULTILINE)


def lines_named(stub: str) -> tuple[int, int, str] | None:
    """Return the first line, the last line and the file named by a stub that replaces a repeated text."""
    found = re.search(r"lines (\d+) to (\d+) of (\S+) had", stub)
    return (int(found[1]), int(found[2]), found[3]) if found else None


async def reread(conversation: LongConversation, path: str) -> str:
    """Let the model read a file in the next turn, and return what it saw."""
    conversation.steps += [ToolCall("read_file", {"path": path}, id="again")]
    await conversation.say("Once more, please.")
    results = [m for m in conversation.measured.last_prompt if m["role"] == "tool"]
    return str(results[-1]["content"])


async def test_large_reads_are_left_out_in_batches_without_a_summary(tmp_path: Path) -> None:
    async with long_conversation(tmp_path, window=WINDOW) as conversation:
        await turns_with_reads(conversation, 20, READ_CHARS)
        measured = conversation.measured
        results = [m["content"] for m in measured.last_prompt if m["role"] == "tool"]
        assert lines_named(results[0]) == (1, READ_LINES, f"{WORKSPACE}/report-0.txt")
        assert saved_files(conversation, RESULTS) == []
    assert measured.refused == measured.summaries == measured.unsummarized == 0
    assert measured.compactions <= 6
    assert measured.prefix_hits >= 0.8
    assert len(results[0]) < 500 < READ_CHARS <= len(results[-1])


async def test_stubs_name_a_copy_if_the_file_was_changed_or_deleted_before(tmp_path: Path) -> None:
    async with long_conversation(tmp_path, window=WINDOW) as conversation:
        await turns_with_reads(conversation, 2, READ_CHARS)
        workspace = conversation.agents.services.folders.folders(THREAD).workspace
        conversation.write_file("report-0.txt", "Another report.\n")
        (workspace / "report-1.txt").unlink()
        await turns_with_reads(conversation, 20, READ_CHARS, first=2)
        measured = conversation.measured
        results = [m["content"] for m in measured.last_prompt if m["role"] == "tool"]
        for number in range(2):
            path = results[number].partition("the whole text is in ")[2].partition(";")[0]
            assert path.startswith(RESULTS)
            assert file_of(number, READ_CHARS) in without_numbers(await reread(conversation, path))
        assert lines_named(results[2]) == (1, READ_LINES, f"{WORKSPACE}/report-2.txt")
        assert len(saved_files(conversation, RESULTS)) == 2


async def test_a_stub_stays_the_same_when_its_file_changes_later(tmp_path: Path) -> None:
    async with long_conversation(tmp_path, window=WINDOW) as conversation:
        await turns_with_reads(conversation, 12, READ_CHARS)
        measured = conversation.measured
        before, compactions = measured.last_prompt, measured.compactions
        assert lines_named(before[3]["content"]) == (1, READ_LINES, f"{WORKSPACE}/report-0.txt")
        conversation.write_file("report-0.txt", "Another report.\n")
        await conversation.say("And now?")
        assert measured.last_prompt[: len(before)] == before
        assert measured.compactions == compactions


async def test_a_long_turn_is_not_refused_and_keeps_its_own_work(tmp_path: Path) -> None:
    async with long_conversation(
        tmp_path, window=WINDOW, step_s=0.02, piece_s=0.04
    ) as conversation:
        await long_turn(conversation, 20, READ_CHARS)
        measured = conversation.measured
    assert (measured.refused, measured.unsummarized) == (0, 0)
    shown = str(measured.last_prompt)
    assert all(f"report-{number}.txt" in shown for number in range(20))


async def test_many_turns_go_on_and_remember_what_was_marked_as_important(tmp_path: Path) -> None:
    """The summary model is weak: it keeps nothing."""
    async with long_conversation(tmp_path, window=WINDOW) as conversation:
        await many_turns(conversation, 120)
        measured = conversation.measured
        assert "amber-42" in measured.last_text
        assert "## People's rules" in conversation.prompt_of_summary
        first = saved_files(conversation, CONVERSATION)[0]
        assert "Message 1. " in first
        assert "amber-42" in first
        path = next(word for word in measured.last_text.split() if word.startswith(CONVERSATION))
        assert "Message 1. " in await reread(conversation, path)
    assert (measured.refused, measured.unsummarized) == (0, 0)
    assert sum(measured.turn_tokens[-40:]) <= 1.1 * sum(measured.turn_tokens[40:80])


async def test_results_at_once_beyond_the_window_are_shortened(tmp_path: Path) -> None:
    async with long_conversation(tmp_path, window=WINDOW) as conversation:
        paths = [
            conversation.write_file(f"report-{n}.txt", file_of(n, 2 * READ_CHARS)) for n in range(8)
        ]
        calls = tuple(ToolCall("read_file", {"path": p}, f"c{n}") for n, p in enumerate(paths))
        conversation.steps += [ModelReply(calls=calls)]
        assert await conversation.say("Please read all reports at once.") == "Noted."
        assert await conversation.say("And now?") == "Noted."
        measured = conversation.measured
        results = [m["content"] for m in measured.last_prompt if m["role"] == "tool"]
        assert [lines_named(text) for text in results] == [
            (1, 2 * READ_LINES, path) for path in paths
        ]
    assert (measured.refused, measured.unsummarized) == (0, 0)


async def test_if_summaries_fail_messages_are_left_out_into_a_file(tmp_path: Path) -> None:
    async with long_conversation(tmp_path, window=WINDOW) as conversation:
        conversation.writer.answer = lambda _: ModelReply(status=500)
        for number in range(20):
            text = f"Remember: rule {number}." if number == 2 else ""
            await conversation.say(f"Paste {number}.\n{file_of(number, READ_CHARS)}\n\n{text}")
        measured = conversation.measured
        assert "rule 2." in measured.last_text
        assert "Paste 0." in saved_files(conversation, CONVERSATION)[0]
    assert measured.refused == 0
    assert measured.longest_stall_s < 20
    assert measured.compactions <= 6


async def test_a_window_that_nobody_knew_is_found_out_by_the_refusal(tmp_path: Path) -> None:
    async with long_conversation(tmp_path, window=WINDOW, window_is_known=False) as conversation:
        await turns_with_reads(conversation, 12, READ_CHARS)
        measured = conversation.measured
    assert 1 <= measured.refused <= 6
    assert measured.requests == 24
    assert measured.summaries == 0  # leaving out results makes enough room


async def test_the_agent_closes_while_a_summary_hangs(tmp_path: Path) -> None:
    async with long_conversation(tmp_path, window=WINDOW, piece_s=3_600) as conversation:
        await many_turns(conversation, 30)
        await eventually(lambda: conversation.writer.requests or conversation.measured.summaries)
    # Leaving the block did not wait for it.


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Important: no releases on Fridays", True),
        ("the code is 42, remember that", True),
        ("记住：周五不发布", True),
        ("I can't remember his name", False),
        ("do you remember it?", False),
        ("that is not important", False),
        ("> Important: quoted", False),
        ("nothing", False),
    ],
)
def test_marks(text: str, *, kept: bool) -> None:
    assert marked_words([HumanMessage(text)]) == ([text] if kept else [])


def test_marks_in_long_texts() -> None:
    text = f"{'a b ' * 500}\nThe code is 42. Remember that.\n\n{'c d ' * 500}"
    assert marked_words([HumanMessage(text)]) == ["The code is 42. Remember that."]
    everything = HumanMessage("important " * 1_000)
    assert len(marked_words([everything])) == 3
    assert newest_words(["a" * 9, "b" * 9], 10) == ["b" * 9]


def test_marks_in_a_group_have_their_author() -> None:
    sender = {"sender": {"id": "U1", "name": "Ann"}, "chat_type": "group"}
    said = HumanMessage("remember the milk", additional_kwargs=sender)
    assert marked_words([said]) == ["Ann: remember the milk"]
