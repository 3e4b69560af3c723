"""The cost of memory extraction, as counted by a model server: calls and tokens for a room that is never idle."""

from pathlib import Path

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from agent.config import AgentConfig
from agent.memory.queue import MAX_TURNS_PER_CALL
from agent.memory.schema import HISTORY, USER
from agent.memory.scope import MemoryScope
from agent.memory.service import open_memory
from agent.options import RunContext
from tests.agent.memory_model import noted
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest

ROOM = MemoryScope(scope="room:slack:T1:C1")
MAX_CALL_TOKENS = 35_000
"""Documented in docs/explanation/memory.md."""


def answered(request: ModelRequest) -> ModelReply:
    return ModelReply(text=noted(request.last_user_text))


def turn(number: int, text: str) -> list[AnyMessage]:
    return [HumanMessage(text, id=f"h{number}"), AIMessage("I see. " * 500, id=f"a{number}")]


async def test_a_call_for_a_full_room_is_bounded_and_courtesies_are_free(tmp_path: Path) -> None:
    config = AgentConfig.model_validate(
        {"models": [{"name": "m", "use": "somebody:Model", "model": "m"}]}
    )
    async with FakeModelServer(answer=answered) as server:
        model = ChatOpenAI(
            model="m", base_url=server.base_url, api_key=SecretStr("x"), max_retries=0
        )

        async def given(_: str | None) -> ChatOpenAI:
            return model

        async with open_memory(tmp_path, lambda: config, given, flush_s=60) as memory:
            for number in range(200):
                caller = RunContext(thread_id=f"t{number % 16}", memory_scope=ROOM.scope)
                await memory.enqueue_turn(turn(number, "Thanks!"), caller)
        assert server.requests == []
        async with open_memory(tmp_path, lambda: config, given, flush_s=60) as memory:
            facts = [{"content": f"{number} " + "事实" * 450} for number in range(500)]
            section = {"summary": "总结" * 1000}
            parts = {
                "user": dict.fromkeys(USER, section),
                "history": dict.fromkeys(HISTORY, section),
            }
            await memory.replace(ROOM, {"facts": facts, **parts})
            for number in range(200, 400):
                caller = RunContext(thread_id=f"t{number % 16}", memory_scope=ROOM.scope)
                await memory.enqueue_turn(turn(number, f"{number} " + "我们的话" * 500), caller)
        assert len(server.requests) == 16 / MAX_TURNS_PER_CALL
        assert max(request.tokens for request in server.requests) <= MAX_CALL_TOKENS
        # The latest messages of each conversation are included.
        shown = "".join(request.last_user_text for request in server.requests)
        assert all(f"{number} 我们的话" in shown for number in range(384, 400))
