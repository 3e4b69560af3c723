"""Providers cache requests by prefix: measures how much of a request repeats the previous request's beginning."""

import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from agent.memory.schema import MemoryDocument
from agent.memory.scope import memory_scope
from agent.options import RunContext
from agent.paths import WORKSPACE
from tests.agent.agent_harness import open_agent
from tests.agent.memory_model import noted
from tests.agent.plain_agent import THREAD
from tests.agent.test_uploads_middleware import message, put
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.fakes.scripted import ScriptedChatModel, registered

TURNS = 50
ANN = "person:slack:T1:U1"


def answer(request: ModelRequest) -> ModelReply:
    """Look around in every second turn, delegate in a few, then answer."""
    if request.messages[-1]["role"] == "tool":
        return ModelReply(text="I found nothing there, as expected.")
    said = request.last_user_text
    if "delegate" in said:
        kind = {"description": "d", "prompt": said, "subagent_type": "general-purpose"}
        return ModelReply(calls=tuple(ToolCall("task", kind, f"{said[-2:]}-{n}") for n in range(3)))
    if said.endswith(("0", "2", "4", "6", "8")):
        return ModelReply(calls=(ToolCall("ls", {"path": WORKSPACE}),))
    return ModelReply(text=f"This is my answer to: {said}")


def as_cached(request: ModelRequest) -> str:
    """Return a request in the order in which providers cache it."""
    body = request.body
    return json.dumps([body.get("tools"), body["messages"]], ensure_ascii=False)


def common_length(first: str, second: str) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def cached_share(requests: list[ModelRequest]) -> float:
    """Return the share of all requests' text that is the beginning of the request before."""
    texts = [as_cached(request) for request in requests]
    hits = sum(common_length(*pair) for pair in pairwise(texts))
    return hits / sum(map(len, texts))


async def test_a_conversation_of_fifty_turns_is_cached(tmp_path: Path) -> None:
    """With memory that learns from each turn, files, tools and delegation."""
    async with FakeModelServer(answer=answer) as server:
        entry = {"name": "server", "use": "langchain_openai:ChatOpenAI", "model": "fake"}
        entry |= {"api_key": "k", "base_url": server.base_url}
        facts = [noted(f"<conversation>\nmark{n}\n</conversation>") for n in range(TURNS)]
        with registered(ScriptedChatModel.playing(*facts)) as learner:
            sections: dict[str, Any] = {
                "models": [entry, {**learner, "name": "learner"}],
                "memory": {"enabled": True, "model_name": "learner", "debounce_seconds": 300},
                "subagents": {"agents": {"general-purpose": {"model": "scripted"}}},
            }
            async with open_agent(tmp_path, ScriptedChatModel.playing(), sections) as harness:
                memory = harness.services.memory
                caller, scope = RunContext(thread_id=THREAD, memory_scope=ANN), memory_scope(ANN)
                put(harness.folders(), a__txt="hello", b__txt="world")
                for n in range(TURNS):
                    said = f"mark{n} {'delegate' if n % 10 == 5 else 'look'} {n:02}"
                    files = {3: ("a.txt",), 30: ("b.txt",)}.get(n, ())
                    await harness.say(
                        message(said, *files),
                        memory_scope=ANN,
                        model_name="server",
                        subagent_enabled=True,
                    )
                    if n % 5 == 0:
                        memory.before_summarization([], caller)
                        await eventually(partial(memory.get, scope), partial(has_facts, n // 5 + 1))
        assert cached_share(server.requests) >= 0.95


def has_facts(count: int, document: MemoryDocument) -> bool:
    return len(document.facts) == count
