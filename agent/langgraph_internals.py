"""All code that depends on internals of LangGraph, LangChain and LangSmith.

None of this is public API. tests/agent/test_langgraph_internals.py fails if a new version changes it.
"""

import asyncio
import contextvars
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import langsmith
from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager, Callbacks
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers._streaming import (
    _StreamingCallbackHandler,
    _V2StreamingCallbackHandler,
)
from langgraph._internal._constants import CONFIG_KEY_CHECKPOINTER

__all__ = [
    "can_interrupt",
    "detached_context",
    "langsmith_checks_inline",
    "listening_model",
    "model_with_message_id",
    "step_tasks",
    "without_stream_handlers",
]

# ---- interrupts --------------------------------------------------------------------------------


def can_interrupt(config: Mapping[str, Any]) -> bool:
    """Return whether a run can pause for a question and resume with the answer, which requires checkpoints."""
    return bool((config.get("configurable") or {}).get(CONFIG_KEY_CHECKPOINTER))


# ---- the tasks of a run's steps ----------------------------------------------------------------

_STEP_COROUTINES = frozenset({"ainvoke", "arun_with_retry", "_consume_aiter"})
"""Names of the coroutines in which LangGraph runs a step. Coroutines that write checkpoints have other names."""

_WRAPPED_IN = ("output", "it")
"""Local variables of a wrapping coroutine that hold a step's generator, in runs that stream `events`."""

_MAX_DEPTH = 4


def step_tasks(run_id: str) -> list[asyncio.Task[Any]]:
    """Return the tasks that run a run's steps (LangGraph: nodes).

    LangGraph has no handle for them, so they are recognized by their config argument. This looks at all tasks of the
    process, so call it only for a run that ignores its cancellation.
    """
    found = []
    for task in asyncio.all_tasks():
        coroutine = task.get_coro()
        if not inspect.iscoroutine(coroutine) or coroutine.__name__ not in _STEP_COROUTINES:
            continue
        config = _config_in(inspect.getcoroutinelocals(coroutine), _MAX_DEPTH)
        if (config.get("configurable") or {}).get("run_id") == run_id:
            found.append(task)
    return found


def _config_in(variables: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
    """Return the config from local variables, or from the local variables of a generator in them."""
    config = variables.get("config") or getattr(variables.get("task"), "config", None)
    if config or not depth:
        return config or {}
    wrapped = (variables.get(name) for name in _WRAPPED_IN)
    generator = next((one for one in wrapped if inspect.isasyncgen(one)), None)
    frame = generator.ag_frame if generator is not None else None
    return _config_in(frame.f_locals, depth - 1) if frame is not None else {}


# ---- running a graph apart from the run that started it -----------------------------------------


def detached_context() -> contextvars.Context:
    """Return a copy of the current context in which LangChain sees no parent run."""
    context = contextvars.copy_context()
    context.run(var_child_runnable_config.set, None)
    return context


def without_stream_handlers(callbacks: Callbacks) -> Callbacks:
    """Return a run's callbacks without those that feed its stream. Tracers and counters stay."""
    if not isinstance(callbacks, BaseCallbackManager):
        return None
    manager = callbacks.copy()
    for handler in [*manager.handlers, *manager.inheritable_handlers]:
        if isinstance(handler, _StreamingCallbackHandler | _V2StreamingCallbackHandler):
            manager.remove_handler(handler)
    return manager


# ---- cheaper copies ------------------------------------------------------------------------------


def listening_model(model: BaseChatModel, listener: BaseCallbackHandler) -> BaseChatModel:
    """Return a copy of a model with one more callback.

    LangChain passes callbacks a description of the model, which it creates once per object. Creating it before copying
    shares it among all copies, instead of creating it for each call.
    """
    getattr(model, "_serialized", None)
    given = model.callbacks
    if given is None or isinstance(given, list):
        return model.model_copy(update={"callbacks": [*(given or ()), listener]})
    manager = given.copy()
    manager.add_handler(listener, inherit=False)
    return model.model_copy(update={"callbacks": manager})


def model_with_message_id(model: BaseChatModel, message_id: str) -> BaseChatModel:
    """Return a copy of a model whose streamed answers have this id.

    LangChain chooses the id of each answer and has no option to set it. Clients join pieces that have the same id.
    """
    stream = model._astream  # noqa: SLF001 - what subclasses of BaseChatModel define

    async def stream_with_id(*args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:  # noqa: ANN401
        message: BaseMessageChunk | None = None
        async for chunk in stream(*args, **kwargs):
            message = chunk.message
            message.id = message_id
            yield chunk
        if isinstance(message, AIMessageChunk) and message.chunk_position is None:
            # Otherwise LangChain adds this chunk, with an id of its own.
            empty: str | list[str | dict[str, Any]] = "" if isinstance(message.content, str) else []
            last = AIMessageChunk(content=empty, id=message_id, chunk_position="last")
            yield ChatGenerationChunk(message=last)

    copied = model.model_copy()
    # Pydantic allows assignments to fields only.
    object.__setattr__(copied, "_astream", stream_with_id)
    return copied


# ---- LangSmith's worker threads ----------------------------------------------------------------


@contextmanager
def langsmith_checks_inline() -> Iterator[None]:
    """Make LangSmith check on the event loop whether tracing is on. The setting is process-wide.

    LangChain checks before and after every middleware of every call. By default, each check
    switches to a worker thread: 40 switches and a third of the CPU of a turn with one tool call (measured).
    """
    langsmith.set_runtime_overrides(aio_to_thread=_run_inline)
    try:
        yield
    finally:
        langsmith.set_runtime_overrides()


async def _run_inline(
    _default: object,
    context: contextvars.Context,
    work: Callable[..., Any],
    /,
    *args: Any,  # noqa: ANN401 - the arguments of LangSmith's functions
    **kwargs: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    return context.run(work, *args, **kwargs)
