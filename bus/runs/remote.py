"""RemoteRuns: threads and runs of a LangGraph Server (`channels.langgraph_url`), with its errors mapped to ours.

It works with LangGraph's own servers, another Parley, and servers that refuse the newer options.
"""

import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

import anyio.lowlevel
import httpx
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError
from langgraph_sdk.schema import Checkpoint, StreamPart
from typing_extensions import override

from bus.bounded import BoundedDict
from bus.errors import (
    AgentThreadBusy,
    AgentUnavailable,
    RewindUnsupported,
    RunError,
    SteeringUnsupported,
)
from bus.runs.port import (
    FIND_LIMIT,
    Runs,
    StreamedPart,
    begin_again,
    error_of_status,
    find_active,
)
from bus.runs.requests import (
    RUN_OPTIONS,
    STREAM_MODES,
    AgentRunRequest,
    SteeringMessage,
    answers_message,
    human_message,
    run_body,
)
from bus.runs.rewinding import State, ThreadStatesApi, checkpoint_id_of, rewind_thread
from bus.runs.stream import STEERING, RunStarted, parse_part, values_of

log = logging.getLogger(__name__)

PLAIN_OPTIONS: Mapping[str, Any] = {"multitask_strategy": "reject"}
"""The options for a server that refuses `RUN_OPTIONS`, which is remembered for each thread."""

WORK_S = 0.001
"""How long to read events before letting other tasks run, seconds."""

PARTS_PER_LOOK = 8
"""Number of events to read between two checks of the clock."""

MAX_PLAIN_THREADS = 10_000
"""Maximum number of threads to remember as needing `PLAIN_OPTIONS`."""

MAX_OPENED = 1000
"""Maximum number of streams opened by starts that have no reader yet. One more closes the oldest."""

_Stream = AsyncGenerator[StreamPart, None]


class RemoteRuns(Runs):
    """Threads and runs of one LangGraph-compatible server."""

    def __init__(self, client: LangGraphClient) -> None:
        self._client = client
        self._plain_threads = BoundedDict[str, None](MAX_PLAIN_THREADS)
        # Some servers keep no events for later readers, so the first reader gets the stream that the start opened.
        self._opened: dict[str, _Stream] = {}

    @override
    async def create_thread(self, thread_id: str, metadata: Mapping[str, str]) -> None:
        try:
            await self._client.threads.create(
                thread_id=thread_id, metadata=dict(metadata), if_exists="do_nothing"
            )
        except ConflictError:
            return
        except httpx.HTTPError as error:
            raise run_error(error) from error

    @override
    async def start(self, request: AgentRunRequest) -> str:
        begun = await begin_again(self, request)
        return begun if isinstance(begun, str) else await self._start(begun)

    async def _start(self, request: AgentRunRequest) -> str:
        is_plain = request.thread_id in self._plain_threads
        stream = self._stream(request, PLAIN_OPTIONS if is_plain else RUN_OPTIONS)
        try:
            return await self._run_id(stream)
        except UnprocessableEntityError:
            if is_plain:
                del self._plain_threads[request.thread_id]
                raise RunError("The agent's server refused the run's options.") from None
            log.info("thread %s: the server refuses the newer run options", request.thread_id)
            self._plain_threads[request.thread_id] = None
        except httpx.HTTPError as error:
            raise run_error(error) from error
        return await self._start(request)

    @override
    async def events(
        self, thread_id: str, run_id: str, after: str = ""
    ) -> AsyncGenerator[StreamedPart, None]:
        opened = self._opened.pop(run_id, None)
        joined = self._client.runs.join_stream(
            thread_id, run_id, stream_mode=list[Any](STREAM_MODES), last_event_id=after or "-1"
        )
        count, resumed_at = 0, time.perf_counter()
        try:
            async with aclosing(cast("_Stream", joined if opened is None else opened)) as stream:
                async for raw in stream:
                    part = parse_part(raw.event, raw.data)
                    if part is not None:
                        yield StreamedPart(raw.id or "", part)
                    count += 1
                    if count % PARTS_PER_LOOK == 0 and time.perf_counter() - resumed_at > WORK_S:
                        await anyio.lowlevel.checkpoint()  # A whole answer may arrive at once.
                        resumed_at = time.perf_counter()
        except httpx.HTTPError as error:
            raise run_error(error) from error

    @override
    async def find_run(
        self, thread_id: str, run_id: str | None, message_id: str
    ) -> tuple[str, str] | None:
        try:
            for run in await self._client.runs.list(thread_id, limit=FIND_LIMIT):
                metadata, found = run.get("metadata") or {}, run["run_id"]
                if answers_message(metadata, found, message_id=message_id, known_id=run_id):
                    return found, str(run["status"])
        except httpx.HTTPError as error:
            raise run_error(error) from error
        return None

    @override
    async def get_status(self, thread_id: str, run_id: str) -> str:
        try:
            return str((await self._client.runs.get(thread_id, run_id))["status"])
        except httpx.HTTPError as error:
            raise run_error(error) from error

    @override
    async def get_state(self, thread_id: str) -> Mapping[str, Any]:
        return values_of(await _RemoteStates(self._client, thread_id).latest())

    @override
    async def cancel(self, thread_id: str, run_id: str, message_id: str = "") -> bool:
        run_id = run_id or await find_active(self, thread_id, message_id)
        if not run_id:
            return False
        if (opened := self._opened.pop(run_id, None)) is not None:
            await opened.aclose()
        try:
            await self._client.runs.cancel(thread_id, run_id, wait=False)
        except (NotFoundError, ConflictError):
            return False
        except httpx.HTTPError as error:
            raise run_error(error) from error
        return True

    @override
    async def inject(self, thread_id: str, run_id: str, steering: SteeringMessage) -> bool:
        message = human_message(steering, {STEERING: True})
        params = {"run_id": run_id, "messages": [message]}
        command = {"id": 1, "method": "input.inject", "params": params}
        try:
            answer: Any = await self._client.http.post(
                f"/threads/{thread_id}/commands", json=command
            )
        except httpx.HTTPError as error:
            meaning = run_error(error)
            raise (meaning if meaning.retryable else SteeringUnsupported()) from error
        if not isinstance(answer, dict) or answer.get("error") not in (None, "no_such_run"):
            raise SteeringUnsupported
        return answer.get("type") == "success"

    @override
    async def rewind(self, thread_id: str, message_id: str, *others: str) -> None:
        await rewind_thread(_RemoteStates(self._client, thread_id), message_id, *others)

    def _stream(self, request: AgentRunRequest, run_options: Mapping[str, Any]) -> _Stream:
        body = run_body(request)
        headers = {"traceparent": request.traceparent} if request.traceparent else None
        stream: Any = self._client.runs.stream(
            request.thread_id,
            request.assistant_id,
            on_disconnect="continue",
            headers=headers,
            **{name: value for name, value in body.items() if name == "input" or value is not None},
            **run_options,
        )
        return cast("_Stream", stream)

    async def _run_id(self, stream: _Stream) -> str:
        """Return the ID of the run of a stream. Keep the stream for the first reader. Raises HTTPError."""
        is_kept = False
        try:
            async for raw in stream:
                part = parse_part(raw.event, raw.data)
                if isinstance(part, RunStarted):
                    self._opened[part.run_id] = stream
                    is_kept = True
                    if len(self._opened) > MAX_OPENED:
                        oldest = next(iter(self._opened))
                        await self._opened.pop(oldest).aclose()
                    return part.run_id
        finally:
            if not is_kept:
                await stream.aclose()
        raise AgentUnavailable("The agent's server started no run.")


