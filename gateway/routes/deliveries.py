"""/api/channels/outbox: messages to the platforms; one, or all that match, are sent again, discarded or restored."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, assert_never

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from pydantic import BaseModel

from bus.messages import (
    OutboundEdit,
    OutboundFile,
    OutboundIndicator,
    OutboundNote,
    OutboundRemoval,
    OutboundText,
    decode_outbound,
)
from bus.outbound.deliveries import DISCARDABLE, RESENDABLE, DeliveryChanges, SecondSend
from gateway.dependencies import BusDep, ServicesDep
from gateway.middleware import AUDIT_DETAIL
from gateway.openapi import error_responses
from gateway.routes.channels import (
    PREVIEW_CHARS,
    ActionResponse,
    Before,
    ConversationAddress,
    Limit,
    RowId,
)
from gateway.routes.places import place_names
from gateway.routes.views import iso_time
from gateway.services import Services
from store.outbox import DISCARDED, NEWEST, DeliveryFilter, DeliveryState, ListedState, OutboxRow

router = APIRouter(prefix="/channels/outbox", responses=error_responses(400, 404, 409))


class OutboxRowView(ConversationAddress):
    """A row of the outbox; `preview` is the first 200 characters."""

    id: int
    key: str
    kind: str
    preview: str
    state: DeliveryState
    attempts: int
    not_before: str | None
    platform_id: str | None
    error: str | None
    created_at: str
    updated_at: str


class SecondSendView(BaseModel):
    """What people see if an uncertain delivery is sent again.

    Attributes:
        effect: `may_appear_twice`, or `appears_once`.
        platform: The platform.
        until: Until when the platform recognizes its key and drops the second copy; null = it always appears once,
            because it changes a message.
    """

    effect: SecondSend
    platform: str
    until: str | None


class DeliveryView(OutboxRowView):
    """A delivery.

    Attributes:
        state: `discarded` = an administrator discarded it less than seven days ago.
        place: The chat's name; "" = unknown.
        second_send: Null unless it is `uncertain`.
    """

    state: ListedState  # type: ignore[assignment]  # more states than a row has
    place: str
    second_send: SecondSendView | None


class DeliveryList(BaseModel):
    """Deliveries, newest first."""

    rows: list[DeliveryView]


class DeliveryCount(BaseModel):
    """The number of deliveries that match, and how many of them can be sent again or discarded."""

    count: int
    resendable: int
    discardable: int


class DeliveryChangesView(BaseModel):
    """The changes that a request made.

    Attributes:
        matched: How many deliveries matched before.
        changed: How many were changed.
        remaining: How many more match. One request looks at 10,000 deliveries: repeat it for the others.
        batch: The ID with which to undo a discard; "" for other changes.
    """

    matched: int
    changed: int
    remaining: int
    batch: str


def _filter(
    state: Annotated[list[ListedState] | None, Query(description="Can be repeated")] = None,
    channel: Annotated[str, Query(max_length=200)] = "",
    chat: Annotated[str, Query(max_length=200)] = "",
    q: Annotated[str, Query(max_length=200, description="Text that the error contains")] = "",
) -> DeliveryFilter:
    return DeliveryFilter(states=state or (), channel=channel, chat=chat, error=q)


FilterDep = Annotated[DeliveryFilter, Depends(_filter)]


@router.get("", response_model=DeliveryList)
async def list_outbox(
    services: ServicesDep,
    bus: BusDep,
    wanted: FilterDep,
    limit: Limit = 100,
    before: Before = NEWEST,
) -> dict[str, Any]:
    """List deliveries, newest first. Discarded ones need `state=discarded`."""
    rows = await bus.outbox.list_recent(**asdict(wanted), limit=limit, before=before)
    names = await place_names(bus.inbox, [row.conversation for row in rows])
    return {"rows": [_delivery_view(services, row, names[row.conversation]) for row in rows]}


@router.get("/count", response_model=DeliveryCount)
async def count_outbox(bus: BusDep, wanted: FilterDep) -> dict[str, int]:
    """Count the deliveries that match."""
    return {
        "count": await bus.outbox.count(wanted),
        "resendable": await bus.deliveries.count_resendable(wanted),
        "discardable": await bus.deliveries.count_discardable(wanted),
    }


@router.post("/resend", response_model=DeliveryChangesView)
async def resend_deliveries(
    request: Request, services: ServicesDep, bus: BusDep, wanted: FilterDep
) -> dict[str, Any]:
    """Send all failed and uncertain deliveries that match again."""
    _check_states(wanted, RESENDABLE, "sent again")
    changes = await bus.deliveries.resend_all(wanted)
    return _changed(request, services, changes, "sent again")


@router.post("/discard", response_model=DeliveryChangesView)
async def discard_deliveries(
    request: Request, services: ServicesDep, bus: BusDep, wanted: FilterDep
) -> dict[str, Any]:
    """Discard all failed and uncertain deliveries that match, and pending ones if `state` says so."""
    _check_states(wanted, DISCARDABLE, "discarded")
    changes = await bus.deliveries.discard_all(wanted)
    return _changed(request, services, changes, "discarded")


@router.post("/restore", response_model=DeliveryChangesView)
async def restore_deliveries(
    request: Request,
    services: ServicesDep,
    bus: BusDep,
    batch: Annotated[str, Query(min_length=1, max_length=64, description="As `discard` returned")],
) -> dict[str, Any]:
    """Undo a discard, which restores the deliveries' earlier states."""
    return _changed(request, services, await bus.deliveries.restore_batch(batch), "restored")


