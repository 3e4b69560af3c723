"""Tracing to LangSmith and Langfuse: one trace per run, attached at the graph's root. Off by default."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import anyio
import anyio.to_thread
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableConfig

from agent.config.tracing import LangfuseConfig, LangSmithConfig, TracingConfig
from agent.errors import ObjectNotImportable, TracingMisconfigured
from agent.importer import import_object
from agent.langgraph_internals import langsmith_checks_inline
from agent.options import RunContext

log = logging.getLogger(__name__)

LANGFUSE_CLIENT = "langfuse:Langfuse"
"""The client class to import; its package must be installed."""

FLUSH_S = 3.0
"""Time limit for flushing traces at shutdown, seconds."""


HandlerFactory = Callable[[UUID], BaseCallbackHandler]
"""Returns the callback handler that traces a run, by the run's id."""


class Tracing:
    """The tracers of a process; see `open_tracing`."""

    def __init__(self, recorders: tuple[HandlerFactory, ...] = (), *, label: str = "") -> None:
        self._recorders = recorders
        self._label = label

    @property
    def is_enabled(self) -> bool:
        """Whether runs are traced."""
        return bool(self._recorders)

    def run_config(self, config: RunnableConfig, model_name: str) -> RunnableConfig:
        """Return the config that makes a run one trace, grouped by its thread."""
        caller = RunContext.from_runtime(config.get("context"), config)
        tags = [f"model:{model_name}", *([f"env:{self._label}"] if self._label else [])]
        ours: dict[str, Any] = {
            "langfuse_session_id": caller.thread_id,
            "langfuse_trace_name": caller.agent_name or "lead_agent",
            "langfuse_tags": tags,
        }
        if caller.user_id:
            ours["langfuse_user_id"] = caller.user_id
        run_id = config.get("run_id") or uuid4()
        return {
            "callbacks": [recorder(run_id) for recorder in self._recorders],
            "metadata": {**ours, **(config.get("metadata") or {})},
        }


@asynccontextmanager
async def open_tracing(
    asked: TracingConfig, run_tracer: HandlerFactory | None = None
) -> AsyncIterator[Tracing]:
    """Open the configured tracers. Leaving the block flushes them within `FLUSH_S`. `run_tracer` is the caller's own.

    Raises:
        TracingMisconfigured: A tracer is enabled but cannot be used.
    """
    recorders: list[HandlerFactory] = []
    flushes: list[Callable[[], None]] = []
    for service in (asked.langsmith, asked.langfuse):
        if service is not None:
            recorder, flush = await anyio.to_thread.run_sync(_open_tracer, service)
            recorders.append(recorder)
            flushes.append(flush)
    try:
        own = () if run_tracer is None else (run_tracer,)
        tracing = Tracing((*recorders, *own), label=asked.label)
        if recorders:
            yield tracing
        else:
            with langsmith_checks_inline():
                yield tracing
    finally:
        await _flush(flushes)


async def _flush(flushes: list[Callable[[], None]]) -> None:
    with anyio.move_on_after(FLUSH_S, shield=True) as bound:
        async with anyio.create_task_group() as tasks:
            for flush in flushes:
                # Abandon it at the time limit: the packages' own limits are much longer.
                tasks.start_soon(_in_thread, flush)
    if bound.cancelled_caught:
        log.warning("Some traces were not flushed within %s seconds", FLUSH_S)


async def _in_thread(work: Callable[[], None]) -> None:
    await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


def _open_tracer(
    service: LangSmithConfig | LangfuseConfig,
) -> tuple[HandlerFactory, Callable[[], None]]:
    """Return a handler factory and its flush function. Blocking: imports packages."""
    return (
        _open_langsmith(service)
        if isinstance(service, LangSmithConfig)
        else _open_langfuse(service)
    )


def _open_langsmith(service: LangSmithConfig) -> tuple[HandlerFactory, Callable[[], None]]:
    client = _construct(
        "LangSmith", "langsmith:Client", api_url=service.endpoint, api_key=service.api_key
    )
    tracer = _construct(
        "LangSmith",
        "langchain_core.tracers:LangChainTracer",
        client=client,
        project_name=service.project,
    )

    def flush() -> None:
        tracer.wait_for_futures()
        client.flush(timeout=FLUSH_S)
        client.close(timeout=FLUSH_S)

    return lambda _run_id: tracer, flush


def _open_langfuse(service: LangfuseConfig) -> tuple[HandlerFactory, Callable[[], None]]:
    client = _construct(
        "Langfuse",
        LANGFUSE_CLIENT,
        public_key=service.public_key,
        secret_key=service.secret_key,
        base_url=service.base_url,
        # A separate provider: the process-wide default one belongs to other users of OpenTelemetry.
        tracer_provider=_construct("Langfuse", "opentelemetry.sdk.trace:TracerProvider"),
    )

    def recorder(run_id: UUID) -> BaseCallbackHandler:
        # Set the trace id: if LangSmith's tracer is also on, some spans have parents unknown to Langfuse, and each of
        # these would start its own trace.
        handler: BaseCallbackHandler = _construct(
            "Langfuse",
            "langfuse.langchain:CallbackHandler",
            public_key=service.public_key,
            trace_context={"trace_id": run_id.hex},
        )
        return handler

    recorder(uuid4())  # so that errors appear now
    # Do not shut it down: the package keeps one client per key for the whole process.
    return recorder, client.flush


def _construct(service: str, use: str, **arguments: object) -> Any:  # noqa: ANN401 - classes of other packages
    try:
        made: Any = import_object(use)
        return made(**arguments)
    except ObjectNotImportable as error:
        raise TracingMisconfigured(f"{service} tracing is on: {error.user_message}") from error
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        # Do not show the error's text: it may quote a key.
        raise TracingMisconfigured(
            f"{service} tracing is on, but its client cannot be built ({type(error).__name__})"
        ) from None
