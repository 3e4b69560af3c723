"""Your own graphs answer in chats, chosen by the configuration or /agent; their interrupts become buttons."""

from pathlib import Path
from typing import Any

import anyio
from langgraph_sdk import get_client

from tests.journeys.service import Service, serving
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

SUPPORT = """
from dataclasses import dataclass

from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt


@dataclass
class Caller:
    language: str = ""


def answer(state: MessagesState, runtime: Runtime[Caller]):
    said = state["messages"][-1].content
    if "refund" in said:
        said = interrupt({"question": "Which order?", "options": ["Shoes", "Hat"]})
    return {"messages": [("ai", f"Support: {said} ({runtime.context.language or 'none'})")]}


graph = StateGraph(MessagesState, context_schema=Caller).add_node(answer).add_edge(START, "answer").compile()
"""
OTHER = """
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime


def make(config):
    def answer(state, runtime: Runtime):
        runtime.store.put(("sales",), "greeting", {"text": "hello"})
        greeting = runtime.store.get(("sales",), "greeting").value["text"]
        return {"messages": [("ai", f"Sales: {greeting}")]}

    return StateGraph(MessagesState).add_node(answer).add_edge(START, "answer")
"""

REMEMBERING = """
from contextlib import asynccontextmanager
from typing import Annotated, TypedDict

from langchain_core.messages import AnyMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph_sdk.runtime import ServerRuntime


class State(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


def count(state: State):
    said = [one for one in state["messages"] if one.type == "human"]
    return {"messages": [("ai", f"I remember {len(said)} messages, the first is {said[0].content}.")]}


counting = StateGraph(State).add_node(count).add_edge(START, "count").compile()


def ask(state: State):
    return {"messages": counting.invoke(state)["messages"][-1:]}


@asynccontextmanager
async def remembering(runtime: ServerRuntime):
    yield StateGraph(State).add_node(ask).add_edge(START, "ask")
"""


async def test_a_bot_with_deltas_remembers_every_message(tmp_path: Path) -> None:
    (tmp_path / "memory.py").write_text(REMEMBERING)
    async with PlatformServers() as platforms:
        config: dict[str, Any] = {
            "graphs": {"memory": "./memory.py:remembering"},
            "channels": {**platforms.channels, "session": {"assistant_id": "memory"}},
        }
        async with serving(tmp_path, config, "slack") as service:
            user = platforms.private_users(1)[0]
            for number in range(1, 16):  # a thread is trimmed after some ten turns
                await user.send(f"m{number}")
                await user.wait_for_message(f"I remember {number} messages, the first is m1.")
            assert await service.stop() == 0


async def test_custom_graphs_work_as_bots_on_every_platform(tmp_path: Path) -> None:
    (tmp_path / "support.py").write_text(SUPPORT)
    (tmp_path / "sales.py").write_text(OTHER)
    (tmp_path / "langgraph.json").write_text('{"graphs": {"sales": "./sales.py:make"}}')
    async with PlatformServers() as platforms:
        config: dict[str, Any] = {
            "graphs": {"support": "./support.py:graph"},
            "channels": {**platforms.channels, "session": {"assistant_id": "support"}},
        }
        async with serving(tmp_path, config, "slack", "telegram", "feishu") as service:
            async with anyio.create_task_group() as people:
                for user in platforms.private_users(1):
                    people.start_soon(_asks_for_a_refund, user)
            await _is_an_assistant(service)
            assert await service.stop() == 0
        assert platforms.violations == []


async def _asks_for_a_refund(user: ChatUser) -> None:
    await user.send("hello there")
    await user.wait_for_message("Support: hello there (en)")
    await user.send("a refund please")
    await user.wait_for_message("Which order?")
    await user.wait_and_press("Hat")
    await user.wait_for_message("Support: Hat (en)")
    await user.send("/agent sales")
    await user.wait_for_message("sales")
    await user.send("hello")
    await user.wait_for_message("Sales: hello")
    await user.send("/agent default")
    await user.wait_for_message("now the default")
    await user.send("back again")
    await user.wait_for_message("Support: back again (en)")


async def _is_an_assistant(service: Service) -> None:
    async with service.client() as http:
        headers = {"Authorization": http.headers["Authorization"]}
    async with get_client(url=f"{service.url}/api", headers=headers) as client:
        found = await client.assistants.search()
        assert {"lead_agent", "support", "sales"} <= {one["graph_id"] for one in found}
        asked: Any = {"messages": [{"role": "user", "content": "hi"}]}
        state: Any = await client.runs.wait(None, "sales", input=asked)
    assert state["messages"][-1]["content"] == "Sales: hello"
