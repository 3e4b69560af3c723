"""The progress of an agent's work, as people see it."""

from bus.locales import messages_for
from bus.runs.progress import MAX_ITEMS, RunProgress

WORDS = messages_for("en")


def ai(*calls: tuple[str, dict[str, object]]) -> dict[str, object]:
    made = [{"id": f"c{n}", "name": name, "args": args} for n, (name, args) in enumerate(calls)]
    return {"type": "ai", "content": "", "tool_calls": made}


def test_calls_without_a_result_are_named_with_what_they_are_about() -> None:
    progress = RunProgress()
    said = [ai(("web_search", {"query": "*cats* and\ndogs"}), ("bash", {"command": "ls"}))]
    assert progress.update(said, None)
    assert progress.lines(WORDS) == "> 🔧 `web_search` cats and dogs  \n> 🔧 `bash` ls  "
    assert progress.update([*said, {"type": "tool", "tool_call_id": "c0"}], None)
    assert progress.lines(WORDS) == "> 🔧 `bash` ls  "
    assert progress.update([*said, {"type": "ai", "content": "done"}], None)
    assert progress.lines(WORDS) == ""


def test_finished_calls_are_steps_with_what_they_did_and_no_secrets() -> None:
    progress = RunProgress()
    said = [
        ai(
            ("bash", {"command": "curl -H 'Authorization: Bearer abcdef123456'"}),
            ("http", {"api_key": "k", "url": "https://x"}),
            ("present_files", {"filepaths": ["/a"]}),
            ("bash", {"command": "sleep"}),
        )
    ]
    results = [
        {"type": "tool", "tool_call_id": "c0", "content": "a" * 5_000},
        {"type": "tool", "tool_call_id": "c1", "content": "no", "status": "error"},
        {"type": "tool", "tool_call_id": "c2", "content": "ok"},
    ]
    progress.update([*said, *results], None)
    one, two = progress.steps()
    assert (one.id, one.failed, len(one.result)) == ("c0", False, 4_000)
    assert one.arguments == "command: curl -H 'Authorization: Bearer •••'"
    assert (two.title, two.arguments, two.result, two.failed) == (
        "`http` https://x", "api_key: •••\nurl: https://x", "no", True,
    )  # fmt: skip


def test_a_repeated_state_is_not_new_progress() -> None:
    progress = RunProgress()
    said = [ai(("bash", {"command": "ls"}))]
    assert progress.update(said, [{"id": "todo-1", "title": "a", "status": "pending"}])
    assert not progress.update(said, [{"id": "todo-1", "title": "a", "status": "pending"}])


def test_the_plan_shows_what_is_done_and_what_is_next() -> None:
    progress = RunProgress()
    steps = [("read", "completed"), ("think", "in_progress"), ("write", "pending"), ("x", "?")]
    progress.update([], [{"title": name, "status": state} for name, state in steps])
    assert progress.lines(WORDS).split("  \n") == ["> ✅ read", "> ▶️ think", "> ▫️ write", "> ▫️ x  "]


def test_subagents_are_named_until_they_are_done() -> None:
    progress = RunProgress()
    assert progress.add_event(
        {"type": "task_started", "task_id": "1", "description": "Look for cats"}
    )
    assert progress.add_event({"type": "task_started", "task_id": "2"})
    assert not progress.add_event({"type": "task_running", "task_id": "1", "message": {}})
    assert progress.lines(WORDS) == f"> 🤖 Look for cats  \n> 🤖 {WORDS.progress_subagent}  "
    assert progress.add_event({"type": "task_timed_out", "task_id": "1"})
    assert progress.add_event({"type": "task_completed", "task_id": "2"})
    assert not progress.add_event({"type": "task_completed", "task_id": "2"})
    assert progress.lines(WORDS) == ""


def test_much_work_stays_short() -> None:
    progress = RunProgress()
    calls: list[tuple[str, dict[str, object]]] = [
        (f"t{n}", {"query": "q" * 1000}) for n in range(20)
    ]
    progress.update([ai(*calls)], None)
    lines = progress.lines(WORDS).split("\n")
    assert len(lines) == MAX_ITEMS + 1
    assert lines[0] == "> … +16  "
    assert max(len(line) for line in lines) < 100


def test_malformed_progress_is_skipped() -> None:
    progress = RunProgress()
    senseless: list[object] = [None, "x", [], {}, {"type": "task_completed", "task_id": "?"}]
    for heard in senseless:
        assert not progress.add_event(heard)
    progress.update([{"type": "ai", "tool_calls": [{"id": 1, "name": "a`b", "args": "no map"}]}], 7)
    assert progress.lines(WORDS) == "> 🔧 `ab`  "


def test_a_tool_says_how_far_it_is() -> None:
    progress = RunProgress()
    progress.update([ai(("hotel_copy", {}))], None)
    event = {"type": "tool_progress", "tool_call_id": "c0", "text": "Copying *files* (3/12)"}
    assert progress.add_event(event)
    assert not progress.add_event(event)
    assert progress.lines(WORDS) == "> 🔧 `hotel_copy`: Copying files (3/12)  "
    assert not progress.add_event({**event, "tool_call_id": "other"})
    progress.update([ai(("hotel_copy", {})), {"type": "tool", "tool_call_id": "c0"}], None)
    assert progress.lines(WORDS) == ""