@router.post("/{delivery_id}/resend", response_model=ActionResponse)
async def resend_delivery(delivery_id: RowId, services: ServicesDep, bus: BusDep) -> dict[str, Any]:
    """Send a failed or uncertain delivery again."""
    await bus.deliveries.resend(delivery_id)
    services.changes.note("deliveries")
    return {"success": True, "message": "The delivery will be sent again."}


@router.delete("/{delivery_id}", status_code=204)
async def discard_delivery(delivery_id: RowId, services: ServicesDep, bus: BusDep) -> Response:
    """Discard a delivery. It can be restored for seven days."""
    await bus.deliveries.discard(delivery_id)
    services.changes.note("deliveries")
    return Response(status_code=204)


@router.post("/{delivery_id}/restore", response_model=ActionResponse)
async def restore_delivery(
    delivery_id: RowId, services: ServicesDep, bus: BusDep
) -> dict[str, Any]:
    """Undo the discard of a delivery, which restores its earlier state."""
    await bus.deliveries.restore(delivery_id)
    services.changes.note("deliveries")
    return {"success": True, "message": "The delivery is restored."}


def _check_states(wanted: DeliveryFilter, allowed: Sequence[str], what: str) -> None:
    if others := [state for state in wanted.states if state not in allowed]:
        raise HTTPException(400, f"{others[0].capitalize()} deliveries cannot be {what}.")


def _changed(
    request: Request, services: Services, changes: DeliveryChanges, what: str
) -> dict[str, Any]:
    request.scope[AUDIT_DETAIL] = f"{changes.changed} of {changes.matched} deliveries {what}"
    services.changes.note("deliveries")
    return asdict(changes)


def _delivery_view(services: Services, row: OutboxRow, place: str) -> dict[str, Any]:
    effect = services.bus.deliveries.second_send(row) if services.bus else None
    section = services.config.bots.sections.get(row.conversation.channel)
    second_send = effect and {
        "effect": effect.effect,
        "platform": section.platform if section is not None else "",
        "until": iso_time(effect.until),
    }
    state = DISCARDED if row.discarded_at is not None else row.state
    return {**outbox_row_view(row), "state": state, "place": place, "second_send": second_send}


def _kind_and_text(row: OutboxRow) -> tuple[str, str]:
    try:
        body = decode_outbound(row.body)
    except ValueError:  # a damaged row, for the administrator to discard
        return "undecodable", row.body
    match body:
        case OutboundFile():
            text = body.name
        case OutboundText() | OutboundEdit():
            text = body.markdown
        case OutboundNote():
            text = body.text
        case OutboundRemoval():
            text = ""
        case OutboundIndicator():
            text = "done" if body.ok else "failed"
        case _:
            assert_never(body)
    return body.kind, text


def outbox_row_view(row: OutboxRow) -> dict[str, Any]:
    """Return a delivery as an `OutboxRowView`."""
    kind, text = _kind_and_text(row)
    return {
        "id": row.id,
        "key": row.key,
        **asdict(row.conversation),
        "kind": kind,
        "preview": text[:PREVIEW_CHARS],
        "state": row.state,
        "attempts": row.attempts,
        "not_before": iso_time(row.not_before or None),
        "platform_id": row.platform_id,
        "error": row.error,
        "created_at": iso_time(row.created_at),
        "updated_at": iso_time(row.updated_at),
    }
