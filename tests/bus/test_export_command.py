"""/export: the conversation as a file, without hidden messages."""

from pathlib import Path
from typing import Any

from bus.history.transcript import MAX_CHARS, transcript
from bus.locales.en import ENGLISH
from tests.bus.harness import running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, Script


def human(text: str, **extra: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return {"type": "human", "id": text, "content": text, **extra}


async def test_the_conversation_comes_as_one_file(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/export")
        await harness.expect_replies("There is nothing to export yet.")
        harness.server.scripts.append(Script(words=("Fine — **you**?",)))
        await harness.send("How are you?")
        await eventually(lambda: len(harness.platform.texts) == 2)
        await harness.send("/export", event="once")
        await eventually(lambda: harness.platform.files)
        await harness.send("/export", event="once")
        [(name, content)] = harness.platform.files
        assert name == "conversation.md"
        assert content.decode() == (
            "# Conversation\n\n## You\n\nHow are you?\n\n## Parley\n\nFine — **you**?\n"
        )
        assert len(harness.platform.texts) == 2


async def test_an_export_during_a_turn_contains_the_conversation_so_far(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.server.scripts.append(Script(hang_after=1))
        await harness.send("hang", is_private=False)
        await harness.wait_for_runs(1)
        await harness.send("/export", is_private=False)
        await eventually(lambda: harness.platform.files)
        assert harness.platform.files[0][1].decode() == "# Conversation\n\n## u\n\nhang\n"


def in_group(text: str, user_id: str, name: str) -> dict[str, Any]:
    extra = {"sender": {"id": user_id, "name": name}, "chat_type": "group"}
    return human(text, additional_kwargs=extra)


def test_in_a_group_each_message_has_its_author() -> None:
    answer = {"type": "ai", "content": "Noted."}
    messages = [
        human("from before the update"),
        in_group("at nine", "U1", "Ann Lee"),
        in_group("at ten", "U2", "Ann Lee"),
        answer,
        in_group("me too", "U3", "Bo"),
        in_group("and I", "U4", ""),
        in_group("trust me", "U5", "parley"),
        answer,
    ]
    assert transcript(messages, ENGLISH, person="People") == (
        "# Conversation\n\n## People\n\nfrom before the update\n\n## Ann Lee (U1)\n\nat nine\n\n"
        "## Ann Lee (U2)\n\nat ten\n\n## Parley\n\nNoted.\n\n## Bo\n\nme too\n\n## U4\n\nand I\n\n"
        "## parley (U5)\n\ntrust me\n\n## Parley\n\nNoted.\n"
    )


async def test_a_server_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    async with FakeLangGraph() as server, running_bus(tmp_path, server=server) as harness:
        await harness.send("hi")
        await harness.expect_replies("Hello you")
        server.threads.clear()
        await harness.send("/export")
        await harness.expect_replies("Hello you", "There is nothing to export yet.")


def test_tools_are_named_and_the_framework_is_silent() -> None:
    messages = [
        {"type": "system", "content": "secret prompt"},
        human("so far", name="summary"),
        human("<uploaded_files>\n- a.pdf\n</uploaded_files>\n\nRead it",
              additional_kwargs={"files": [{"filename": "a.pdf"}]}),
        human("remember the plan", additional_kwargs={"hide_from_ui": True}),
        {"type": "ai", "content": "I look.", "tool_calls": [
            {"name": "read_file", "args": {"path": "x"}}, {"name": "read_file", "args": {}},
            {"name": "ask_clarification", "args": {}}]},
        {"type": "tool", "name": "read_file", "content": "noise"},
        {"type": "tool", "name": "ask_clarification", "content": "Which page?"},
        human("the first"),
        {"type": "ai", "content": [{"type": "text", "text": "Done."}]},
    ]  # fmt: skip
    assert transcript(messages, ENGLISH, person="You") == (
        "# Conversation\n\n## You\n\nRead it\n\n*Files: `a.pdf`*\n\n"
        "## Parley\n\nI look.\n\n*Used: `read_file`*\n\nWhich page?\n\n"
        "## You\n\nthe first\n\n## Parley\n\nDone.\n"
    )


def test_an_export_of_a_long_conversation_keeps_the_newest_part() -> None:
    long = [human(f"{number} " + "x" * (MAX_CHARS // 3)) for number in range(4)]
    text = transcript(long, ENGLISH, person="You")
    assert text.startswith("# Conversation\n\n*Earlier messages are omitted.*\n\n## You\n\n2 x")
    assert len(text) <= MAX_CHARS + 200
    [only] = transcript([human("x" * (MAX_CHARS + 9))], ENGLISH, person="You").splitlines()[-1:]
    assert only == "x" * MAX_CHARS
    assert transcript([], ENGLISH, person="You") == ""
