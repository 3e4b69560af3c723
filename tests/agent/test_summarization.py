"""Long threads are summarized for the model but stay complete in storage. Requests always keep the user's message."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from langchain.agents import create_agent
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGenerationChunk
from langgraph.types import Overwrite
from pydantic import Field, ValidationError
from typing_extensions import override

from agent.config import AgentConfig, CircuitBreakerConfig, LlmRetryConfig, SummarizationConfig
from agent.middleware.history_size import HistoryLimits, HistorySize, KeptSize
from agent.middleware.llm_retry import LlmRetryMiddleware
from agent.middleware.summarization import SummarizationMiddleware
from agent.middleware.visible_history import (
    INTRODUCTION,
    VisibleHistory,
    recent_skill_reads,
    summary_message,
)
from agent.models.circuit_breakers import CircuitBreakers
from agent.options import RunContext
from agent.paths import SKILLS, WORKSPACE
from agent.sandbox.local import LocalSandboxProvider
from agent.saved_texts import SavedTexts
from agent.state import HistorySummary, ThreadState
from agent.summarizer import Summarizer, open_summarizer
from agent.thread_storage import ThreadStorage
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.agent.plain_agent import THREAD
from tests.eventually import WITHIN_S, eventually
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel, registered

BY_MESSAGES: dict[str, Any] = {"trigger": {"type": "messages", "value": 6}, "keep": {"value": 2}}


def sections(**more: object) -> dict[str, Any]:
    """Return sections in which a separate model, `writer`, writes the summaries, and nothing else calls models."""
    summaries = {"enabled": True, "model_name": "writer", **BY_MESSAGES, **more}
    return {"summarization": summaries, "memory": {"enabled": False}}


def seen(prompt: Sequence[Any]) -> list[str]:
    """Return the texts of a request after the system message."""
    return [message.text for message in prompt if message.type != "system"]


def summarized(prompt: Sequence[Any]) -> str:
    """Return the summary at the beginning of a request; "" = none."""
    shown = seen(prompt)[0]
    return (
        shown.removeprefix(f"{INTRODUCTION}\n\n").split("\n\n")[0] if INTRODUCTION in shown else ""
    )


def saved_texts(home: Path) -> SavedTexts:
    return SavedTexts(LocalSandboxProvider(ThreadStorage(home)), 1024)


def all_written(summarizer: Summarizer) -> bool:
    """Return whether no summary is being written."""
    return all(job.done.is_set() for job in summarizer._jobs.values())


def summary_of(text: str, kept_from: str, *kept_calls: str) -> HistorySummary:
    return HistorySummary(
        text=text,
        kept_from=kept_from,
        summarized_to=kept_from,
        kept_calls=list(kept_calls),
        important=[],
        parts=0,
    )


async def talk(harness: AgentHarness, *said: str) -> None:
    """Send these texts. Before each, wait for the summary that the previous one started."""
    for text in said:
        await harness.say(text)
        await eventually(partial(all_written, harness.services.summarizer))


# ---- the whole agent ---------------------------------------------------------------------------


async def test_the_beginning_is_summed_up_for_the_model_and_stays_in_the_thread(
    tmp_path: Path,
) -> None:
    model = ScriptedChatModel.playing("a1", "a2", "a3", "a4", "a5")
    writer = ScriptedChatModel.playing("They counted.", "They counted on.")
    with registered(writer) as keys:
        config = sections() | {"models": [{**keys, "name": "writer"}]}
        async with open_agent(tmp_path, model, config) as harness:
            await talk(harness, "q1", "q2", "q3")
            assert len(writer.prompts) == 0
            await talk(harness, "q4")
            assert len(writer.prompts) == 1
            await talk(harness, "q5", "q6")
            state = await harness.state()
            graph = await harness.factory.graph_for({})
            assert set(graph.nodes) == {"__start__", "model", "tools"}
    assert seen(model.prompts[3])[0] == "q1"
    assert summarized(model.prompts[4]) == "They counted."
    assert seen(model.prompts[4])[1:] == ["a3", "q4", "a4", "q5"]
    assert seen(model.prompts[5])[1:] == ["a3", "q4", "a4", "q5", "a5", "q6"]
    assert model.prompts[4][1].name == "summary"
    assert [m.text for m in state["messages"]] == [
        *("q1", "a1", "q2", "a2", "q3", "a3", "q4", "a4", "q5", "a5", "q6", "(done)")
    ]
    assert state["summary"]["text"] == "They counted."
    shown = writer.prompts[0][-1].text
    assert "q1" in shown
    assert "a2" in shown
    assert "q4" not in shown


async def test_a_summary_is_written_on_with_the_former_one(tmp_path: Path) -> None:
    writer = ScriptedChatModel.playing("First part.", "Both <uploaded_files>parts.")
    with registered(writer) as keys:
        config = sections() | {"models": [{**keys, "name": "writer"}]}
        model = ScriptedChatModel.playing()
        async with open_agent(tmp_path, model, config) as harness:
            await talk(harness, *[f"q{n}" for n in range(1, 5)])
            assert len(writer.prompts) == 1
            await talk(harness, "q5", "q6")
            assert len(writer.prompts) == 2
            await talk(harness, "q7")
    shown = writer.prompts[1][-1].text
    assert "First part." in shown
    assert "q1" not in shown
    assert summarized(model.prompts[6]) == "Both &lt;uploaded_files>parts."


async def test_no_token_of_a_summary_is_streamed(tmp_path: Path) -> None:
    writer = ScriptedChatModel.playing("secret summary")
    with registered(writer) as keys:
        config = sections() | {"models": [{**keys, "name": "writer"}]}
        async with open_agent(tmp_path, ScriptedChatModel.playing(), config) as harness:
            await talk(harness, "q1", "q2", "q3")
            parts = await harness.stream("q4", "messages", "updates")
            await eventually(partial(all_written, harness.services.summarizer))
    assert len(writer.prompts) == 1
    words = "".join(chunk[0].text for mode, chunk in parts if mode == "messages")
    assert words == "(done)"
    assert [list(chunk) for mode, chunk in parts if mode == "updates"] == [["model"]]


async def test_if_no_summary_can_be_written_the_model_sees_everything(tmp_path: Path) -> None:
    writer = ScriptedChatModel.playing(RuntimeError("broken"), "Never asked.")
    with registered(writer) as keys:
        config = sections() | {"models": [{**keys, "name": "writer"}]}
        model = ScriptedChatModel.playing()
        async with open_agent(tmp_path, model, config) as harness:
            await talk(harness, "q1", "q2", "q3", "q4", "q5")
            state = await harness.state()
    answered = [text for n in range(1, 5) for text in (f"q{n}", "(done)")]
    assert seen(model.prompts[4]) == [*answered, "q5"]
    assert len(writer.prompts) == 1  # not called again for a while
    assert state.get("summary") is None


async def test_a_long_turn_keeps_the_request_and_its_pairs(tmp_path: Path) -> None:
    look = [
        ToolCall(name="ls", args={"path": WORKSPACE, "description": str(n)}, id=f"c{n}")
        for n in range(6)
    ]
    turns = [ModelReply(calls=(call,)) for call in look]
    model = ScriptedChatModel.playing(*turns, ModelReply(text="Done."))
    writer = ScriptedChatModel.playing("Looked.", "Looked more.", "Looked again.")
    with registered(writer) as keys:
        config = sections(keep={"value": 3}) | {"models": [{**keys, "name": "writer"}]}
        async with open_agent(tmp_path, model, config) as harness:
            model.hold_until(partial(all_written, harness.services.summarizer))
            messages = await harness.say("look six times, please")
    assert messages[-1].text == "Done."
    assert len(messages) == 14
    assert writer.prompts
    for prompt in model.prompts:
        assert "look six times, please" in seen(prompt)
        assert _paired(prompt)
    assert all(len(prompt) <= 12 for prompt in model.prompts)


async def test_hooks_get_the_replaced_messages_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[list[str]] = []

    def failing(_: Sequence[AnyMessage], __: RunContext) -> None:
        raise RuntimeError("a listener")

    def listening(messages: Sequence[AnyMessage], caller: RunContext) -> None:
        got.append([message.text for message in messages])
        assert caller.thread_id == "t"

    async def writer(_: str | None) -> BaseChatModel:
        return ScriptedChatModel.playing("Summed up.")

    model = ScriptedChatModel.playing()
    async with open_summarizer(writer) as summarizer:
        link = SummarizationMiddleware(
            SummarizationConfig.model_validate({"enabled": True, **BY_MESSAGES}),
            model=model,
            summarizer=summarizer,
            texts=saved_texts(tmp_path),
            skills=SKILLS,
            hooks=[failing, listening],
        )
        graph: Any = create_agent(model, [], middleware=[link], state_schema=ThreadState)
        thread: list[Any] = [HumanMessage(f"q{n}", id=f"{n}") for n in range(7)]
        config: Any = {"configurable": {"thread_id": "t"}}
        state = await graph.ainvoke({"messages": thread}, config)
        for turn in range(4):
            await eventually(partial(all_written, summarizer))
            more = [HumanMessage(f"{turn}{n}", id=f"r{turn}{n}") for n in range(2)]
            state |= {"messages": [*state["messages"], *more]}
            state = await graph.ainvoke(state, config)
    assert got[:2] == [
        [f"q{n}" for n in range(5)],
        ["q5", "q6", "(done)", "00", "01", "(done)"],
    ]
    assert "A summarization hook failed" in caplog.text


async def test_a_thread_that_was_taken_back_has_no_summary(tmp_path: Path) -> None:
    writer = ScriptedChatModel.playing("Old.")
    with registered(writer) as keys:
        config = sections() | {"models": [{**keys, "name": "writer"}]}
        model = ScriptedChatModel.playing()
        async with open_agent(tmp_path, model, config) as harness:
            await talk(harness, "q1", "q2", "q3", "q4")
            graph = await harness.factory.graph_for({})
            thread: Any = {"configurable": {"thread_id": THREAD}}
            first = (await harness.state())["messages"][:2]
            await graph.aupdate_state(thread, {"messages": Overwrite(first)})
            await harness.say("anew")
    assert seen(model.prompts[-1]) == ["q1", "(done)", "anew"]


def test_limits_depend_on_the_context_size() -> None:
    model = ScriptedChatModel.playing()
    known = HistoryLimits.from_config(SummarizationConfig(max_input_tokens=100_000), model)
    assert known.triggers == (HistorySize(unit="tokens", value=60_000),)
    assert (known.leave_out_at, known.full_at) == (80_000, 95_000)
    assert known.keep == KeptSize(messages=20, tokens=12_000)
    unknown = HistoryLimits.from_config(SummarizationConfig(), model)
    assert unknown.triggers == (HistorySize(unit="tokens", value=48_000),)
    assert (unknown.leave_out_at, unknown.full_at) == (64_000, None)
    config = {
        "trigger": {"type": "tokens", "value": 9_000},
        "keep": {"type": "fraction", "value": 0.5},
    }
    chosen = HistoryLimits.from_config(SummarizationConfig.model_validate(config), model)
    assert (chosen.leave_out_at, chosen.keep) == (12_000, KeptSize(tokens=40_000))


async def test_tokens_and_fractions_start_it_too(tmp_path: Path) -> None:
    ways: list[dict[str, Any]] = [
        {"trigger": {"type": "tokens", "value": 400}},
        {"trigger": {"type": "fraction", "value": 0.4}, "max_input_tokens": 1000},
    ]
    for keys in ways:
        writer = ScriptedChatModel.playing("Much was said.")
        with registered(writer) as entry:
            config = sections(**keys) | {"models": [{**entry, "name": "writer"}]}
            model = ScriptedChatModel.playing()
            folder = tmp_path / str(keys["trigger"]["type"])
            folder.mkdir()
            async with open_agent(folder, model, config) as harness:
                await talk(harness, *["word " * 150] * 4)
        assert seen(model.prompts[-1])[0].startswith(INTRODUCTION)


async def test_the_writer_reads_everything_piece_by_piece(tmp_path: Path) -> None:
    writer = ScriptedChatModel.playing(*(f"Summary {n}." for n in range(20)))
    with registered(writer) as keys:
        config = sections(trim_tokens_to_summarize=500, summary_prompt="Sum up: {messages}")
        config |= {"models": [{**keys, "name": "writer"}]}
        async with open_agent(tmp_path, ScriptedChatModel.playing(), config) as harness:
            long = "".join(f"word{n} " for n in range(2000))
            await talk(harness, long, "q2", "q3", "q4", "q5")
            state = await harness.state()
    prompts = [prompt[-1].text for prompt in writer.prompts]
    assert len(prompts) >= 8
    assert all(len(shown) < 2_100 for shown in prompts)
    before = re.compile(r"Sum up: (Summary of what came before:\nSummary \d+\.\n\n)?")
    read = "".join(before.sub("", shown, count=1) for shown in prompts)
    assert long.strip() in read
    assert "q2" in read
    for n, shown in enumerate(prompts[1:]):
        assert f"Summary of what came before:\nSummary {n}.\n" in shown
    assert state["summary"]["text"] == f"Summary {len(prompts) - 1}."


async def test_a_writer_with_a_small_window_gets_smaller_pieces(tmp_path: Path) -> None:
    writer = ScriptedChatModel.playing(TOO_LONG, *(f"Summary {n}." for n in range(9)))
    with registered(writer) as keys:
        config = sections(trim_tokens_to_summarize=2000) | {"models": [{**keys, "name": "writer"}]}
        async with open_agent(tmp_path, ScriptedChatModel.playing(), config) as harness:
            await talk(harness, "x" * 7000, "q2", "q3", "q4", "q5")
            state = await harness.state()
    assert len(writer.prompts) == 3
    assert state["summary"]["text"] == "Summary 1."


# ---- summaries do not hold up the conversation ---------------------------------------------------


@asynccontextmanager
async def summarizing(
    model: ScriptedChatModel, writer: BaseChatModel, config: dict[str, Any], *, waits: bool = True
) -> AsyncIterator[Callable[[dict[str, Any], str], Awaitable[dict[str, Any]]]]:
    """Yield a function that runs a turn in a state and returns the new one.

    `waits`: whether the function also waits for the summary that the turn started.
    """

    async def source(_: str | None) -> BaseChatModel:
        return writer

    with TemporaryDirectory() as folder:
        async with open_summarizer(source) as summarizer:
            section = SummarizationConfig.model_validate(config)
            link = SummarizationMiddleware(
                section,
                model=model,
                summarizer=summarizer,
                texts=saved_texts(Path(folder)),
                skills=SKILLS,
                max_wait_s=WITHIN_S,
            )
            retry = LlmRetryMiddleware(
                LlmRetryConfig(),
                names=["scripted"],
                models=source,
                breakers=CircuitBreakers(CircuitBreakerConfig),
            )
            graph: Any = create_agent(model, [], middleware=[link, retry], state_schema=ThreadState)

            async def turn(state: dict[str, Any], said: str) -> dict[str, Any]:
                messages = [*state.get("messages", []), HumanMessage(said, id=said[:40])]
                thread: Any = {"configurable": {"thread_id": "t"}}
                result: dict[str, Any] = await graph.ainvoke(
                    {**state, "messages": messages}, thread
                )
                if waits:
                    await eventually(partial(all_written, summarizer))
                return result

            yield turn


async def test_a_slow_writer_does_not_hold_up_the_turn(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing()
    writer = ScriptedChatModel.playing("Finally.")
    release = writer.hold()
    async with summarizing(model, writer, {"enabled": True, **BY_MESSAGES}, waits=False) as turn:
        state: dict[str, Any] = {}
        for n in range(1, 6):
            state = await turn(state, f"q{n}")
        assert seen(model.prompts[4])[0] == "q1"
        assert state.get("summary") is None
        release.set()
        with anyio.fail_after(20):
            while state.get("summary") is None:
                state = await turn(state, f"more{len(model.prompts)}")
    assert summarized(model.prompts[-1]) == "Finally."
    # Messages sent in the meantime are not in the summary, so they are still visible.
    assert "q5" in seen(model.prompts[-1])


async def test_long_recent_messages_do_not_start_a_summary_at_each_step() -> None:
    model, writer = ScriptedChatModel.playing(), ScriptedChatModel.playing()
    config = {
        "enabled": True,
        "trigger": {"type": "tokens", "value": 5000},
        "keep": {"type": "messages", "value": 20},
    }
    async with summarizing(model, writer, config) as turn:
        state: dict[str, Any] = {}
        for n in range(30):
            state = await turn(state, f"q{n} " + "long " * 1000)
    assert 1 <= len(writer.prompts) <= 12


# ---- the model's limit ---------------------------------------------------------------------------


async def test_near_the_models_limit_threads_are_summarized_by_default() -> None:
    model, writer = ScriptedChatModel.playing(), ScriptedChatModel.playing("Short.", "Shorter.")
    config = {"max_input_tokens": 4000, "keep": {"type": "messages", "value": 3}}
    async with summarizing(model, writer, config) as turn:
        state: dict[str, Any] = {}
        for n in range(8):
            state = await turn(state, f"q{n} " + "long " * 500)
    assert state["summary"]["text"].startswith("Short")
    sizes = [count_tokens_approximately(prompt) for prompt in model.prompts]
    assert max(sizes) <= 4000


TOO_LONG = ContextOverflowError("maximum context length is 1000 tokens")


class SmallModel(ScriptedChatModel):
    """Rejects requests above its context size, as servers do."""

    limit: int = 1000
    rejected: list[int] = Field(default_factory=list)

    @override
    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        if count_tokens_approximately(messages) > self.limit:
            self.rejected.append(count_tokens_approximately(messages))
            raise TOO_LONG
        async for chunk in super()._astream(messages, *args, **kwargs):
            yield chunk


class ChineseModel(SmallModel):
    """Counts a token for each character, as tokenizers do for Chinese, and reports no usage."""

    limit: int = 4000

    @override
    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        size = sum(len(message.text) for message in messages)
        if size > self.limit:
            self.rejected.append(size)
            raise TOO_LONG
        async for chunk in super()._astream(messages, *args, **kwargs):
            if isinstance(chunk.message, AIMessageChunk):
                chunk.message.usage_metadata = None
            yield chunk


@pytest.mark.parametrize("word", ["长", "長い話", "긴이야기"])
async def test_a_long_chinese_or_japanese_thread_is_summarized_before_the_model_rejects_it(
    word: str,
) -> None:
    model, writer = ChineseModel.playing(), ScriptedChatModel.playing(*["短。"] * 9)
    config = {"max_input_tokens": 4000, "keep": {"type": "tokens", "value": 1000}}
    async with summarizing(model, writer, config) as turn:
        state: dict[str, Any] = {}
        for n in range(12):
            state = await turn(state, f"q{n} " + word * (600 // len(word)))
    assert state["summary"]["text"] == "短。"
    assert model.rejected == []


async def test_the_summary_model_gets_chinese_in_pieces_that_fit() -> None:
    model, writer = ScriptedChatModel.playing(), ScriptedChatModel.playing(*["短。"] * 30)
    config = {
        "enabled": True,
        "trigger": {"type": "messages", "value": 8},
        "keep": {"value": 2},
        "trim_tokens_to_summarize": 1000,
    }
    async with summarizing(model, writer, config) as turn:
        state: dict[str, Any] = {}
        for n in range(5):
            state = await turn(state, f"q{n} " + "长" * 1500)
        await eventually(lambda: len(writer.prompts) >= 6)
    assert max(prompt[0].text.count("长") for prompt in writer.prompts) <= 1100


async def test_a_request_that_is_too_long_is_compacted_and_repeated() -> None:
    model, writer = SmallModel.playing(), ScriptedChatModel.playing(*["The story so far."] * 9)
    async with summarizing(model, writer, {}) as turn:
        state: dict[str, Any] = {}
        for n in range(12):
            state = await turn(state, f"q{n} " + "long " * 120)
    texts = [message.text for message in state["messages"] if message.type == "ai"]
    assert texts == ["(done)"] * 12
    assert state["summary"]["text"] == "The story so far."
    assert seen(model.prompts[-1])[0].startswith(INTRODUCTION)
    assert seen(model.prompts[-1])[-1].startswith("q11 ")
    assert 1 <= len(model.rejected) <= 6


async def test_the_whole_agent_repeats_a_request_that_is_too_long(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(TOO_LONG, "Answer.")
    async with open_agent(tmp_path, model) as harness:
        messages = await harness.say("hello")
    assert [message.text for message in messages] == ["hello", "Answer."]
    assert seen(model.prompts[-1])[-1] == "hello"  # nothing is left out of a few words


async def test_without_summaries_an_overflow_ends_the_turn_with_the_reason(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(*(f"a{n}" for n in range(1, 6)), TOO_LONG)
    config = {"summarization": {"enabled": False, **BY_MESSAGES}}
    async with open_agent(tmp_path, model, config) as harness:
        await talk(harness, *(f"q{n}" for n in range(1, 6)))
        messages = await harness.say("q6")
        state = await harness.state()
    assert seen(model.prompts[4])[0] == "q1"
    assert len(model.prompts) == 6
    assert messages[-1].additional_kwargs["error_reason"] == "context"
    assert state.get("summary") is None


async def test_a_single_message_that_is_too_long_is_shortened_with_a_note() -> None:
    model, writer = SmallModel.playing(), ScriptedChatModel.playing()
    async with summarizing(model, writer, {}) as turn:
        state = await turn({}, "begin " + "long " * 2000 + "end")
    assert state["messages"][-1].text == "(done)"
    shown = seen(model.prompts[-1])[-1]
    assert shown.startswith("begin ")
    assert shown.endswith("end")
    assert "characters left out to save space: the whole text is in /mnt/user-data/" in shown
    assert state["messages"][0].text.count("long") == 2000


async def test_a_prompt_that_no_compaction_can_fit_ends_the_turn_with_the_reason() -> None:
    model, writer = SmallModel.playing(), ScriptedChatModel.playing()
    model.limit = 1
    async with summarizing(model, writer, {}) as turn:
        state = await turn({}, "hi")
    assert state["messages"][-1].additional_kwargs["error_reason"] == "context"


# ---- pure functions ----------------------------------------------------------------------------


def read(call_id: str, path: str, size: int = 40, name: str = "read_file") -> list[AnyMessage]:
    call = {"name": name, "args": {"path": path}, "id": call_id}
    return [
        AIMessage("", tool_calls=[call], id=f"ai-{call_id}"),
        ToolMessage("x" * size, tool_call_id=call_id, id=f"t-{call_id}"),
    ]


def test_recent_skill_files_stay_readable() -> None:
    first, other = read("1", f"{SKILLS}/public/a/SKILL.md"), read("2", f"{WORKSPACE}/a")
    messages: list[AnyMessage] = [
        HumanMessage("q", id="q"),
        *first,
        *other,
        AIMessage("end", id="e"),
    ]
    assert recent_skill_reads(messages, SKILLS) == ["1"]
    view = VisibleHistory(messages, summary_of("s", "e", "1")).messages
    assert [m.type for m in view] == ["human", "ai", "tool", "human", "ai"]
    assert [m.text for m in view[3:]] == ["q", "end"]
    assert _paired(view)


def test_the_limits_of_skills_hold() -> None:
    reads = [read(str(n), f"{SKILLS}/s{n}/SKILL.md", 400) for n in range(9)]
    messages = [message for pair in reads for message in pair]
    assert recent_skill_reads(messages, SKILLS) == ["4", "5", "6", "7", "8"]
    huge = [*read("h", f"{SKILLS}/h/SKILL.md", 40_000), *messages[:2]]
    assert recent_skill_reads(huge, SKILLS) == ["0"]
    other_tool = read("r", f"{SKILLS}/r/SKILL.md", name="bash")
    assert recent_skill_reads(other_tool, SKILLS) == []


def test_a_summary_that_fits_no_more_is_left_aside() -> None:
    messages: list[AnyMessage] = [HumanMessage("q", id="q")]
    assert VisibleHistory(messages).messages is messages
    assert VisibleHistory(messages, summary_of("s", "gone")).messages is messages


def test_hidden_messages_are_not_the_user_s_request() -> None:
    hidden = HumanMessage("h", id="h", additional_kwargs={"hide_from_ui": True})
    messages: list[AnyMessage] = [HumanMessage("real", id="r"), hidden, AIMessage("a", id="a")]
    view = VisibleHistory(messages, summary_of("s", "a")).messages
    assert [m.text for m in view[1:]] == ["real", "a"]
    assert summary_message(summary_of("s", "a"), "r").additional_kwargs["hide_from_ui"] is True


@pytest.mark.parametrize(
    "section",
    [
        {"keep": {"type": "fraction", "value": 1.5}},
        {"keep": {"type": "messages", "value": 2.5}},
        {"keep": {"type": "messages", "value": 0}},
        {"trigger": {"type": "words", "value": 5}},
        {"summary_prompt": "no place"},
        {"summary_prompt": "{messages} and {more}"},
        {"trim_tokens_to_summarize": -1},
    ],
)
def test_sections_that_make_no_sense_are_refused(section: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SummarizationConfig.model_validate(section)
    with pytest.raises(ValidationError):
        AgentConfig.model_validate({"summarization": section})


def test_the_writer_must_be_a_model_that_there_is() -> None:
    with pytest.raises(ValidationError, match=r"summarization\.model_name: .*'nobody'"):
        AgentConfig.model_validate({"summarization": {"model_name": "nobody"}})


def _paired(messages: Sequence[Any]) -> bool:
    """Return whether each call is directly followed by its result, and every result follows its call."""
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in open_calls:
                return False
            open_calls.remove(message.tool_call_id)
        elif open_calls:
            return False
        elif isinstance(message, AIMessage):
            open_calls = [str(call["id"]) for call in message.tool_calls]
    return not open_calls


async def test_threads_with_the_same_message_ids_keep_their_own_summaries(tmp_path: Path) -> None:
    """Clients choose the IDs of messages."""
    model = ScriptedChatModel.playing(*[f"a{number}" for number in range(30)])
    writer = ScriptedChatModel.playing(*["Alice's secret."] * 20)
    with registered(writer) as keys:
        config = sections(keep={"value": 3}) | {"models": [{**keys, "name": "writer"}]}
        async with open_agent(tmp_path, model, config) as harness:
            for number in range(3):
                for thread in ("alice", "bob"):
                    await harness.say(HumanMessage("hi", id=f"msg-{number}"), thread=thread)
            await harness.say(HumanMessage("hi", id="msg-3"), thread="alice")
            await eventually(lambda: len(writer.prompts) == 1)
            jobs = harness.factory.services.summarizer._jobs
            (job,) = jobs.values()
            await job.done.wait()
            await harness.say(HumanMessage("hi", id="msg-3"), thread="bob")
            assert "Alice's secret." not in str(seen(model.prompts[-1]))
            await harness.say(HumanMessage("hi", id="msg-4"), thread="alice")
            assert "Alice's secret." in str(seen(model.prompts[-1]))
