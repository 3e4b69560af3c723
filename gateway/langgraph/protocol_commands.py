"""Commands of LangChain's newer streaming protocol, for HTTP and WebSockets."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import HTTPException

from gateway.langgraph import protocol_state
from gateway.langgraph.assistant_lookup import last_assistant_id, resolve_assistant
from gateway.langgraph.protocol_state import ProtocolError
from gateway.langgraph.request_models import RunCreate
from gateway.langgraph.route import parse_id, validate_body
from gateway.langgraph.run_requests import build_run_request
from gateway.runtime.errors import RunRequestError
from gateway.runtime.protocol import PROTOCOL_STREAM_MODES
from gateway.services import Services
from store.errors import RowConflict, RowNotFound, ValueRefused

LATEST = "-"
"""Stands for the ID of the run that produced a thread's newest events."""

Json = dict[str, Any]
Handler = Callable[[Services, str, Json], Awaitable[Json]]


async def execute_command(
    services: Services, thread_id: str, body: object, further: Mapping[str, Handler]
) -> Json:
    """Execute one command and return the reply, which may be a protocol error.

    Args:
        services: The running services.
        thread_id: The thread; a valid ID.
        body: The command.
        further: Handlers of additional commands of this transport.

    Raises:
        HTTPException: 400 if the body is not a command.
    """
    if not isinstance(body, dict):
        raise HTTPException(400, "The request body must be an object")
    number, method, params = body.get("id"), body.get("method"), body.get("params") or {}
    if isinstance(number, bool) or not isinstance(number, int) or not isinstance(method, str):
        raise HTTPException(400, "A command has an id (a number), a method and params.")
    if not isinstance(params, dict):
        raise HTTPException(400, "The params of a command are an object.")
    handler = further.get(method) or _COMMANDS.get(method)
    if handler is None:
        return error_reply(number, "unknown_command", f"Unknown protocol command: {method[:80]}")
    try:
        result = await handler(services, thread_id, params)
    except ProtocolError as error:
        return error_reply(number, error.code, str(error))
    except (RunRequestError, RowNotFound, RowConflict, ValueRefused) as error:
        return error_reply(number, "invalid_argument", str(error))
    except HTTPException as error:
        return error_reply(number, "invalid_argument", error.detail)
    applied = services.event_logs.for_thread(thread_id).last_seq
    return {
        "type": "success",
        "id": number,
        "result": result,
        "meta": {"applied_through_seq": applied},
    }


def error_reply(number: int | None, code: str, message: str) -> Json:
    """Return an error reply of the protocol."""
    return {"type": "error", "id": number, "error": code, "message": message}


async def _get_tree(services: Services, thread_id: str, params: Json) -> Json:
    """Return the graphs of a run, by default of the latest run."""
    wanted = params.get("run_id")
    if wanted is not None:
        wanted = parse_id(str(wanted), "run")
    begun = await services.runs.watchers.runs_since(thread_id, wanted or LATEST)
    chosen = [live for live in begun if wanted in {None, live.run_id}]
    if not chosen:
        raise ProtocolError("no_such_run", "The thread has no run with available events.")
    sequence = services.event_logs.for_thread(thread_id)
    sequence.advance(begun)
    tree = sequence.tree(chosen[-1].run_id)
    if tree is None:
        raise ProtocolError("no_such_run", "The run was canceled before it started.")
    return {"tree": tree.to_wire()}


async def _fork(services: Services, thread_id: str, params: Json) -> Json:
    """Start a run from a past checkpoint of the thread."""
    thread = await services.runs.threads.get(thread_id)
    checkpoint_id = await protocol_state.get_checkpoint_id(services, thread, params)
    body = {
        "assistant_id": await last_assistant_id(services, thread),
        "input": params.get("input"),
        "config": params.get("config"),
        "checkpoint_id": checkpoint_id,
    }
    return {**await _create_run(services, thread_id, body), "thread_id": thread_id}


