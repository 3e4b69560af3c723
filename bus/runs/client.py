"""LangGraph client of the bus: threads and runs of the agent's server, with its errors mapped.

The same code drives the embedded runtime, a LangGraph Server, and gateways that refuse the newer options.
"""

import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import anyio.lowlevel
import httpx
from langgraph_sdk._async.client import LangGraphClient
from langgraph_sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError
from langgraph_sdk.schema import Config, Context, StreamMode, StreamPart

from bus.bounded import BoundedDict
from bus.config import LEAD_AGENT
from bus.errors import (
    AgentThreadBusy,
    AgentThreadNotFound,
    AgentUnavailable,
    RunError,
    SteeringUnsupported,
)
from bus.messages import InboundMessage, Sender
from bus.runs.stream import (
    CHAT_TYPE,
    FRAMEWORK_NAMES,
    INTERRUPTS,
    SENDER,
    STEERING,
    Message,
    RunPart,
    RunStarted,
    interrupts_in,
    messages_in,
    parse_part,
)

log = logging.getLogger(__name__)


STREAM_MODES: tuple[StreamMode, ...] = ("messages-tuple", "values", "custom")

NEWER_OPTIONS: Mapping[str, Any] = {
    "durability": "sync",  # a turn cut off by a crash goes on from its last step (tools are not run again)
    "stream_resumable": True,
    "multitask_strategy": "enqueue",
}
"""Options that not every server takes. After a 422 the run is started without; that is remembered for its thread."""

PLAIN_OPTIONS: Mapping[str, Any] = {"multitask_strategy": "reject"}

MAX_NAME_CHARS = 64
"""The longest `name` of a message that OpenAI takes."""

_REFUSED_IN_NAMES = re.compile(r"[\s<|\\/>]+")
"""What OpenAI refuses in the `name` of a message, with an error for the whole request."""

ACTIVE_STATUSES = ("pending", "running")
"""What servers call a run that goes on."""

WORK_S = 0.001
"""How long parts are read in one go before other tasks get a turn, seconds."""

PARTS_PER_LOOK = 8
"""Parts that are read between two looks at the clock."""

MAX_PLAIN_THREADS = 10_000
"""Threads that are remembered as served by `PLAIN_OPTIONS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRunRequest:
    """A run to start.

    Attributes:
        inbound: The message that it answers: its sender and chat are named to the agent.
        text: The person's text; None = continue from the thread's last checkpoint.
        resume: The answer to what the thread is interrupted by, instead of `text`; None = none.
        files: The files that came with it, as the thread's uploads name them.
        message_id: The id that the human message gets, so that a restart finds it in the state.
        traceparent: The W3C trace context that the run belongs to; "" = none.
    """

    thread_id: str
    assistant_id: str
    message_id: str
    inbound: InboundMessage
    text: str | None
    resume: object = None
    files: Sequence[Mapping[str, Any]] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    traceparent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringMessage:
    """A message to inject into a run; the fields are those of `AgentRunRequest`."""

    assistant_id: str
    message_id: str
    inbound: InboundMessage
    text: str
    files: Sequence[Mapping[str, Any]] = ()


class RunClient:
    """Threads and runs of one LangGraph-compatible server. `threads` is the SDK's own client of them."""

    def __init__(self, client: LangGraphClient) -> None:
        self.threads = client.threads
        self._client = client
        self._plain_threads = BoundedDict[str, None](MAX_PLAIN_THREADS)

    async def create_thread(self, thread_id: str, metadata: Mapping[str, str]) -> None:
        """Make a thread; an existing one is left as it is. Raises RunError."""
        try:
            await self._client.threads.create(
                thread_id=thread_id, metadata=dict(metadata), if_exists="do_nothing"
            )
        except ConflictError:
            return
        except httpx.HTTPError as error:
            raise run_error(error) from error

    async def get_state(self, thread_id: str) -> Mapping[str, Any]:
        """Return the thread's present values, with what it is interrupted by; empty for a new thread.

        Raises RunError.
        """
        try:
            state = await self._client.threads.get_state(thread_id)
        except httpx.HTTPError as error:
            raise run_error(error) from error
        values = state.get("values") or {}
        if not isinstance(values, dict):
            return {}
        waits = interrupts_in(cast("Mapping[str, Any]", state))
        return {**values, INTERRUPTS: waits} if waits else values

    async def get_messages(self, thread_id: str) -> list[Message]:
        """Return the messages of a thread. Raises RunError."""
        return messages_in(await self.get_state(thread_id))

    async def find_run(
        self, thread_id: str, run_id: str | None, message_id: str
    ) -> tuple[str, str] | None:
        """Return (run id, status) of the run that answers `message_id`, newest first. Raises RunError."""
        try:
            for run in await self._client.runs.list(thread_id, limit=20):
                answers = (run.get("metadata") or {}).get("message_id")
                if answers == message_id or (answers is None and run["run_id"] == run_id):
                    return run["run_id"], str(run["status"])
        except httpx.HTTPError as error:
            raise run_error(error) from error
        return None

    async def get_status(self, thread_id: str, run_id: str) -> str:
        """Return a run's status. Raises RunError."""
        try:
            return str((await self._client.runs.get(thread_id, run_id))["status"])
        except httpx.HTTPError as error:
            raise run_error(error) from error

    async def stream(self, request: AgentRunRequest) -> AsyncGenerator[RunPart, None]:
        """Start a run and yield its parts until it is over. Raises RunError.

        The run goes on at the server when the reader goes away: whoever stops reading cancels it.
        """
        is_plain = request.thread_id in self._plain_threads
        try:
            async for part in self._start(request, PLAIN_OPTIONS if is_plain else NEWER_OPTIONS):
                yield part
        except UnprocessableEntityError:
            if is_plain:
                del self._plain_threads[request.thread_id]
                raise RunError("The agent's server refused the run's options.") from None
            log.info("thread %s: the server refuses the newer run options", request.thread_id)
            self._plain_threads[request.thread_id] = None
            async for part in self.stream(request):
                yield part

    async def join(self, thread_id: str, run_id: str) -> AsyncGenerator[RunPart, None]:
        """Yield the parts of a run that is under way, from its start. Raises RunError."""
        stream = self._client.runs.join_stream(
            thread_id, run_id, stream_mode=list(STREAM_MODES), last_event_id="-1"
        )
        yield RunStarted(run_id)
        async for part in translate_parts(stream):
            yield part

    async def cancel(self, thread_id: str, run_id: str) -> None:
        """End a run now; one that is over already is fine. Raises RunError."""
        try:
            await self._client.runs.cancel(thread_id, run_id, wait=False)
        except (NotFoundError, ConflictError):
            return
        except httpx.HTTPError as error:
            raise run_error(error) from error

    async def inject(self, thread_id: str, run_id: str, steering: SteeringMessage) -> bool:
        """Inject a message into a run; return whether the run accepts it. False = it accepts none now.

        Raises:
            SteeringUnsupported: the server does not do this.
            RunError: it cannot be reached.
        """
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

    def _start(
        self, request: AgentRunRequest, run_options: Mapping[str, Any]
    ) -> AsyncIterator[RunPart]:
        message = human_message(request, {})
        options: dict[str, Any] = dict(run_options)
        if request.resume is not None:
            options["command"] = {"resume": request.resume}
        if request.traceparent:
            options["headers"] = {"traceparent": request.traceparent}
        stream: AsyncIterator[StreamPart] = self._client.runs.stream(
            request.thread_id,
            request.assistant_id,
            input=cast(
                "Mapping[str, Any]", None if request.text is None else {"messages": [message]}
            ),
            stream_mode=list(STREAM_MODES),
            config=cast(Config, dict(request.config)),
            context=cast(Context, dict(request.context)),
            metadata={"message_id": request.message_id},
            on_disconnect="continue",
            **options,
        )
        return translate_parts(stream)


