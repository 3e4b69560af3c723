"""The reply that people see, built from the events of a run."""

import pytest

from bus.locales.en import ENGLISH
from bus.runs.replies import ReplyFold, answer_text, presented_files, turn_messages
from bus.runs.stream import Message, MessageChunk, RunEnded, RunFailed, StateSnapshot, parse_part


def ai(text: str, message_id: str = "a", **extra: object) -> dict[str, object]:
    return {"type": "ai", "id": message_id, "content": text, **extra}


def human(text: str, message_id: str, **extra: object) -> dict[str, object]:
    return {"type": "human", "id": message_id, "content": text, **extra}


def delta(text: str, message_id: str = "a") -> MessageChunk:
    return MessageChunk(message_id=message_id, kind="ai", text=text, whole=False)


@pytest.mark.parametrize("pieces", [["谢", "谢"], ["go", "go"], ["hel", "l", "o"], ["ha", "haha"]])
def test_repeated_deltas_are_all_kept(pieces: list[str]) -> None:
    fold = ReplyFold("h")
    for piece in pieces:
        assert fold.add(delta(piece))
    assert fold.text == "".join(pieces)


def test_a_whole_message_replaces_its_deltas() -> None:
    fold = ReplyFold("h")
    fold.add(delta("Hel"))
    fold.add(MessageChunk(message_id="a", kind="ai", text="Hello", whole=True))
    assert fold.text == "Hello"


def test_a_new_message_starts_over_and_other_kinds_are_not_shown() -> None:
    fold = ReplyFold("h")
    fold.add(delta("Let me look.", "a1"))
    assert not fold.add(
        MessageChunk(message_id="t", kind="tool", text="secret listing", whole=True)
    )
    assert not fold.add(MessageChunk(message_id="x", kind="human", text="echo", whole=True))
    assert fold.text == "Let me look."
    fold.add(delta("Found it.", "a2"))
    assert fold.text == "Found it."


def test_the_state_has_the_last_word() -> None:
    fold = ReplyFold("h")
    fold.add(delta("Hal"))
    fold.add(StateSnapshot({"messages": [human("q", "h"), ai("Hallo!")]}))
    assert fold.reply(ENGLISH).markdown == "Hallo!"


@pytest.mark.parametrize("text", ["", " \n ", "\u200b\ufeff", "\x00", "\ud800"])
def test_an_unreadable_answer_is_reported(text: str) -> None:
    fold = ReplyFold("h")
    fold.add(delta(text))
    fold.add(StateSnapshot({"messages": [human("q", "h"), ai(text)]}))
    assert fold.reply(ENGLISH).markdown == ENGLISH.no_answer


def test_only_messages_after_our_message_are_the_answer() -> None:
    state = {"messages": [human("1", "h1"), ai("one", "a1"), human("2", "h2")]}
    fold = ReplyFold("h2")
    fold.add(StateSnapshot(state))
    assert fold.reply(ENGLISH).markdown == ENGLISH.no_answer


@pytest.mark.parametrize(
    "fields", [{"additional_kwargs": {"hide_from_ui": True}}, {"name": "loop_warning"}]
)
def test_hidden_human_messages_do_not_end_the_turn(fields: dict[str, object]) -> None:
    reminder = human("reminder", "r", **fields)
    state = {"messages": [human("q", "h"), reminder, ai("answer")]}
    assert answer_text(turn_messages(state, "h")) == "answer"


def test_a_clarification_is_the_answer_and_shows_while_it_runs() -> None:
    question = {"type": "tool", "name": "ask_clarification", "id": "c", "content": "❓ Which one?"}
    fold = ReplyFold("h")
    changed = fold.add(StateSnapshot({"messages": [human("q", "h"), ai(""), question]}))
    assert changed
    assert fold.text == fold.reply(ENGLISH).markdown == "❓ Which one?"


def test_presented_files_are_those_whose_call_succeeded_each_once() -> None:
    def call(call_id: str, *paths: str) -> dict[str, object]:
        return {"name": "present_files", "id": call_id, "args": {"filepaths": list(paths)}}

    said: list[Message] = [
        ai("", tool_calls=[call("1", "/mnt/user-data/outputs/a"), call("2", "/etc/passwd")]),
        {"type": "tool", "tool_call_id": "1", "status": "success"},
        {"type": "tool", "tool_call_id": "2", "status": "error"},
        ai("", tool_calls=[call("3", "/mnt/user-data/outputs/a", "/mnt/user-data/outputs/b")]),
        {"type": "tool", "tool_call_id": "3"},
        ai("", tool_calls=[call("4", "/mnt/user-data/outputs/never-answered")]),
    ]
    assert presented_files(said) == ("/mnt/user-data/outputs/a", "/mnt/user-data/outputs/b")


@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("messages", "a bare string"),
        ("messages", []),
        ("messages", [None, {}]),
        ("values", None),
        ("metadata", {}),
        ("messages|child:1", [{"type": "AIMessageChunk", "content": "x", "id": "i"}, {}]),
        ("", None),
    ],
)
def test_frames_without_use_are_skipped(event: str, data: object) -> None:
    assert parse_part(event, data) is None


@pytest.mark.parametrize(
    ("event", "data", "part"),
    [
        ("error", {"error": "ValueError", "message": "m"}, RunFailed("ValueError", "m")),
        ("error", {"name": "ValueError", "message": "m"}, RunFailed("ValueError", "m")),
        ("error", "boom", RunFailed("Error", "boom")),
        ("end", {"run_id": "r", "status": "success"}, RunEnded("success")),
        ("end", None, RunEnded("")),
    ],
)
def test_endings_of_all_servers_are_read(event: str, data: object, part: object) -> None:
    assert parse_part(event, data) == part


@pytest.mark.parametrize("extra", [None, 1.5, "x", ["error_fallback"]])
def test_messages_of_other_servers_may_have_anything_beside_their_text(extra: object) -> None:
    said = {"type": "AIMessageChunk", "id": "a", "content": "hi", "additional_kwargs": extra}
    assert parse_part("messages", [said, {}]) == delta("hi")
