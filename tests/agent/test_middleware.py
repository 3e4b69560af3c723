"""The middleware in the real graph: order, steps, repaired histories, failing tools, titles, questions."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import interrupt
from pydantic import ValidationError

from agent.config import TitleConfig
from agent.errors import ThreadIdInvalid
from agent.middleware.chain import MiddlewareChain, join_middleware
from agent.middleware.clarification import ClarificationMiddleware
from agent.middleware.dangling_tool_calls import (
    INTERRUPTED,
    repair_history,
)
from agent.middleware.thread_data import ThreadDataMiddleware
from agent.middleware.todo_list import TodoListMiddleware
from agent.middleware.tool_errors import ToolErrorMiddleware
from agent.paths import OUTPUTS
from agent.thread_storage import ThreadStorage
from agent.titles import TitleWriter
from agent.tools.ask_clarification import ask_clarification_tool, question_text
from tests.agent.plain_agent import CONFIG, open_plain_agent
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel


def calls(*named: tuple[str, dict[str, Any]]) -> ModelReply:
    """Return a reply that calls tools, with the ids c0, c1, ..."""
    made = (ToolCall(name=name, args=args, id=f"c{n}") for n, (name, args) in enumerate(named))
    return ModelReply(calls=tuple(made))


def ai(*ids: str, **more: Any) -> AIMessage:  # noqa: ANN401 - whatever AIMessage takes
    tool_calls = [{"name": "ls", "args": {}, "id": call_id} for call_id in ids]
    return AIMessage(content="", tool_calls=tool_calls, **more)


def result(call_id: str, text: str = "ok") -> ToolMessage:
    return ToolMessage(content=text, tool_call_id=call_id, name="ls")


# ---- the chain ---------------------------------------------------------------------------------


def test_the_given_order_stays_and_no_name_is_there_twice() -> None:
    outer = [ThreadDataMiddleware(ThreadStorage(Path())), None, ToolErrorMiddleware()]
    assert [type(one) for one in join_middleware(outer)] == [MiddlewareChain]
    own, inner = TodoListMiddleware(), ClarificationMiddleware()
    chains = join_middleware(outer, [own], [inner])
    assert [one.name for one in chains] == [
        "MiddlewareChain(ThreadDataMiddleware)",
        "TodoListMiddleware",
        "MiddlewareChain(ClarificationMiddleware)",
    ]
    with pytest.raises(ValueError, match="ClarificationMiddleware is given twice"):
        join_middleware(outer, [ClarificationMiddleware()], [inner])


async def test_the_chain_adds_no_step_and_no_checkpoint(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(calls(("ls", {"path": OUTPUTS})), "nothing there")
    async with open_plain_agent(tmp_path, model) as thread:
        await thread.say("look")
        assert set(thread.graph.nodes) == {"__start__", "model", "tools"}
        history = [snapshot async for snapshot in thread.graph.aget_state_history(CONFIG)]
    # The input, then model, tools, model.
    assert [snapshot.metadata["step"] for snapshot in history if snapshot.metadata] == [
        *(3, 2, 1, 0, -1)
    ]


async def test_a_limit_of_100_is_50_model_calls(tmp_path: Path) -> None:
    script = [calls(("ls", {"path": OUTPUTS}))] * 49
    model = ScriptedChatModel.playing(*script, "enough")
    async with open_plain_agent(tmp_path, model) as thread:
        messages = await thread.say("look again and again")
    assert messages[-1].text == "enough"
    assert len(model.prompts) == 50


# ---- thread data -------------------------------------------------------------------------------


async def test_the_state_names_the_thread_s_folders(tmp_path: Path) -> None:
    async with open_plain_agent(tmp_path, ScriptedChatModel.playing("hi")) as thread:
        await thread.say("hello")
        data = (await thread.state())["thread_data"]
        assert data == {
            "workspace_path": "/mnt/user-data/workspace",
            "uploads_path": "/mnt/user-data/uploads",
            "outputs_path": "/mnt/user-data/outputs",
        }
        assert str(tmp_path) not in str(await thread.state())  # clients can read it
        assert not thread.folders.root.exists()  # created with its first file


async def test_the_thread_id_may_come_by_context_alone(tmp_path: Path) -> None:
    async with open_plain_agent(tmp_path, ScriptedChatModel.playing("hi", "hi")) as thread:
        thread.graph.checkpointer = None
        question = {"messages": [HumanMessage("hello")]}
        state = await thread.graph.ainvoke(question, context={"thread_id": "by-context"})
        assert state["thread_data"]["outputs_path"].endswith("/outputs")
        with pytest.raises(ThreadIdInvalid):
            await thread.graph.ainvoke(question, context={"thread_id": "../etc"})


# ---- dangling tool calls -----------------------------------------------------------------------


async def test_an_interrupted_call_is_answered_for_the_model_and_not_in_the_state(
    tmp_path: Path,
) -> None:
    model = ScriptedChatModel.playing("fine")
    async with open_plain_agent(tmp_path, model) as thread:
        history = [HumanMessage("one", id="1"), ai("x", id="2"), HumanMessage("two", id="3")]
        await thread.graph.aupdate_state(CONFIG, {"messages": history[:2]}, as_node="__start__")
        await thread.graph.ainvoke({"messages": history[2:]}, CONFIG)
        stored = (await thread.state())["messages"]
    seen = model.prompts[0]
    assert [message.type for message in seen] == ["human", "ai", "tool", "human"]
    assert seen[2].content == INTERRUPTED
    assert [message.type for message in stored] == ["human", "ai", "human", "ai"]


def _shape(messages: list[AnyMessage]) -> list[str]:
    return [
        f"{message.tool_call_id}:{message.text}"
        if isinstance(message, ToolMessage)
        else message.type
        for message in repair_history(messages)
    ]


@pytest.mark.parametrize(
    ("messages", "shape"),
    [
        pytest.param(
            [ai("a", "b"), result("b"), HumanMessage("x")],
            ["ai", f"a:{INTERRUPTED}", "b:ok", "human"],
            id="partly answered, in call order",
        ),
        pytest.param(
            [ai("a", "b"), result("a"), HumanMessage("x"), result("b")],
            ["ai", "a:ok", "b:ok", "human"],
            id="results separated by a human message",
        ),
        pytest.param(
            [ai("a"), result("a", "1"), HumanMessage("x"), ai("a"), result("a", "2")],
            ["ai", "a:1", "human", "ai", "a:2"],
            id="id reused, both answered",
        ),
        pytest.param(
            [ai("a"), result("a", "1"), HumanMessage("x"), ai("a")],
            ["ai", "a:1", "human", "ai", f"a:{INTERRUPTED}"],
            id="id reused, the second dangling",
        ),
        pytest.param(
            [ai("a"), HumanMessage("x"), ai("a"), result("a", "2")],
            ["ai", f"a:{INTERRUPTED}", "human", "ai", "a:2"],
            id="id reused, the first dangling",
        ),
        pytest.param(
            [HumanMessage("x"), result("gone"), ai()], ["human", "ai"], id="orphan left out"
        ),
        pytest.param(
            [ai("a"), result("a", "1"), result("a", "2")], ["ai", "a:1"], id="answered twice"
        ),
        pytest.param(
            [result("a"), ai("a")], ["ai", f"a:{INTERRUPTED}"], id="result before its call"
        ),
        pytest.param([], [], id="nothing"),
    ],
)
def test_histories_are_repaired(messages: list[AnyMessage], shape: list[str]) -> None:
    assert _shape(messages) == shape


def test_invalid_and_raw_calls_are_answered_too() -> None:
    bad = {"name": "write_file", "args": '{"path": ', "id": "w", "error": "e" * 900}
    broken = AIMessage(content="", invalid_tool_calls=[{**bad, "type": "invalid_tool_call"}])
    raw = AIMessage(
        content="",
        additional_kwargs={
            "tool_calls": [
                {"id": "r", "function": {"name": "ls", "arguments": "{"}},
                "?",
                {"id": 1},
            ]
        },
    )
    history: list[AnyMessage] = [broken, raw]
    fixed = repair_history(history)
    assert [message.type for message in fixed] == ["ai", "tool", "ai", "tool"]
    told, interrupted = fixed[1], fixed[3]
    assert isinstance(told, ToolMessage)
    assert isinstance(interrupted, ToolMessage)
    assert (told.tool_call_id, told.name, told.status) == ("w", "write_file", "error")
    assert "not valid JSON" in told.text
    assert "smaller parts" in told.text
    assert len(told.text) < 700
    assert (interrupted.tool_call_id, interrupted.name) == ("r", "ls")


def test_a_history_without_faults_is_passed_on_as_it_is() -> None:
    messages: list[AnyMessage] = [
        *(HumanMessage("x"), ai("a", "b"), result("a"), result("b"), AIMessage("done"))
    ]
    assert repair_history(messages) is messages


async def test_a_turn_cancelled_in_its_tool_leaves_a_thread_that_works(tmp_path: Path) -> None:
    started = anyio.Event()

    @tool
    async def forever() -> str:
        """Never come back."""
        started.set()
        await anyio.sleep_forever()
        return ""

    model = ScriptedChatModel.playing(calls(("forever", {})), "all good")
    async with open_plain_agent(tmp_path, model, tools=[forever]) as thread:
        async with anyio.create_task_group() as group:
            group.start_soon(thread.say, "go")
            with anyio.fail_after(20):
                await started.wait()
            group.cancel_scope.cancel()
        messages = await thread.say("still there?")
    assert messages[-1].text == "all good"
    assert [message.type for message in model.prompts[1]] == ["human", "ai", "tool", "human"]


# ---- failing tools -----------------------------------------------------------------------------


async def test_a_failing_tool_is_reported_and_the_other_results_are_kept(tmp_path: Path) -> None:
    @tool
    async def explode(size: int) -> str:
        """Fail with a text of this size."""
        raise RuntimeError("x" * size)

    @tool
    async def fine() -> str:
        """Work."""
        return "fine"

    turn = calls(("explode", {"size": 2000}), ("fine", {}), ("explode", {"size": 0}))
    async with open_plain_agent(
        tmp_path, ScriptedChatModel.playing(turn, "ok"), tools=[explode, fine]
    ) as thread:
        messages = await thread.say("go")
    long, good, empty = (message for message in messages if isinstance(message, ToolMessage))
    assert long.status == empty.status == "error"
    detail = "x" * 497 + "..."
    assert long.text == (
        f"Error: Tool 'explode' failed with RuntimeError: {detail}. "
        "Continue with available context, or choose an alternative tool."
    )
    assert "failed with RuntimeError: RuntimeError." in empty.text
    assert good.text == "fine"
    assert messages[-1].text == "ok"


SECRET_ERRORS = [
    "401 for url 'https://me:hunter2@api.example.com/v1/search?api_key=hunter2&q=x'",
    "Incorrect API key provided: hunter2hunter2. See the docs.",
    "headers: {'Authorization': 'Bearer hunter2-hunter2'}",
    "invalid token sk-hunter2hunter2hunter2",
    "[Errno 13] Permission denied: '/home/hunter2/.parley/threads/x'",
    'File "/opt/hunter2/tool.py", line 3',
]


@pytest.mark.parametrize("text", SECRET_ERRORS)
async def test_errors_of_tools_reach_the_model_without_secrets(tmp_path: Path, text: str) -> None:
    @tool
    async def fails() -> str:
        """Fail."""
        raise RuntimeError(f"before {text} after /mnt/user-data/workspace/a.txt")

    model = ScriptedChatModel.playing(calls(("fails", {})), "ok")
    async with open_plain_agent(tmp_path, model, tools=[fails]) as thread:
        messages = await thread.say("go")
    (failed,) = (message for message in messages if isinstance(message, ToolMessage))
    assert "hunter2" not in failed.text
    assert "before " in failed.text
    assert "after /mnt/user-data/workspace/a.txt" in failed.text


async def test_interrupts_are_not_swallowed(tmp_path: Path) -> None:
    @tool
    async def confirm() -> str:
        """Ask a person."""
        return str(interrupt("sure?"))

    model = ScriptedChatModel.playing(calls(("confirm", {})))
    async with open_plain_agent(tmp_path, model, tools=[confirm]) as thread:
        await thread.say("go")
        snapshot = await thread.graph.aget_state(CONFIG)
    assert [waiting.value for waiting in snapshot.interrupts] == ["sure?"]


async def test_unknown_tools_and_bad_arguments_are_reported(tmp_path: Path) -> None:
    turn = calls(("no_such_tool", {}), ("read_file", {"start_line": "x"}))
    async with open_plain_agent(tmp_path, ScriptedChatModel.playing(turn, "ok")) as thread:
        messages = await thread.say("go")
    texts = [message.text for message in messages if isinstance(message, ToolMessage)]
    assert all("rror" in text for text in texts)
    assert len(texts) == 2
    assert messages[-1].text == "ok"


# ---- titles ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "max_chars", "title"),
    [
        ("Compare two contracts", 60, "Compare two contracts"),
        ("  Many\n  blanks ", 60, "Many blanks"),
        ("x" * 80, 60, "x" * 47 + "..."),
        ("x" * 80, 10, "x" * 7 + "..."),
        ("<uploaded_files>\n- a.pdf\n</uploaded_files>\n\nRead this", 60, "Read this"),
        ("<uploaded_files>a</uploaded_files>", 60, "New Conversation"),
    ],
)
async def test_the_title_is_the_users_first_words(
    tmp_path: Path, text: str, max_chars: int, title: str
) -> None:
    model = ScriptedChatModel.playing("first", "second")
    async with open_plain_agent(tmp_path, model, title=TitleConfig(max_chars=max_chars)) as thread:
        await thread.say(text)
        await thread.say("something else")
        assert (await thread.state())["title"] == title
    assert len(model.prompts) == 2


async def test_hidden_messages_and_lists_of_content(tmp_path: Path) -> None:
    hidden = HumanMessage("reminder", additional_kwargs={"hide_from_ui": True})
    blocks = HumanMessage([{"type": "text", "text": "From "}, {"type": "text", "text": "blocks"}])
    async with open_plain_agent(tmp_path, ScriptedChatModel.playing("hi")) as thread:
        await thread.graph.ainvoke({"messages": [hidden, blocks]}, CONFIG)
        assert (await thread.state())["title"] == "From blocks"


async def test_tags_of_the_user_s_own_stay_in_the_title(tmp_path: Path) -> None:
    async with open_plain_agent(tmp_path, ScriptedChatModel.playing("A heading.")) as thread:
        await thread.say("What does <h1>Hello</h1> mean?")
        assert (await thread.state())["title"] == "What does <h1>Hello</h1> mean?"


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ('<think>let me see</think>\n"Contracts Compared"', "Contracts Compared"),
        ("「合同比较」", "合同比较"),
        ("T" * 100, "T" * 57 + "..."),
        ("<think>never ends", "Compare these"),
        ("", "Compare these"),
        (ValueError("down"), "Compare these"),
    ],
)
async def test_a_model_may_write_the_title(
    tmp_path: Path, written: str | Exception, title: str
) -> None:
    writer = ScriptedChatModel.playing(written)
    model = ScriptedChatModel.playing(calls(("ls", {"path": OUTPUTS})), "Here you are.")
    async with open_plain_agent(tmp_path, model, title_model=writer) as thread:
        await thread.say("Compare these")
        assert (await thread.state())["title"] == title
    assert len(writer.prompts) == 1
    assert "Here you are." in writer.prompts[0][0].text


async def test_the_title_s_words_stay_out_of_the_stream(tmp_path: Path) -> None:
    writer = ScriptedChatModel.playing("Secret Title")
    async with open_plain_agent(
        tmp_path, ScriptedChatModel.playing("the answer"), title_model=writer
    ) as thread:
        question = {"messages": [HumanMessage("hi")]}
        streamed = [
            part[0].text
            async for part in thread.graph.astream(question, CONFIG, stream_mode="messages")
            if isinstance(part, tuple)
        ]
    assert "".join(streamed) == "the answer"


async def test_the_prompt_of_titles_can_be_configured() -> None:
    model = ScriptedChatModel.playing("Ferry times")
    template = "At most {max_words} words, as {{json}}: {user_msg}\n{assistant_msg}"
    titles = TitleWriter(TitleConfig(prompt_template=template, max_words=4), model=model)
    assert await titles._generate_title("When?", "At <b>noon</b>.") == "Ferry times"
    said = [str(message.content) for message in model.prompts[0]]
    assert said == ["At most 4 words, as {json}: When?\nAt <b>noon</b>."]


@pytest.mark.parametrize("template", ["{", "{0}", "{user}", "{user_msg:d}"])
def test_a_prompt_of_titles_with_other_fields_is_refused(template: str) -> None:
    with pytest.raises(ValidationError, match="user_msg"):
        TitleConfig(prompt_template=template)


async def test_a_slow_title_model_is_left_behind(tmp_path: Path) -> None:
    slow = ScriptedChatModel.playing()
    slow.hold()
    titles = TitleWriter(TitleConfig(), model=slow, deadline_s=0.05)
    with anyio.fail_after(20):
        assert await titles._generate_title("user", "assistant") == ""


# ---- clarification -----------------------------------------------------------------------------


QUESTION = {"question": "Which?", "clarification_type": "approach_choice", "options": ["a", "b"]}
ASKED = "🔀 Which?\n\n  1. a\n  2. b"


@pytest.mark.parametrize(
    "turn",
    [
        calls(("ask_clarification", QUESTION)),
        calls(("ask_clarification", QUESTION), ("ls", {"path": OUTPUTS})),
        calls(("ls", {"path": OUTPUTS}), ("ask_clarification", QUESTION)),
    ],
    ids=["alone", "before another call", "after another call"],
)
async def test_a_question_ends_the_turn(tmp_path: Path, turn: ModelReply) -> None:
    model = ScriptedChatModel.playing(turn, "Then a.")
    async with open_plain_agent(tmp_path, model) as thread:
        messages = await thread.say("do it")
        asked = [message for message in messages if message.name == "ask_clarification"]
        assert len(model.prompts) == 1
        assert messages[-1].type == "tool"
        assert [message.text for message in asked] == [ASKED]
        assert (await thread.graph.aget_state(CONFIG)).next == ()
        messages = await thread.say("a")
    assert messages[-1].text == "Then a."
    assert len(model.prompts) == 2


async def test_a_second_question_is_asked_although_its_call_has_the_id_of_the_first(
    tmp_path: Path,
) -> None:
    """Some servers restart their ids in each answer, so ids are unique only within one message."""
    ask = calls(("ask_clarification", QUESTION))
    model = ScriptedChatModel.playing(ask, ask, "Then a.")
    async with open_plain_agent(tmp_path, model) as thread:
        await thread.say("do it")
        messages = await thread.say("something else")
        assert messages[-1].text == ASKED
        asked = [message for message in messages if message.name == "ask_clarification"]
        assert len(asked) == 2
        messages = await thread.say("a")
    assert messages[-1].text == "Then a."


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["a", "b"], "  1. a\n  2. b"),
        ('["a", "b"]', "  1. a\n  2. b"),
        ('"a"', "  1. a"),
        ("3", "  1. 3"),
        ("just a", "  1. just a"),
        (["a", 2, 2.5, None, "", True], "  1. a\n  2. 2\n  3. 2.5"),
        ([{"label": "a", "value": "b"}], "  1. a\n  2. b"),
        ({"option": ["a", {"x": "b"}]}, "  1. a\n  2. b"),
        (None, None),
        ("", None),
        ([], None),
        ("null", None),
        ("[" * 100_000, None),
    ],
)
def test_options_are_taken_in_every_form(options: object, shown: str | None) -> None:
    text = question_text({"question": "Q?", "options": options})
    if isinstance(options, str) and len(options) > 1000:
        assert text.startswith("❓ Q?")  # nested too deeply, so shown as it is
    else:
        assert text == ("❓ Q?" if shown is None else f"❓ Q?\n\n{shown}")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"question": "Q?", "clarification_type": "missing_info"}, "❓ Q?"),
        ({"question": "Q?", "clarification_type": "ambiguous_requirement"}, "🤔 Q?"),
        ({"question": "Q?", "clarification_type": "risk_confirmation"}, "⚠️ Q?"),
        ({"question": "Q?", "clarification_type": "suggestion", "context": "C."}, "💡 C.\n\nQ?"),
        ({"question": "Q?", "clarification_type": "other"}, "❓ Q?"),
        ({}, "❓ How should I continue?"),
    ],
)
def test_the_text_of_a_question(arguments: dict[str, str], text: str) -> None:
    assert question_text(arguments) == text


async def test_without_its_middleware_the_question_ends_the_turn_too() -> None:
    model = ScriptedChatModel.playing(calls(("ask_clarification", {"question": "Which one?"})))
    graph = create_agent(model, [ask_clarification_tool()])
    state = await graph.ainvoke({"messages": [HumanMessage("Delete it.")]})
    assert state["messages"][-1].text == "❓ Which one?"
