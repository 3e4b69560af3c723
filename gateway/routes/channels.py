"""/api/channels: state of each channel, and the rows of inbox, conversations and pairings."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query, Response
from pydantic import BaseModel

from bus.config import ChannelPolicy
from bus.messages import decode_inbound
from bus.platform import ChannelHealth, ConnectionState
from gateway.dependencies import BusDep, ServicesDep
from gateway.openapi import error_responses
from gateway.routes.places import place_names
from gateway.routes.views import conversation_view, iso_time, pairing_view
from gateway.services import Services
from store.inbox import InboxKind, InboxRow, InboxState
from store.outbox import NEWEST

router = APIRouter(prefix="/channels", responses=error_responses(404, 409))

PREVIEW_CHARS = 200
MAX_OFFSET = 1_000_000_000
RowId = Annotated[int, Path(ge=1, le=NEWEST)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, le=MAX_OFFSET)]
Before = Annotated[int, Query(ge=1, le=NEWEST, description="Only rows with an ID below this one")]


class ChannelState(BaseModel):
    """A channel, enabled or not.

    Attributes:
        running: Whether the channel is connected now.
        detail: The problem and how to fix it; "" if nothing is wrong.
        events: Number of events since the start, by result.
    """

    enabled: bool
    running: bool
    state: str
    detail: str
    since: str | None
    last_event_at: str | None
    events: dict[str, int]


class ChannelList(BaseModel):
    """Whether the channels are running, and the state of each by name."""

    service_running: bool
    channels: dict[str, ChannelState]


class ActionResponse(BaseModel):
    """Whether the action succeeded, and a message."""

    success: bool
    message: str


class ConversationAddress(BaseModel):
    """The key of a conversation."""

    channel: str
    workspace: str
    chat: str
    topic: str


class InboxRowView(ConversationAddress):
    """A row of the inbox; `preview` is the first 200 characters, and `failed` says whether its turn failed."""

    id: int
    seq: int
    event_id: str
    kind: InboxKind
    user_id: str
    preview: str
    state: InboxState
    failed: bool
    starts: int
    thread_id: str | None
    run_id: str | None
    received_at: str


class ConversationView(ConversationAddress):
    """A conversation with its thread.

    `place`: the chat's name ("" = unknown). `taken_over_by`: who answers instead of the agent; null = the agent
    answers.
    """

    id: int
    place: str = ""
    thread_id: str | None
    last_seq: int
    pending: int
    taken_over_by: str | None
    taken_over_at: str | None
    created_at: str
    updated_at: str


class PairingView(BaseModel):
    """An open pairing request, or an approved person or group.

    Attributes:
        user_id: A person, or `group:` and the ID of a chat.
        text: The beginning of the message with which they asked; "" once they are approved.
    """

    code: str
    channel: str
    workspace: str
    user_id: str
    user_name: str
    text: str
    created_at: str
    approved_at: str | None


class InboxList(BaseModel):
    """Accepted messages, newest first."""

    rows: list[InboxRowView]


class ConversationList(BaseModel):
    """Conversations, most recently used first."""

    rows: list[ConversationView]


class PairingList(BaseModel):
    """Open requests and approvals, newest first."""

    rows: list[PairingView]


def channel_states(services: Services) -> dict[str, dict[str, Any]]:
    """Return the state of each channel, including disabled ones."""
    health = services.bus.health() if services.bus else {}
    counters = services.bus.counters() if services.bus else {}
    faults = services.channel_problems
    states: dict[str, dict[str, Any]] = {}
    for name, policy in services.config.bots.sections.items():
        state = _channel_state(policy, health.get(name), faults.get(name))
        counted = {
            reason: count for (channel, reason), count in counters.items() if channel == name
        }
        states[name] = {**state, "events": counted}
    return states


def _channel_state(
    policy: ChannelPolicy, health: ChannelHealth | None, fault: str | None
) -> dict[str, Any]:
    if not policy.enabled:
        health, state = None, "disabled"
    elif fault:
        health, state = (
            ChannelHealth(state=ConnectionState.FAILED, detail=fault),
            ConnectionState.FAILED.value,
        )
    else:
        state = health.state.value if health else ConnectionState.STOPPED.value
    return {
        "enabled": policy.enabled,
        "running": health is not None and health.state is ConnectionState.CONNECTED,
        "state": state,
        "detail": health.detail if health else "",
        "since": iso_time(health.since or None) if health else None,
        "last_event_at": iso_time(health.last_event_at) if health else None,
    }


@router.get("", response_model=ChannelList)
@router.get("/", include_in_schema=False)
async def list_channels(services: ServicesDep) -> dict[str, Any]:
    """List the channels and their states."""
    return {"service_running": services.bus is not None, "channels": channel_states(services)}


@router.post("/{name}/restart", response_model=ActionResponse)
async def restart_channel(name: str, services: ServicesDep, bus: BusDep) -> dict[str, Any]:
    """Reconnect a channel."""
    policy = services.config.bots.sections.get(name)
    if policy is None:
        raise HTTPException(404, "There is no channel with this name.")
    fault = services.channel_problems.get(name)
    if not policy.enabled:
        return {
            "success": False,
            "message": f"Channel {name} is disabled: set channels.{name}.enabled to true.",
        }
    if fault:
        return {"success": False, "message": f"Channel {name} cannot start: {fault}"}
    await bus.restart(name)
    return {"success": True, "message": f"Channel {name} is being restarted."}


@router.get("/inbox", response_model=InboxList)
async def list_inbox(bus: BusDep, limit: Limit = 100, before: Before = NEWEST) -> dict[str, Any]:
    """List accepted messages, newest first."""
    rows = await bus.inbox.list_recent(limit=limit, before=before)
    return {"rows": [_inbox_row_view(row) for row in rows]}


@router.get("/conversations", response_model=ConversationList)
async def list_conversations(bus: BusDep, limit: Limit = 100, offset: Offset = 0) -> dict[str, Any]:
    """List conversations with their threads, most recently used first."""
    rows = await bus.conversations.list_recent(limit=limit, offset=offset)
    names = await place_names(bus.inbox, [row.key for row in rows])
    return {"rows": [{**conversation_view(row), "place": names[row.key]} for row in rows]}


@router.get("/pairings", response_model=PairingList)
async def list_pairings(bus: BusDep) -> dict[str, Any]:
    """List open requests and approvals, newest first."""
    return {"rows": [pairing_view(row) for row in await bus.pairings.list_all()]}


@router.post("/pairings/{code}/approve", response_model=PairingView)
async def approve_pairing(code: str, services: ServicesDep, bus: BusDep) -> dict[str, Any]:
    """Approve the person or group with this code, and tell them ten seconds later.

    It also undoes a revocation of the last hour.
    """
    approved = await bus.approve(code.strip().upper())
    services.changes.note("access")
    return pairing_view(approved)


@router.delete("/pairings/{channel}/{user_id}", status_code=204)
async def revoke_pairing(
    channel: str, user_id: str, services: ServicesDep, bus: BusDep
) -> Response:
    """Revoke the access of a person or group."""
    if not await bus.pairings.revoke(channel, user_id):
        raise HTTPException(404, "This person is not approved.")
    services.changes.note("access")
    return Response(status_code=204)


def _inbox_row_view(row: InboxRow) -> dict[str, Any]:
    try:
        inbound = decode_inbound(row.body)
        user_id, text = inbound.sender.user_id, inbound.text
    except ValueError:  # a damaged row
        user_id, text = "", row.body
    return {
        "id": row.id,
        "seq": row.seq,
        **asdict(row.key),
        "event_id": row.event_id,
        "kind": row.kind,
        "user_id": user_id,
        "preview": text[:PREVIEW_CHARS],
        "state": row.state,
        "failed": row.outcome == "failed",
        "starts": row.starts,
        "thread_id": row.thread_id,
        "run_id": row.run_id,
        "received_at": iso_time(row.received_at),
    }
