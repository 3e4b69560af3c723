"""A long conversation with tools, files, delegation and memory extraction. The model server caches prompts."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from agent.memory.schema import MemoryDocument
from agent.memory.scope import memory_scope
from agent.options import RunContext
from agent.paths import UPLOADS, WORKSPACE
from gateway.chat_schedules import ChatSchedules
from tests.agent.agent_harness import open_agent
from tests.agent.memory_model import noted
from tests.agent.plain_agent import THREAD
from tests.agent.test_speakers import said
from tests.agent.test_uploads_middleware import message, put
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.fakes.model_switches import ModelSwitches
from tests.fakes.scripted import ScriptedChatModel, registered

LEARNS_EVERY = 3
"""Memory is extracted after this many turns."""

ANN = "person:slack:T1:U1"
PRIVATE = {"platform": "slack", "type": "private", "name": "Ann Lee"}

TITLED = {"type": "group", "title": "Release team", "topic": "Offers"}

ModelEntry = Callable[[FakeModelServer], dict[str, Any]]


def openai_entry(server: FakeModelServer) -> dict[str, Any]:
    return {
        "name": "server",
        "use": "langchain_openai:ChatOpenAI",
        "model": "fake",
        "api_key": "k",
        "base_url": server.base_url,
    }


def anthropic_entry(server: FakeModelServer) -> dict[str, Any]:
    return {
        "name": "server",
        "use": "langchain_anthropic:ChatAnthropic",
        "model": "claude-fake",
        "api_key": "k",
        "base_url": server.anthropic_url,
        "max_retries": 0,
        "streaming": True,
    }


async def converse(home: Path, entry: ModelEntry, turns: int) -> FakeModelServer:
    """Run this many turns against a strict server. Return the stopped server, which holds its requests."""
    switches = ModelSwitches(caches_prefixes=True, strict=True)
    async with FakeModelServer(switches, answer=_answer) as server:
        facts = [noted(f"<conversation>\nmark{n}\n</conversation>") for n in range(turns)]
        with registered(ScriptedChatModel.playing(*facts)) as learner:
            sections: dict[str, Any] = {
                "models": [entry(server), {**learner, "name": "learner"}],
                "memory": {
                    "enabled": True,
                    "model_name": "learner",
                    "debounce_seconds": 300,
                    "max_calls_per_hour": 3600,
                },
                "subagents": {"agents": {"general-purpose": {"model": "scripted"}}},
            }
            async with open_agent(home, ScriptedChatModel.playing(), sections) as harness:
                memory = harness.services.memory
                caller, scope = RunContext(thread_id=THREAD, memory_scope=ANN), memory_scope(ANN)
                put(harness.folders(), a__txt="hello", b__txt="world")
                for n in range(turns):
                    words = f"mark{n} {'delegate' if n % 10 == 5 else 'look'} {n:02}"
                    files = {3: ("a.txt",), 7: ("b.txt",)}.get(n, ())
                    await harness.say(
                        message(words, *files),
                        memory_scope=ANN,
                        chat=PRIVATE,
                        model_name="server",
                        subagent_enabled=True,
                    )
                    if n % LEARNS_EVERY == 0:
                        memory.before_summarization([], caller)
                        learned = partial(_has_facts, n // LEARNS_EVERY + 1)
                        await eventually(partial(memory.get, scope), learned)
    return server


async def say_first(
    home: Path,
    server: FakeModelServer,
    *,
    language: str,
    platform: str = "slack",
    sections: Mapping[str, Any] | None = None,
) -> None:
    """Send the first message of a group chat. `sections` of the configuration may let the agent delegate."""
    config = {"models": [openai_entry(server)], **(sections or {})}
    model, schedules = ScriptedChatModel.playing(), ChatSchedules()
    async with open_agent(home, model, config, schedules=schedules) as harness:
        await harness.say(
            said("Hi!", "U1", "Ann Lee"),
            thread=uuid4().hex,
            chat={**TITLED, "platform": platform},
            language=language,
            model_name="server",
            subagent_enabled=bool(sections),
        )


def _answer(request: ModelRequest) -> ModelReply:
    """List and read a file in every second turn, delegate in a few, then answer."""
    last, words = request.messages[-1], request.last_user_text
    looked = re.search(r"'ls-(\d+)'", str(last))
    if looked is not None:
        read = ToolCall("read_file", {"path": f"{UPLOADS}/a.txt"}, f"read-{looked[1]}")
        return ModelReply(calls=(read,))
    if last["role"] == "tool" or "tool_result" in str(last["content"]):
        return ModelReply(text="I found nothing there, as expected.")
    if "delegate" in words:
        kind = {"description": "d", "prompt": words, "subagent_type": "general-purpose"}
        return ModelReply(
            calls=tuple(ToolCall("task", kind, f"{words[-2:]}-{n}") for n in range(3))
        )
    if words.endswith(("0", "2", "4", "6", "8")):
        return ModelReply(calls=(ToolCall("ls", {"path": WORKSPACE}, f"ls-{words[-2:]}"),))
    return ModelReply(text=f"This is my answer to: {words}")


def _has_facts(count: int, document: MemoryDocument) -> bool:
    return len(document.facts) == count