def human_message(
    request: AgentRunRequest | SteeringMessage, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a person's message as the wire has it, with who wrote it where only the bus writes.

    Graphs of one's own get `name` as well; the lead agent tells its model who speaks in the text.
    """
    author = request.inbound.author
    further: dict[str, Any] = {
        **extra,
        SENDER: {"id": author.user_id, "name": author.name},
        CHAT_TYPE: request.inbound.chat_type,
    }
    if request.files:
        further["files"] = [dict(file) for file in request.files]
    name = message_name(author) if request.assistant_id != LEAD_AGENT else ""
    return {
        "role": "human",
        "content": request.text,
        "id": request.message_id,
        **({"name": name} if name else {}),
        "additional_kwargs": further,
    }


def message_name(author: Sender) -> str:
    """Return the `name` of a person's message, as model servers take it: a graph hands its messages to one.

    >>> message_name(Sender(user_id="U1", name="Ann Lee")), message_name(Sender(user_id="U1"))
    ('Ann_Lee', 'U1')
    """
    name = _REFUSED_IN_NAMES.sub("_", author.name or author.user_id)[:MAX_NAME_CHARS]
    return "" if name in FRAMEWORK_NAMES else name  # it would pass for the framework's message


async def translate_parts(stream: AsyncIterator[StreamPart]) -> AsyncIterator[RunPart]:
    """Translate the SDK's parts and errors; let others work in between, as a whole answer may arrive at once.

    Raises RunError.
    """
    count, resumed_at = 0, time.perf_counter()
    try:
        async for raw in stream:
            part = parse_part(raw.event, raw.data)
            if part is not None:
                yield part
            count += 1
            if count % PARTS_PER_LOOK == 0 and time.perf_counter() - resumed_at > WORK_S:
                await anyio.lowlevel.checkpoint()
                resumed_at = time.perf_counter()
    except UnprocessableEntityError:
        raise
    except httpx.HTTPError as error:
        raise run_error(error) from error


def run_error(error: httpx.HTTPError) -> RunError:
    """Return what an error of the wire means."""
    if isinstance(error, ConflictError):
        return AgentThreadBusy()
    if isinstance(error, NotFoundError):
        return AgentThreadNotFound()
    if isinstance(error, httpx.HTTPStatusError) and error.response is not None:
        code = error.response.status_code
        if code < httpx.codes.INTERNAL_SERVER_ERROR and code != httpx.codes.TOO_MANY_REQUESTS:
            return RunError(f"The agent's server refused the request ({code}).")
        return AgentUnavailable(f"The agent's server answered {code}.")
    return AgentUnavailable(f"The agent's server cannot be reached ({type(error).__name__}).")
