"""Memory in the whole agent: facts from one conversation are known in the next one of the same scope."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage

from agent.config import AgentConfig
from agent.custom_agents import CustomAgent
from agent.memory.scope import MemoryScope
from agent.memory.service import open_memory
from agent.middleware.final_answer import FinalAnswerMiddleware
from agent.middleware.memory_and_date import MemoryAndDateMiddleware
from agent.paths import OUTPUTS
from agent.sandbox.local import LocalSandboxProvider
from agent.state import ThreadState
from agent.thread_storage import ThreadStorage
from tests.agent.agent_harness import open_agent
from tests.agent.memory_model import MemoryModel
from tests.eventually import eventually
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel, registered

ON: dict[str, Any] = {"memory": {"enabled": True}}
ANN = "person:slack:T1:U1"
OTHER_THREAD = "11111111-2222-4333-8444-666666666666"


def noted(*facts: str) -> str:
    new = [{"content": fact, "category": "context", "confidence": 0.9} for fact in facts]
    return json.dumps({"user": {}, "history": {}, "newFacts": new, "factsToRemove": []})


def system_of(model: ScriptedChatModel, call: int = 0) -> str:
    first, *others = model.prompts[call]
    assert first.type == "system"
    assert all(message.type != "system" for message in others)
    return first.text


async def test_facts_from_before_a_stop_are_known_after_it(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing("Noted.", noted("builds ships"))
    async with open_agent(tmp_path, model, ON) as harness:
        messages = await harness.say("I build ships", memory_scope=ANN)
        assert [message.type for message in messages] == ["human", "ai"]
        assert len(model.prompts) == 1
    later = ScriptedChatModel.playing("Ships.", "Who are you?", noted(), noted())
    async with open_agent(tmp_path, later, ON) as harness:
        await harness.say("What do I do?", thread=OTHER_THREAD, memory_scope=ANN)
        await harness.say("And I?", memory_scope="room:slack:T1:C1")
        assert "<memory>" not in str(await harness.state(OTHER_THREAD))
    assert system_of(later).count("- [context | 0.90] builds ships") == 1
    assert "ships" not in system_of(later, 1)
    assert "<current_date>" in system_of(later, 1)


async def test_an_entry_of_its_own_reads_conversations_once_a_turn_is_over(tmp_path: Path) -> None:
    write = ToolCall(name="write_file", args={"path": f"{OUTPUTS}/a.txt", "content": "hi"}, id="c1")
    model = ScriptedChatModel.playing(ModelReply(text="Writing.", calls=(write,)), "Written.")
    reader = ScriptedChatModel.playing(noted("wants files"))
    with registered(reader) as keys:
        config = {"memory": {"model_name": "reader"}, "models": [{**keys, "name": "reader"}]}
        async with open_agent(tmp_path, model, config) as harness:
            parts = await harness.stream("a file please", "messages", memory_scope=ANN)
            memory = harness.services.memory
            assert not reader.prompts
    assert len(model.prompts) == 2
    (asked,) = reader.prompts
    assert "User: a file please\nAssistant: Written." in asked[-1].text
    assert "Writing." not in asked[-1].text
    assert "wants files" not in str(parts)
    assert [fact.content for fact in (await memory.get(MemoryScope(scope=ANN))).facts] == [
        "wants files"
    ]


async def test_custom_agents_have_memories_of_their_own(tmp_path: Path) -> None:
    async with open_agent(
        tmp_path, ScriptedChatModel.playing("Yes.", noted("of the writer")), ON
    ) as harness:
        await harness.services.custom_agents.create(CustomAgent(name="writer", soul="You write."))
        await harness.say("write", memory_scope=ANN, agent_name="Writer")
    model = ScriptedChatModel.playing("One.", "Two.", noted(), noted())
    async with open_agent(tmp_path, model, ON) as harness:
        memory = harness.services.memory
        assert [(info.scope, info.agents) for info in await memory.list_scopes()] == [
            (ANN, ("writer",))
        ]
        await memory.create_fact(MemoryScope(scope=ANN), "of the lead")
        await harness.say("hello", memory_scope=ANN, thread=OTHER_THREAD, agent_name="writer")
        await harness.say("hello", memory_scope=ANN)
    assert ("of the writer" in system_of(model), "of the lead" in system_of(model)) == (True, False)
    assert ("of the writer" in system_of(model, 1), "of the lead" in system_of(model, 1)) == (
        *(False, True),
    )


async def test_messages_that_a_summary_replaces_are_learned_from_at_once(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(*["Fine."] * 600)
    reader = ScriptedChatModel.playing(noted("builds ships"), noted())
    writer = ScriptedChatModel.playing(*["A summary."] * 200)
    with registered(reader) as of_reader, registered(writer) as of_writer:
        config = {
            "memory": {"model_name": "reader", "debounce_seconds": 300},
            "models": [{**of_reader, "name": "reader"}, {**of_writer, "name": "writer"}],
            "summarization": {
                "enabled": True,
                "trigger": {"type": "messages", "value": 5},
                "keep": {"type": "messages", "value": 1},
                "model_name": "writer",
            },
        }
        async with open_agent(tmp_path, model, config) as harness:
            await harness.say("I build ships", memory_scope=ANN)
            await harness.say("of wood", memory_scope=ANN)
            assert not reader.called.is_set()

            async def is_learned() -> bool:
                await harness.say("and sails", memory_scope=ANN)  # summarized concurrently
                return reader.called.is_set()

            await eventually(is_learned)
    first = reader.prompts[0][-1].text
    assert "[1] User: I build ships\nAssistant: Fine.\n[2] User: of wood\n" in first


async def test_a_hanging_model_does_not_hold_up_the_end(tmp_path: Path) -> None:
    reader = ScriptedChatModel.playing()
    reader.hold()
    with registered(reader) as keys:
        config = {"memory": {"model_name": "reader"}, "models": [{**keys, "name": "reader"}]}
        model = ScriptedChatModel.playing("Hello.")
        async with open_agent(tmp_path, model, config) as harness:
            await harness.say("markone", memory_scope=ANN)
        assert len(reader.prompts) == 1
    (saved,) = (tmp_path / "memory" / "pending").iterdir()
    assert "markone" in saved.read_text()


async def test_the_block_and_the_date_end_the_system_message(tmp_path: Path) -> None:
    config = AgentConfig.model_validate({"models": [{"name": "m", "use": "a:B", "model": "m"}]})
    reader, model = MemoryModel(), ScriptedChatModel.playing("One.", "Two.")
    async with open_memory(tmp_path, lambda: config, reader.given) as memory:
        await memory.create_fact(MemoryScope(scope=ANN), "builds ships")
        links = [
            FinalAnswerMiddleware(memory, LocalSandboxProvider(ThreadStorage(tmp_path))),
            MemoryAndDateMiddleware(memory, now=lambda: datetime(2026, 3, 1, tzinfo=UTC)),
        ]
        graph = create_agent(
            model, system_prompt="Be brief.", middleware=links, state_schema=ThreadState
        )
        context: Any = {"thread_id": "t1", "memory_scope": ANN}
        question: Any = {"messages": [HumanMessage("markone", id="1")]}
        await graph.ainvoke(question, context=context)
        await graph.ainvoke({"messages": [HumanMessage("marktwo", id="2")]}, context=context)
    assert system_of(model).startswith("Be brief.\n\n<memory>")
    assert system_of(model).endswith("</memory>\n\n<current_date>2026-03-01, Sunday</current_date>")
    assert system_of(model) == system_of(model, 1)
    assert "markone" in reader.questions[0]
    assert len(reader.questions) == 1