async def _subscribe(_services: Services, _thread_id: str, _params: Json) -> Json:
    raise ProtocolError(
        "not_supported",
        "Subscriptions require a WebSocket; over HTTP, use POST .../stream/events.",
    )


async def _start_run(services: Services, thread_id: str, params: Json) -> Json:
    """Start a run. Creates the thread if necessary.

    If the thread has pending interrupts, the input answers them, as on LangGraph Server. RemoteGraph sends
    `Command(resume=...)` like this.
    """
    given = params.get("input")
    is_answer = given is not None and await _has_pending_interrupts(services, thread_id)
    body = {
        "assistant_id": params.get("assistant_id"),
        "input": None if is_answer else given,
        "command": {"resume": given} if is_answer else None,
        "config": params.get("config"),
        "metadata": params.get("metadata"),
        "multitask_strategy": params.get("multitask_strategy") or params.get("multitaskStrategy"),
    }
    return await _create_run(services, thread_id, body)


async def _has_pending_interrupts(services: Services, thread_id: str) -> bool:
    try:
        thread = await services.runs.threads.get(thread_id)
    except RowNotFound:
        return False
    return bool(thread.interrupts) and thread.status != "busy"


async def _respond(services: Services, thread_id: str, params: Json) -> Json:
    """Answer interrupts and resume the run."""
    thread = await services.runs.threads.get(thread_id)
    answers = params.get("responses") or [params]
    if not isinstance(answers, list) or not all(isinstance(one, dict) for one in answers):
        raise ProtocolError("invalid_argument", "responses must be a list of objects.")
    asked = {one["id"] for listed in thread.interrupts.values() for one in listed}
    for one in answers:
        if one.get("interrupt_id") not in asked:
            raise ProtocolError("no_such_interrupt", "No pending interrupt has this interrupt_id.")
    last = await services.runs.rows.list_by_thread(thread_id, limit=1)
    before = last[0].kwargs if last else {}
    body = {
        "assistant_id": await last_assistant_id(services, thread),
        "command": {
            "resume": {one["interrupt_id"]: one.get("response") for one in answers},
            "update": params.get("update"),
            "goto": params.get("goto"),
        },
        # The run resumes with its original config and context.
        "config": params.get("config") or before.get("config"),
        "context": before.get("context"),
        "metadata": params.get("metadata"),
    }
    await _create_run(services, thread_id, body)
    return {}


async def _inject_input(services: Services, thread_id: str, params: Json) -> Json:
    """Send messages to an active run."""
    said = params.get("messages") or params.get("message")
    if not said or not isinstance(said, list | dict):
        raise ProtocolError("invalid_argument", "messages must be a list of messages.")
    wanted = params.get("run_id")
    run_id = None if wanted is None else parse_id(str(wanted), "run")
    listening = await services.cluster_runs.inject(thread_id, run_id, said)
    if listening is None:
        raise ProtocolError("no_such_run", "No active run on this thread accepts messages.")
    return {"run_id": listening, "accepted": True}


async def _create_run(services: Services, thread_id: str, body: Json) -> Json:
    streaming = {
        "stream_mode": PROTOCOL_STREAM_MODES,
        "stream_subgraphs": True,
        "if_not_exists": "create",
    }
    request = build_run_request(validate_body(RunCreate, {**body, **streaming}), thread_id)
    live = await services.cluster_runs.start(await resolve_assistant(services, request))
    return {"run_id": live.run_id}


_COMMANDS: Mapping[str, Handler] = {
    "run.start": _start_run,
    "input.respond": _respond,
    "input.inject": _inject_input,
    "agent.getTree": _get_tree,
    "state.get": protocol_state.get_state,
    "state.listCheckpoints": protocol_state.list_checkpoints,
    "state.fork": _fork,
    "subscription.subscribe": _subscribe,
    "subscription.unsubscribe": _subscribe,
    "subscription.reconnect": _subscribe,
}
