"""The middleware stack of the service adds no node, step or checkpoint, even with everything enabled."""

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware

import agent.middleware
from agent.middleware.chain import MiddlewareChain
from agent.paths import WORKSPACE
from tests.agent.agent_harness import open_agent
from tests.agent.plain_agent import THREAD
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

EVERYTHING: dict[str, Any] = {
    "summarization": {
        "enabled": True,
        "trigger": {"type": "messages", "value": 4},
        "keep": {"value": 2},
    },
    "guardrails": {
        "enabled": True,
        "provider": {"use": "agent.guardrails.allowlist:AllowlistProvider", "config": {}},
    },
}
OPTIONS: dict[str, Any] = {"is_plan_mode": True, "subagent_enabled": True}

SYNC_HOOKS = ("wrap_model_call", "wrap_tool_call")
NODES = ("before_agent", "before_model", "after_model", "after_agent")


def _all_middleware() -> list[type[Any]]:
    """Return the middleware classes of `agent.middleware` except chains."""
    modules = [
        importlib.import_module(f"agent.middleware.{found.name}")
        for found in pkgutil.iter_modules(agent.middleware.__path__)
    ]
    return [
        kind
        for module in modules
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and issubclass(kind, AgentMiddleware)
        and kind is not MiddlewareChain
        and kind.__module__ == module.__name__
    ]


@pytest.mark.parametrize("kind", _all_middleware(), ids=lambda kind: str(kind.__name__))
def test_middleware_has_async_hooks_only_and_adds_no_node(kind: type[Any]) -> None:
    assert any(_overrides(kind, f"a{hook}") for hook in SYNC_HOOKS)
    assert not any(_overrides(kind, hook) for hook in SYNC_HOOKS)
    for hook in NODES:
        assert not _overrides(kind, hook)
        assert not _overrides(kind, f"a{hook}")


def _overrides(kind: type[Any], name: str) -> bool:
    return getattr(kind, name) is not getattr(AgentMiddleware, name)


async def test_everything_switched_on_adds_no_step(tmp_path: Path) -> None:
    look = ModelReply(calls=(ToolCall(name="ls", args={"path": WORKSPACE}, id="l"),))
    model = ScriptedChatModel.playing(look, "Nothing there.", "Still nothing.")
    async with open_agent(tmp_path, model, EVERYTHING, entry={"supports_vision": True}) as harness:
        await harness.say("look", **OPTIONS)
        await harness.say("again", **OPTIONS)
        graph = await harness.factory.graph_for({"configurable": OPTIONS})
        config: Any = {"configurable": {"thread_id": THREAD}}
        steps = [s.metadata["step"] async for s in graph.aget_state_history(config) if s.metadata]
    assert set(graph.nodes) == {"__start__", "model", "tools"}
    # The input, then model, tools, model; the input, then model.
    assert steps == [6, 5, 4, 3, 2, 1, 0, -1]