class _RemoteStates(ThreadStatesApi):
    """The states of a thread on the server."""

    def __init__(self, client: LangGraphClient, thread_id: str) -> None:
        self._threads, self._thread_id = client.threads, thread_id

    @override
    async def latest(self) -> State:
        return await self._get(None)

    @override
    async def at(self, checkpoint_id: str) -> State:
        try:
            return await self._get(checkpoint_id)
        except RunError as error:
            raise _unchanged(error) from error

    @override
    async def page(self, *, limit: int, before: State | None) -> Sequence[State]:
        # Some servers find a state only by its ID.
        place = before and (before.get("checkpoint") or checkpoint_id_of(before))
        try:
            page = await self._threads.get_history(
                self._thread_id, limit=limit, before=cast("Checkpoint | None", place)
            )
        except httpx.HTTPError as error:
            raise _unchanged(run_error(error)) from error
        return cast("Sequence[State]", page)

    @override
    async def update(
        self, values: Mapping[str, Any] | None, *, as_node: str, checkpoint_id: str = ""
    ) -> None:
        try:
            await self._threads.update_state(
                self._thread_id,
                cast("dict[str, Any] | None", values),
                as_node=as_node,
                checkpoint_id=checkpoint_id or None,
            )
        except httpx.HTTPError as error:
            raise _unchanged(run_error(error)) from error

    async def _get(self, checkpoint_id: str | None) -> State:
        try:
            state = await self._threads.get_state(self._thread_id, checkpoint_id=checkpoint_id)
        except httpx.HTTPError as error:
            raise run_error(error) from error
        return cast("State", state)


def run_error(error: httpx.HTTPError) -> RunError:
    """Convert an HTTP error to a RunError."""
    if isinstance(error, httpx.HTTPStatusError) and error.response is not None:
        code = error.response.status_code
        return error_of_status(
            code,
            refused=f"The agent's server refused the request ({code}).",
            unavailable=f"The agent's server answered {code}.",
        )
    return AgentUnavailable(f"The agent's server cannot be reached ({type(error).__name__}).")


def _unchanged(error: RunError) -> RunError:
    """Convert the error of a refused thread change. A missing route is a refusal, too."""
    if isinstance(error, AgentThreadBusy) or error.retryable:
        return error
    return RewindUnsupported()
