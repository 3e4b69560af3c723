"""Small graphs for the runtime: instant, streaming, waiting, failing, asking, nested."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, TypedDict

import anyio
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, AnyMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime
from langgraph.types import StreamWriter, interrupt
from pydantic import ConfigDict
from typing_extensions import override

from agent.options import take_steering_messages
from gateway.runtime.execution import Graph
from gateway.runtime.graph_sources import FixedGraph
from tests.eventually import eventually
from tests.fakes.scripted import ScriptedChatModel


class TokenModel(ScriptedChatModel):
    """Streams `tokens` chunks `tok0 `, `tok1 ` ... Raises after `fail_after` of them.

    Attributes:
        delay_s: Pause before every chunk, seconds.
        gate: Awaited before every chunk; None = no wait.
        closed: Set when the stream is closed or canceled before its end.
    """

    tokens: int = 3
    fail_after: int | None = None
    delay_s: float = 0.0
    gate: anyio.Semaphore | None = None
    closed: anyio.Event | None = None
    model_config = ConfigDict(arbitrary_types_allowed=True)

    @override
    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        whole = False
        try:
            for number in range(self.tokens):
                if number == self.fail_after:
                    raise RuntimeError("model exploded")
                if self.gate is not None:
                    await self.gate.acquire()
                if self.delay_s:
                    await anyio.sleep(self.delay_s)
                chunk = ChatGenerationChunk(message=AIMessageChunk(content=f"tok{number} "))
                if run_manager:
                    await run_manager.on_llm_new_token(f"tok{number} ", chunk=chunk)
                yield chunk
            whole = True
        finally:
            if self.closed is not None and not whole:
                self.closed.set()


class State(TypedDict, total=False):
    """The state of the test graphs."""

    messages: Annotated[list[AnyMessage], add_messages]
    n: int
    answer: str
    title: str
    seen: dict[str, Any]


Node = Callable[..., Awaitable[State]]


class Graphs:
    """The graphs, and controls for those that wait.

    Attributes:
        gate: `slow` waits for it in its second node.
        reached: Set when `slow` waits.
        stopped: Set when `slow` is canceled while it waits.
        tokens: `paced` takes one permit for every token.
        closed: Set when the model of `paced` is canceled.
        calls: How often each node ran, by name.
    """

    def __init__(self) -> None:
        self.gate = anyio.Event()
        self.reached = anyio.Event()
        self.stopped = anyio.Event()
        self.tokens = anyio.Semaphore(0)
        self.closed = anyio.Event()
        self.calls: dict[str, int] = {}
        paced = TokenModel(tokens=6, gate=self.tokens, closed=self.closed)
        self._graphs: dict[str, Graph] = {
            "instant": self._line(one=self._one),
            "agent": self._line(agent=_model_node(TokenModel())),
            "many": self._line(agent=_model_node(TokenModel(tokens=500))),
            "drip": self._line(agent=_model_node(TokenModel(tokens=200, delay_s=0.02))),
            "paced": self._line(agent=_model_node(paced)),
            "cut": self._line(agent=_model_node(TokenModel(tokens=5, fail_after=2))),
            "slow": self._line(one=self._one, nap=self._nap, after=self._after),
            "stubborn": self._line(nap=self._refuse_to_stop),
            "boom": self._line(one=self._one, bad=_boom),
            "secretive": self._line(bad=_secretive),
            "hitl": self._line(one=self._one, ask=_ask, after=self._after),
            "asking": self._line(ask=_ask, nap=self._nap),
            "parent": self._line(
                one=self._one, child=self._line(child_agent=_model_node(TokenModel(tokens=2)))
            ),
            "looking": self._line(look=_look),
            "custom": self._line(talk=_talk),
            "keeping": self._line(keep=_keep),
            "listening": self._line(nap=self._nap, hear=_hear),
            "heeding": self._line(hear=_await_word, nap=self._nap),
            "pondering": self._line(ponder=self._ponder),
            "asking-twice": _side_by_side(ask=_ask, ask_too=_ask),
            "asking-beside": _side_by_side(ask=_ask, one=self._one),
        }

    @property
    def sources(self) -> dict[str, FixedGraph]:
        """The graphs as factories for the runtime."""
        return {name: FixedGraph(graph) for name, graph in self._graphs.items()}

    @staticmethod
    def _line(**nodes: Node | Graph) -> Graph:
        """Return a graph of nodes in sequence."""
        builder = StateGraph(State)
        names = list(nodes)
        for name, node in nodes.items():
            builder.add_node(name, node)
        for before, after in zip([START, *names], [*names, END], strict=True):
            builder.add_edge(before, after)
        return builder.compile()

    def _count(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1

    async def _one(self, state: State) -> State:
        self._count("one")
        return {"n": state.get("n", 0) + 1}

    async def _after(self, state: State) -> State:
        self._count("after")
        return {"n": state.get("n", 0) + 100}

    async def _nap(self, state: State) -> State:
        self._count("nap")
        self.reached.set()
        try:
            await self.gate.wait()
        except BaseException:
            self.stopped.set()
            raise
        return {"title": "Rested"}

    async def _ponder(self, state: State, config: RunnableConfig) -> State:
        """Take injected messages, and wait."""
        heard = await _await_word(state, config)
        await self._nap(state)
        return heard

    async def _refuse_to_stop(self, state: State) -> State:
        """Suppress a cancellation, like a badly written tool."""
        self.reached.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            await self.gate.wait()
        return {}


def _model_node(model: BaseChatModel) -> Node:
    async def node(state: State) -> State:
        return {"messages": [await model.ainvoke(state.get("messages", []))]}

    return node


async def _boom(state: State) -> State:
    raise ValueError("boom: graph node failed")


async def _secretive(state: State) -> State:
    raise OSError("/etc/passwd: token=hunter2")


async def _ask(state: State) -> State:
    return {"answer": interrupt({"question": "approve?", "n": state.get("n", 0)})}


def _side_by_side(**nodes: Node) -> Graph:
    """Return a graph of nodes that run in parallel."""
    builder = StateGraph(State)
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(START, name)
    return builder.compile()


async def _look(state: State, config: RunnableConfig, runtime: Runtime[Any]) -> State:
    options = {k: v for k, v in config["configurable"].items() if not k.startswith("__")}
    return {
        "seen": {
            "configurable": options,
            "context": dict(runtime.context),
            "recursion_limit": config["recursion_limit"],
        }
    }


async def _talk(state: State, writer: StreamWriter) -> State:
    writer({"phase": "start"})
    writer({"phase": "end"})
    return {"n": 1}


async def _hear(state: State, config: RunnableConfig) -> State:
    return {"messages": take_steering_messages(config)}


async def _await_word(state: State, config: RunnableConfig) -> State:
    return {"messages": await eventually(lambda: take_steering_messages(config))}


async def _keep(state: State, runtime: Runtime[Any]) -> State:
    """Count the runs in the key-value store."""
    assert runtime.store is not None
    before = await runtime.store.aget(("runs",), "count")
    count = (before.value["n"] if before else 0) + 1
    await runtime.store.aput(("runs",), "count", {"n": count})
    return {"n": count}
