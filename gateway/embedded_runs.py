"""EmbeddedRuns: runs of the bus that this process executes.

It calls the same functions as the routes of the LangGraph API, without HTTP requests and event streams.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, TypeVar

import orjson
from fastapi import HTTPException
from typing_extensions import override

from agent.trace_context import TRACEPARENT
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
    AgentRunRequest,
    SteeringMessage,
    answers_message,
    human_message,
    run_body,
)
from bus.runs.rewinding import State, ThreadStatesApi, checkpoint_id_of, rewind_thread
from bus.runs.stream import (
    STEERING,
    RunEnded,
    StateSnapshot,
    parse_part,
    values_of,
)
from gateway.errors import STATUS_BY_ERROR, describe_error
from gateway.langgraph.request_models import RunCreate
from gateway.langgraph.route import parse_json, validate_body
from gateway.langgraph.runs import resolve_run
from gateway.langgraph.views import state_view
from gateway.runtime.errors import InvalidRequest, UnknownAssistant
from gateway.runtime.lifecycle import is_final
from gateway.runtime.serialization import dumps
from gateway.runtime.thread_states import ThreadStateUpdate
from gateway.services import Services
from gateway.sse import parse_last_event_id
from store.errors import RowConflict, RowNotFound
from store.runs import RunExists, ThreadAtOtherNode

_REFUSALS: tuple[type[Exception], ...] = (HTTPException, *STATUS_BY_ERROR)

T = TypeVar("T")


class EmbeddedRuns(Runs):
    """The runs of this process.

    No other node restarts these runs. If their node stops, the bus continues the turn. A thread with a run at another
    node is busy.

    Args:
        services: Returns the services of the gateway.
    """

    def __init__(self, services: Callable[[], Services]) -> None:
        self._services = services

    @override
    async def create_thread(self, thread_id: str, metadata: Mapping[str, str]) -> None:
        runs = self._services().runs
        try:
            await runs.threads.create(thread_id, dict(metadata), now=runs.now())
        except RowConflict:
            return
        except _REFUSALS as error:
            raise _run_error(error) from error

    @override
    async def start(self, request: AgentRunRequest) -> str:
        begun = await begin_again(self, request)
        return begun if isinstance(begun, str) else await self._start(begun)

    async def _start(self, request: AgentRunRequest) -> str:
        body = {**run_body(request), **RUN_OPTIONS, "assistant_id": request.assistant_id}
        services = self._services()
        token = TRACEPARENT.set(request.traceparent)
        try:
            # As over HTTP, the run must not share objects with its caller.
            checked = validate_body(RunCreate, parse_json(_encoded(body)))
            run = await resolve_run(services, request.thread_id, checked, restartable=False)
            live = await services.runs.start(replace(run, start_key=request.message_id))
        except RunExists as error:
            return error.run_id
        except ThreadAtOtherNode as error:
            await _translated(services.runs.abandoned_runs.take_of(request.thread_id, ""))
            raise AgentThreadBusy from error
        except _REFUSALS as error:
            raise _run_error(error) from error
        finally:
            TRACEPARENT.reset(token)
        return live.run_id

    @override
    async def events(
        self, thread_id: str, run_id: str, after: str = ""
    ) -> AsyncGenerator[StreamedPart, None]:
        services = self._services()
        live = services.runs.find(thread_id, run_id)
        if live is None:
            for event in await self._ended_events(thread_id, run_id):
                yield event
            return
        reader = live.log.subscribe(parse_last_event_id(after))
        while (read := await reader.receive()) is not None:
            for one in read:
                part = parse_part(one.name, orjson.loads(one.data))
                if part is not None:
                    yield StreamedPart(str(one.id), part)

    @override
    async def find_run(
        self, thread_id: str, run_id: str | None, message_id: str
    ) -> tuple[str, str] | None:
        rows = self._services().runs.rows
        for run in await _translated(rows.list_by_thread(thread_id, limit=FIND_LIMIT)):
            if answers_message(run.metadata, run.run_id, message_id=message_id, known_id=run_id):
                return run.run_id, run.status
        return None

    @override
    async def get_status(self, thread_id: str, run_id: str) -> str:
        return (await _translated(self._services().runs.get(thread_id, run_id))).status

    @override
    async def get_state(self, thread_id: str) -> Mapping[str, Any]:
        return values_of(await _EmbeddedStates(self._services(), thread_id).latest())

    @override
    async def cancel(self, thread_id: str, run_id: str, message_id: str = "") -> bool:
        run_id = run_id or await find_active(self, thread_id, message_id)
        try:
            await self._services().runs.cancel(thread_id, run_id)
        except RowNotFound:
            return False
        except _REFUSALS as error:
            raise _run_error(error) from error
        return True

    @override
    async def inject(self, thread_id: str, run_id: str, steering: SteeringMessage) -> bool:
        message = orjson.loads(_encoded(human_message(steering, {STEERING: True})))
        try:
            return await self._services().runs.inject(thread_id, run_id, [message]) is not None
        except InvalidRequest as error:
            raise SteeringUnsupported from error
        except _REFUSALS as error:
            raise _run_error(error) from error

    @override
    async def rewind(self, thread_id: str, message_id: str, *others: str) -> None:
        services = self._services()
        await rewind_thread(_EmbeddedStates(services, thread_id), message_id, *others)
        await services.agent_services.memory.forget_undone(thread_id, message_id, *others)

    async def _ended_events(self, thread_id: str, run_id: str) -> Sequence[StreamedPart]:
        """Return the state and the end of a run whose events are gone. Raises AgentUnavailable if it has not ended."""
        run = await _translated(self._services().runs.get(thread_id, run_id))
        if not is_final(run.status):
            await _translated(self._services().runs.abandoned_runs.take_of(thread_id, run_id))
            raise AgentUnavailable("The run is at another node.")
        values = await self.get_state(thread_id)
        return [StreamedPart("", StateSnapshot(values)), StreamedPart("", RunEnded(run.status))]


class _EmbeddedStates(ThreadStatesApi):
    """The states of a thread."""

    def __init__(self, services: Services, thread_id: str) -> None:
        self._services, self._thread_id = services, thread_id

    @override
    async def latest(self) -> State:
        return await self._get({})

    @override
    async def at(self, checkpoint_id: str) -> State:
        return await self._get({"checkpoint_id": checkpoint_id})

    @override
    async def page(self, *, limit: int, before: State | None) -> Sequence[State]:
        earlier = None if before is None else {"checkpoint_id": checkpoint_id_of(before)}
        try:
            thread = await self._services.runs.threads.get(self._thread_id)
            found = self._services.states.history(
                thread, limit=limit, before=earlier, metadata=None, checkpoint={}
            )
            return [_json(state_view(state)) async for state in found]
        except _REFUSALS as error:
            raise _run_error(error) from error

    @override
    async def update(
        self, values: Mapping[str, Any] | None, *, as_node: str, checkpoint_id: str = ""
    ) -> None:
        where = {"checkpoint_id": checkpoint_id} if checkpoint_id else {}
        change = ThreadStateUpdate(values=values, as_node=as_node, checkpoint=where)
        try:
            thread = await self._services.runs.threads.get(self._thread_id)
            await self._services.states.update(thread, change)
        except InvalidRequest as error:
            raise RewindUnsupported from error
        except _REFUSALS as error:
            raise _run_error(error) from error

    async def _get(self, checkpoint: Mapping[str, Any]) -> State:
        try:
            thread = await self._services.runs.threads.get(self._thread_id)
            state = await self._services.states.snapshot(thread, checkpoint)
        except _REFUSALS as error:
            raise _run_error(error) from error
        return _json(state_view(state))


def _encoded(value: Mapping[str, Any]) -> bytes:
    """Return JSON. Raises RunError if a channel's configuration has a value that JSON cannot represent."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise RunError(f"The request of a run cannot be encoded as JSON: {error}") from error


def _json(view: Mapping[str, Any]) -> State:
    """Return a view as plain JSON that shares no objects with it."""
    state: State = orjson.loads(dumps(view))
    return state


async def _translated(work: Awaitable[T]) -> T:
    try:
        return await work
    except _REFUSALS as error:
        raise _run_error(error) from error


def _run_error(error: Exception) -> RunError:
    """Convert an error of the runtime to an error of the run port."""
    if isinstance(error, HTTPException):
        status, text = error.status_code, str(error.detail)
    elif isinstance(error, UnknownAssistant):  # it must not look like a missing thread (404)
        status, text = HTTPStatus.BAD_REQUEST, str(error)
    else:
        status, text = describe_error(error)
    return error_of_status(status, refused=text, unavailable=text)
