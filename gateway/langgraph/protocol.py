"""LangChain's newer streaming protocol over HTTP: commands in, one stream of events of a thread out."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from agent.runtime.errors import RuntimeProblem
from agent.runtime.protocol import MODES, ProtocolEvent
from agent.runtime.runs import RunManager
from agent.runtime.stream import COALESCE_S
from gateway.langgraph.directory import resolved
from gateway.langgraph.requests import run_request
from gateway.langgraph.route import Refused, WireRoute, answer, checked_id, validated
from gateway.langgraph.services import LangGraphServices, services_of
from gateway.langgraph.wire import RunCreate
from gateway.sse import EventStream
from store.errors import Conflict, NotFound

router = APIRouter(tags=["streaming"], route_class=WireRoute)

CHANNELS = (
    "values",
    "updates",
    "messages",
    "tools",
    "custom",
    "lifecycle",
    "input",
    "tasks",
    "checkpoints",
)
Json = dict[str, Any]


class CommandFailed(Exception):
    """A command that cannot be carried out; the code is one of the protocol's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which events one connection is sent.

    Attributes:
        namespaces: Prefixes; an event must be under one of them.
        depth: How far below it; None = any.
    """

    channels: frozenset[str]
    namespaces: tuple[tuple[str, ...], ...] = ((),)
    depth: int | None = None

    def takes(self, event: ProtocolEvent) -> bool:
        """Return whether an event is sent."""
        named = event.name is not None and f"custom:{event.name}" in self.channels
        if event.channel not in self.channels and not named:
            return False
        place = event.namespace
        return any(
            place[: len(prefix)] == prefix
            and (self.depth is None or len(place) - len(prefix) <= self.depth)
            for prefix in self.namespaces
        )


@router.post("/threads/{thread_id}/commands", response_model=None)
async def command(request: Request, thread_id: str) -> Response:
    """Carry out one command: `run.start`, `input.respond` or `input.inject`."""
    services = services_of(request)
    wanted = checked_id(thread_id, "thread")
    body = await _json(request)
    number, method, params = body.get("id"), body.get("method"), body.get("params") or {}
    if not isinstance(number, int) or not isinstance(method, str) or not isinstance(params, dict):
        raise Refused(400, "A command has an id (a number), a method and params.")
    try:
        result = await _COMMANDS.get(method, _unknown)(services, wanted, params)
    except CommandFailed as error:
        return _failed(number, error.code, str(error) or f"Unknown protocol command: {method[:80]}")
    except (RuntimeProblem, NotFound, Conflict) as error:
        return _failed(number, "invalid_argument", str(error))
    except Refused as error:
        return _failed(number, "invalid_argument", error.detail)
    applied = services.sequences.of(wanted).last_seq
    return answer(
        {
            "type": "success",
            "id": number,
            "result": result,
            "meta": {"applied_through_seq": applied},
        }
    )


@router.post("/threads/{thread_id}/stream/events", response_model=None)
async def events(request: Request, thread_id: str) -> Response:
    """Stream the events of a thread that a connection asks for, until the client goes."""
    services = services_of(request)
    wanted = checked_id(thread_id, "thread")
    body = await _json(request)
    since = body.get("since") or 0
    if not isinstance(since, int) or since < 0:
        raise Refused(400, "since must be a sequence number.")
    return EventStream(
        _frames(services, wanted, _wanted(body), since),
        headers={},
        heartbeat_s=services.heartbeat_s,
    )


async def _frames(
    services: LangGraphServices, thread_id: str, wanted: Wanted, since: int
) -> AsyncGenerator[bytes]:
    runs = services.runs
    sequence = services.sequences.of(thread_id)
    with runs.feeds.following(thread_id) as following:
        while True:
            sequence.advance(runs.begun(thread_id))
            found = sequence.read(since)
            if found:
                since = found[-1].seq
                yield b"".join([_frame(event) for event in found if wanted.takes(event)])
            elif not await _more(runs, thread_id, following.next):
                return


async def _more(runs: RunManager, thread_id: str, begins: Callable[[], Awaitable[Any]]) -> bool:
    """Wait for the thread to say something; False = it will not any more."""
    speaking = next((live for live in runs.begun(thread_id) if not live.over), None)
    if speaking is None:
        return await begins() is not None
    if not speaking.log.closed:
        await speaking.log.changed()
    await anyio.sleep(COALESCE_S)
    return True


def _frame(event: ProtocolEvent) -> bytes:
    return b"event: %b\ndata: %b\nid: %d\n\n" % (event.method.encode(), event.data, event.seq)


def _wanted(body: Json) -> Wanted:
    channels = body.get("channels")
    if not isinstance(channels, list) or not channels:
        raise Refused(400, "channels is required and must be a non-empty array")
    unknown = [
        str(one) for one in channels if one not in CHANNELS and not str(one).startswith("custom:")
    ]
    if unknown:
        raise Refused(
            400,
            f"channels contains unsupported entries: {', '.join(unknown)[:200]}. "
            f"Allowed: {', '.join(CHANNELS)}, or any `custom:<name>`.",
        )
    namespaces = body.get("namespaces") or [[]]
    depth = body.get("depth")
    if not isinstance(namespaces, list) or not all(isinstance(one, list) for one in namespaces):
        raise Refused(400, "namespaces must be a list of lists")
    if depth is not None and (not isinstance(depth, int) or depth < 0):
        raise Refused(400, "depth must be a number from 0 on")
    return Wanted(
        channels=frozenset(channels),
        namespaces=tuple(tuple(str(step) for step in one) for one in namespaces),
        depth=depth,
    )


async def _start(services: LangGraphServices, thread_id: str, params: Json) -> Json:
    """Start a run; the thread is made where there is none."""
    body = {
        "assistant_id": params.get("assistant_id"),
        "input": params.get("input"),
        "config": params.get("config"),
        "metadata": params.get("metadata"),
        "multitask_strategy": params.get("multitask_strategy") or params.get("multitaskStrategy"),
    }
    return await _run(services, thread_id, body)


async def _respond(services: LangGraphServices, thread_id: str, params: Json) -> Json:
    """Answer what the graph asked, and go on."""
    thread = await services.threads.get(thread_id)
    answers = params.get("responses") or [params]
    if not isinstance(answers, list) or not all(isinstance(one, dict) for one in answers):
        raise CommandFailed("invalid_argument", "responses must be a list of objects.")
    asked = {one["id"] for listed in thread.interrupts.values() for one in listed}
    for one in answers:
        if one.get("interrupt_id") not in asked:
            raise CommandFailed("no_such_interrupt", "Nothing with this interrupt_id was asked.")
    last = await services.runs.rows.listing(thread_id, limit=1)
    before = last[0].kwargs if last else {}
    body = {
        "assistant_id": thread.metadata.get("graph_id"),
        "command": {
            "resume": {one["interrupt_id"]: one.get("response") for one in answers},
            "update": params.get("update"),
            "goto": params.get("goto"),
        },
        # Who answers goes on as whom and with what the run that asked was started.
        "config": params.get("config") or before.get("config"),
        "context": before.get("context"),
        "metadata": params.get("metadata"),
    }
    await _run(services, thread_id, body)
    return {}


async def _inject(services: LangGraphServices, thread_id: str, params: Json) -> Json:
    """Say something to a run that goes on."""
    said = params.get("messages") or params.get("message")
    if not said or not isinstance(said, list | dict):
        raise CommandFailed("invalid_argument", "messages must be a list of messages.")
    wanted = params.get("run_id")
    run_id = None if wanted is None else checked_id(str(wanted), "run")
    listening = services.runs.inject(thread_id, run_id, said)
    if listening is None:
        raise CommandFailed("no_such_run", "No run on this thread listens now.")
    return {"run_id": listening, "accepted": True}


async def _run(services: LangGraphServices, thread_id: str, body: Json) -> Json:
    streaming = {"stream_mode": MODES, "stream_subgraphs": True, "if_not_exists": "create"}
    request = run_request(validated(RunCreate, {**body, **streaming}), thread_id)
    live = await services.runs.start(await resolved(services, request))
    return {"run_id": live.run_id}


async def _unknown(_services: LangGraphServices, _thread_id: str, _params: Json) -> Json:
    raise CommandFailed("unknown_command", "")


_COMMANDS: dict[str, Callable[[LangGraphServices, str, Json], Awaitable[Json]]] = {
    "run.start": _start,
    "input.respond": _respond,
    "input.inject": _inject,
}


async def _json(request: Request) -> Json:
    try:
        body = orjson.loads(await request.body())
    except orjson.JSONDecodeError:
        raise Refused(400, "Invalid JSON in request body") from None
    if not isinstance(body, dict):
        raise Refused(400, "The request body must be an object")
    return body


def _failed(number: int, code: str, message: str) -> Response:
    return answer({"type": "error", "id": number, "error": code, "message": message})
