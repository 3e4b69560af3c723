"""POST /api/channels/broadcast: sends an administrator's message to chats in which people have written to the bot."""

from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query, Request
from pydantic import BaseModel

from bots.terminal.adapter import TERMINAL
from bus.notifications.broadcasts import BroadcastReceipt, BroadcastRequest, BroadcastStatus
from gateway.dependencies import BusDep, ServicesDep
from gateway.middleware import AUDIT_DETAIL
from gateway.notification_requests import Key, NewBroadcastRequest
from gateway.openapi import error_responses
from gateway.routes.channels import ActionResponse, channel_states
from gateway.routes.notification_forms import describe_body, read_notification, save_files
from gateway.routes.views import iso_time
from gateway.services import Services

router = APIRouter(prefix="/channels/broadcast", responses=error_responses(404, 409))

PREVIEW_CHARS = 200


class BroadcastChannel(BaseModel):
    """A channel of a broadcast.

    Attributes:
        chats: Number of chats that get it.
        denied: Number of chats that do not get it, because the channel's access policy no longer admits them.
        left_out: Why the whole channel is left out; "" if it is included.
    """

    chats: int
    denied: int
    left_out: str


class BroadcastView(BaseModel):
    """The result of a broadcast.

    Attributes:
        key: Key for repeating the request; null for a dry run.
        is_repeat: Whether the broadcast was already accepted, so that this request changed nothing.
        chats: Number of chats that get it.
        waiting: Number of these chats without a delivery so far.
    """

    key: str | None
    is_repeat: bool
    chats: int
    waiting: int
    channels: dict[str, BroadcastChannel]


class PastBroadcastView(BaseModel):
    """A past broadcast.

    Attributes:
        text: The beginning of its text; "" = its last delivery was more than a week ago.
        chats: Number of chats that it is for.
        waiting: Number of these chats whose message is not in the outbox yet.
        deliveries: Number of its messages in each state. Delivered ones are counted for a week.
    """

    key: str
    text: str
    chats: int
    waiting: int
    deliveries: dict[str, int]
    created_at: str


class PastBroadcastList(BaseModel):
    """The newest broadcasts, newest first."""

    broadcasts: list[PastBroadcastView]


@router.get("", response_model=PastBroadcastList)
async def list_broadcasts(
    bus: BusDep, limit: Annotated[int, Query(ge=1, le=100)] = 20
) -> dict[str, Any]:
    """List the newest broadcasts with the states of their deliveries."""
    found = await bus.broadcasts.list_recent(limit=limit)
    return {"broadcasts": [_past_view(one) for one in found]}


@router.get("/{key}", response_model=PastBroadcastView)
async def get_broadcast(key: Annotated[Key, Path()], bus: BusDep) -> dict[str, Any]:
    """Return a broadcast with the states of its deliveries."""
    return _past_view(await bus.broadcasts.find(key))


@router.post(
    "",
    response_model=BroadcastView,
    openapi_extra=describe_body(NewBroadcastRequest),
    responses=error_responses(400),
)
async def broadcast(request: Request, services: ServicesDep, bus: BusDep) -> dict[str, Any]:
    """Send a message, with `files` in a form, to chats in which people wrote to the bot, once for each `key`."""
    async with AsyncExitStack() as stack:
        new, uploads = await read_notification(request, stack, NewBroadcastRequest)
        names, left_out = _choose_channels(services, new.channels)
        asked = BroadcastRequest(
            text=new.text,
            key=new.key or "",
            channels=new.channels,
            left_out=left_out,
            audience=new.audience,
            active_days=new.active_within_days,
        )
        if new.dry_run:
            return _receipt_view(await bus.broadcasts.count(asked, names))
        max_bytes = {name: bus.notifications.max_file_bytes(name) for name in names}
        files = await save_files(new, uploads, stack, max_bytes)
        receipt = await bus.broadcasts.accept(replace(asked, files=files), names)
    repeated = ", repeated" if receipt.is_repeat else ""
    request.scope[AUDIT_DETAIL] = f"broadcast {receipt.key}: {receipt.chats} chats{repeated}"
    return _receipt_view(receipt)


@router.delete("/{key}", response_model=ActionResponse)
async def stop_broadcast(key: Annotated[Key, Path()], bus: BusDep) -> dict[str, Any]:
    """Stop a broadcast. Messages that are already in the outbox are still sent."""
    stopped = await bus.broadcasts.stop(key)
    return {"success": True, "message": f"{stopped} chats will not get it."}


def _choose_channels(
    services: Services, asked: list[str] | None
) -> tuple[list[str], dict[str, str]]:
    """Return the channels that get a broadcast, and the reasons why others do not. Raises HTTPException."""
    states = channel_states(services)
    enabled = [name for name, state in states.items() if state["enabled"] and name != TERMINAL]
    names: list[str] = []
    left_out: dict[str, str] = {}
    for name in dict.fromkeys(enabled if asked is None else asked):
        if name not in states:
            raise HTTPException(404, f"There is no channel {name}.")
        if name == TERMINAL:
            left_out[name] = "A terminal shows messages only while it is open."
        elif states[name]["running"]:
            names.append(name)
        else:
            state, detail = states[name]["state"], states[name]["detail"]
            left_out[name] = f"The channel is {state}" + (f": {detail}" if detail else ".")
    return names, left_out


def _past_view(past: BroadcastStatus) -> dict[str, Any]:
    text, created_at = past.text[:PREVIEW_CHARS], iso_time(past.created_at)
    return {**asdict(past), "text": text, "created_at": created_at}


def _receipt_view(receipt: BroadcastReceipt) -> dict[str, Any]:
    return {
        "key": receipt.key or None,
        "is_repeat": receipt.is_repeat,
        "chats": receipt.chats,
        "waiting": receipt.waiting,
        "channels": {
            name: {"chats": one.chats, "denied": one.denied, "left_out": one.left_out}
            for name, one in receipt.reach.items()
        },
    }
