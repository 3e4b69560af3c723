"""ParleyClient: the client for synchronous programs. Each method blocks until it has a result."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import anyio
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.streams.memory import MemoryObjectReceiveStream
from langgraph.checkpoint.base import BaseCheckpointSaver
from typing_extensions import Unpack

from agent.client.async_client import AsyncParleyClient, open_client
from agent.client.events import StreamEvent
from agent.client.options import ClientOptions, TurnOptions
from agent.config import AgentConfig
from agent.errors import ClientClosed
from agent.services import AgentSetup
from store.config import StoreConfig

AHEAD = 256
"""Number of events to buffer for a slow reader. When the buffer is full, the turn waits."""

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncParleyClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["ParleyClient", P], T]:
    """Return a blocking version of a method of the asynchronous client."""

    @wraps(method)
    def wait(self: "ParleyClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run_blocking(partial(method, self._client, *args, **kwargs))

    return wait


class ParleyClient:
    """The agent in this process, on its own worker thread. Use it as a context manager.

        with ParleyClient() as client:
            client.chat("Good morning")

    Methods are thread-safe. This client blocks the event loop, so asynchronous programs should use `open_client`; its
    client has the same methods.

    Args:
        config: The sections of config.yaml as values, or a complete setup; None = the defaults, with the demo model.
            `gateway.configured_client.client_from` reads the file.
        home: The data folder; None = `.parley` in the working directory.
        checkpointer: Stores thread state; None = the data folder.
        database: The `database` section; None = its defaults.
        options: See `ClientOptions`.
    """

    def __init__(
        self,
        config: AgentSetup | AgentConfig | Mapping[str, Any] | None = None,
        *,
        home: Path | str | None = None,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        database: StoreConfig | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._open = partial(
            open_client,
            config,
            home=home,
            checkpointer=checkpointer,
            database=database,
            **options,
        )
        self._held: ExitStack | None = None
        self._running: tuple[BlockingPortal, AsyncParleyClient] | None = None
        self._unread: set[MemoryObjectReceiveStream[StreamEvent]] = set()

    def __enter__(self) -> Self:
        """Open the agent. Raises the errors of `open_client`, and RuntimeError if it is already open."""
        if self._held is not None:
            raise RuntimeError("the client is already open")
        with ExitStack() as stack:
            loop = stack.enter_context(start_blocking_portal(name="parley-client"))
            client = stack.enter_context(loop.wrap_async_context_manager(self._open()))
            calls = stack.enter_context(loop.wrap_async_context_manager(_open_portal()))
            self._held = stack.pop_all()
        self._running = (calls, client)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Cancel active turns and close the agent."""
        held, self._held, self._running = self._held, None, None
        if held is not None:
            # Do not pass the error on, because the task groups inside would wrap it.
            held.close()
        while self._unread:
            self._unread.pop().close()

    def stream(
        self, message: str, thread_id: str | None = None, **options: Unpack[TurnOptions]
    ) -> Iterator[StreamEvent]:
        """Send a message and yield the turn's events. The last one is `end`. See `ConversationsApi.stream`.

        Leaving the loop early stops the turn. Finished steps are kept.
        """
        calls, client = self._require_open()
        turn, receive = calls.start_task(
            _forward_events, client.stream(message, thread_id, **options)
        )
        self._unread.add(receive)
        try:
            while events := self._run_blocking(partial(_receive_available, receive)):
                yield from events
            turn.result()
        finally:
            turn.cancel()
            if receive in self._unread:
                self._unread.discard(receive)
                calls.call(receive.aclose)

    chat = _blocking(AsyncParleyClient.chat)
    list_threads = _blocking(AsyncParleyClient.list_threads)
    get_thread = _blocking(AsyncParleyClient.get_thread)
    delete_thread = _blocking(AsyncParleyClient.delete_thread)
    reset_agent = _blocking(AsyncParleyClient.reset_agent)

    list_models = _blocking(AsyncParleyClient.list_models)
    get_model = _blocking(AsyncParleyClient.get_model)
    suggest = _blocking(AsyncParleyClient.suggest)

    list_skills = _blocking(AsyncParleyClient.list_skills)
    get_skill = _blocking(AsyncParleyClient.get_skill)
    update_skill = _blocking(AsyncParleyClient.update_skill)
    install_skill = _blocking(AsyncParleyClient.install_skill)
    list_custom_skills = _blocking(AsyncParleyClient.list_custom_skills)
    get_custom_skill = _blocking(AsyncParleyClient.get_custom_skill)
    update_custom_skill = _blocking(AsyncParleyClient.update_custom_skill)
    delete_custom_skill = _blocking(AsyncParleyClient.delete_custom_skill)
    get_custom_skill_history = _blocking(AsyncParleyClient.get_custom_skill_history)
    rollback_custom_skill = _blocking(AsyncParleyClient.rollback_custom_skill)

    get_mcp_config = _blocking(AsyncParleyClient.get_mcp_config)
    update_mcp_config = _blocking(AsyncParleyClient.update_mcp_config)
    switch_mcp_server = _blocking(AsyncParleyClient.switch_mcp_server)
    get_mcp_status = _blocking(AsyncParleyClient.get_mcp_status)

    get_memory = _blocking(AsyncParleyClient.get_memory)
    export_memory = _blocking(AsyncParleyClient.export_memory)
    import_memory = _blocking(AsyncParleyClient.import_memory)
    reload_memory = _blocking(AsyncParleyClient.reload_memory)
    clear_memory = _blocking(AsyncParleyClient.clear_memory)
    create_memory_fact = _blocking(AsyncParleyClient.create_memory_fact)
    update_memory_fact = _blocking(AsyncParleyClient.update_memory_fact)
    delete_memory_fact = _blocking(AsyncParleyClient.delete_memory_fact)
    get_memory_config = _blocking(AsyncParleyClient.get_memory_config)
    get_memory_status = _blocking(AsyncParleyClient.get_memory_status)
    list_memory_scopes = _blocking(AsyncParleyClient.list_memory_scopes)

    upload_files = _blocking(AsyncParleyClient.upload_files)
    list_uploads = _blocking(AsyncParleyClient.list_uploads)
    get_upload_limits = _blocking(AsyncParleyClient.get_upload_limits)
    delete_upload = _blocking(AsyncParleyClient.delete_upload)
    get_artifact = _blocking(AsyncParleyClient.get_artifact)

    list_agents = _blocking(AsyncParleyClient.list_agents)
    get_agent = _blocking(AsyncParleyClient.get_agent)
    create_agent = _blocking(AsyncParleyClient.create_agent)
    update_agent = _blocking(AsyncParleyClient.update_agent)
    delete_agent = _blocking(AsyncParleyClient.delete_agent)
    check_agent_name = _blocking(AsyncParleyClient.check_agent_name)
    get_user_profile = _blocking(AsyncParleyClient.get_user_profile)
    update_user_profile = _blocking(AsyncParleyClient.update_user_profile)

    @property
    def _client(self) -> AsyncParleyClient:
        return self._require_open()[1]

    def _require_open(self) -> tuple[BlockingPortal, AsyncParleyClient]:
        if self._running is None:
            raise ClientClosed
        return self._running

    def _run_blocking(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for work on the event loop. Cancel the work if the wait is interrupted, for example by Ctrl-C."""
        answer: Future[T] = self._require_open()[0].start_task_soon(work)
        try:
            return answer.result()
        finally:
            answer.cancel()


@asynccontextmanager
async def _open_portal() -> AsyncIterator[BlockingPortal]:
    """Accept calls from other threads of the process. Leaving the block cancels active calls and awaits their end."""
    async with BlockingPortal() as calls:
        try:
            yield calls
        finally:
            await calls.stop(cancel_remaining=True)


async def _forward_events(
    events: AsyncGenerator[StreamEvent],
    *,
    task_status: TaskStatus[MemoryObjectReceiveStream[StreamEvent]],
) -> None:
    """Run a turn in one task, as its graph requires, and forward its events."""
    send, receive = anyio.create_memory_object_stream[StreamEvent](AHEAD)
    async with send, aclosing(events):
        task_status.started(receive)
        async for event in events:
            await send.send(event)


async def _receive_available(receive: MemoryObjectReceiveStream[StreamEvent]) -> list[StreamEvent]:
    """Return all available events, at least one, with a single thread switch. Empty at the end."""
    try:
        events = [await receive.receive()]
    except anyio.EndOfStream:
        return []
    with suppress(anyio.WouldBlock, anyio.EndOfStream):
        while True:
            events.append(receive.receive_nowait())
    return events
