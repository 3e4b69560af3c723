"""GET /api/messages: every message that reached the bot, and its outcome."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Request
from pydantic import BaseModel, Field

from bus.access.remedy import Remedy, RemedyKind
from bus.messages import (
    OutboundIndicator,
    OutboundRemoval,
    OutboundText,
    decode_inbound,
    decode_outbound,
)
from bus.platform import Disposition
from bus.runs.questions import decode_question
from bus.service import Bus
from gateway.dependencies import BusDep, ServicesDep
from gateway.middleware import AUDIT_DETAIL
from gateway.openapi import error_responses
from gateway.routes.channels import (
    PREVIEW_CHARS,
    ActionResponse,
    ConversationAddress,
    PairingView,
    RowId,
)
from gateway.routes.places import place_of
from gateway.routes.views import iso_time, pairing_view
from store.inbox import InboxRow
from store.message_words import UNDELIVERED, MessageFilter
from store.outbox import NEWEST, OutboxRow
from store.refused_messages import RefusedRow

router = APIRouter(prefix="/messages", responses=error_responses(400, 404, 409))

State = Literal[
    "answered",
    "undelivered",
    "failed",
    "waiting",
    "silent",
    "stopped",
    "running",
    "refused",
    "not_addressed",
    "taken_over",
]
MessageState = Literal[
    "queued", "running", "answered", "undelivered", "failed", "waiting", "silent", "stopped", "interrupted",
    "deleted", "joined", "command", "refused", "taken_over",
]  # fmt: skip

NOT_MEANT = Disposition.NOT_ADDRESSED.value
"""Messages that people wrote to each other are listed only on request, because groups have many."""

_CURSOR = re.compile(r"(\d{1,19})\.(\d{1,19})")


class RemedyView(BaseModel):
    """How to make the bot answer a refused message.

    Attributes:
        kind: `person` or `chat` = let them in; `setting` = change the configuration; `admitted` = nothing to do,
            because the bot answers them by now; `none` = the message has nothing to answer.
        setting: The key of the configuration that decides; "" = none.
        can_answer: Whether the message can be answered now.
    """

    kind: RemedyKind
    setting: str
    can_answer: bool


class MessageView(ConversationAddress):
    """A message that reached the bot.

    Attributes:
        id: `m` and the number of an accepted message, or `r` and the number of a refused message.
        place: The chat's name; "" = unknown.
        preview: The first 200 characters; "" if the message was not meant for the bot.
        state: Its outcome. `undelivered` = the platform refused the answer, `waiting` = it waits for a person's answer
            or approval, `joined` = another turn answered it, `taken_over` = a person answers there instead of the
            agent.
        reason: Why it failed, was refused or is undelivered; `approval` or `question` if it waits for that.
        undelivered: The deliveries that failed.
        is_private: Whether only the sender and the bot are in the chat.
        remedy: How to make the bot answer a refused message; null for other messages.
    """

    id: str
    kind: Literal["chat", "command", "refused"]
    place: str
    user_id: str
    user_name: str
    is_private: bool
    preview: str
    state: MessageState
    reason: str
    undelivered: list[int]
    conversation_id: int | None
    thread_id: str | None
    run_id: str | None
    received_at: str
    remedy: RemedyView | None = None


class MessageList(BaseModel):
    """Messages, newest first. `next` is the cursor of the following page; null = this is the last page."""

    rows: list[MessageView]
    next: str | None


@router.get("", response_model=MessageList)
async def list_messages(
    bus: BusDep,
    *,
    q: Annotated[str, Query(max_length=200, description="Words of the message, or of names")] = "",
    state: State | None = None,
    channel: Annotated[str, Query(max_length=200)] = "",
    chat: Annotated[str, Query(max_length=200)] = "",
    person: Annotated[str, Query(max_length=200, description="The sender's ID")] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str, Query(description="`next` of the last page")] = "",
) -> dict[str, Any]:
    """List messages, newest first. Messages that people wrote to each other need `state=not_addressed`."""
    accepted_before, refused_before = _parse_cursor(before)
    accepted: list[InboxRow] = []
    refused: list[RefusedRow] = []
    is_refused = state in ("refused", "not_addressed")
    if not is_refused:
        wanted = MessageFilter(text=q, channel=channel, chat=chat, person=person, state=state or "")
        accepted = await bus.words.list_messages(wanted, limit=limit, before=accepted_before)
    if state is None or is_refused:
        refused = await bus.refused.list_recent(
            limit=limit,
            before=refused_before,
            text=q,
            with_not_addressed=state == "not_addressed",
            channel=channel,
            chat=chat,
            person=person,
            reason=NOT_MEANT if state == "not_addressed" else "",
        )
    found: list[InboxRow | RefusedRow] = [*accepted, *refused]
    merged = sorted(found, key=lambda row: row.received_at, reverse=True)[:limit]
    for row in merged:
        if isinstance(row, InboxRow):
            accepted_before = row.id
        else:
            refused_before = row.id
    shown = [row for row in merged if isinstance(row, RefusedRow)]
    remedies = {
        row.id: remedy for row, remedy in zip(shown, await bus.find_remedies(shown), strict=True)
    }
    failed = await failed_deliveries(bus, accepted)
    has_more = len(accepted) + len(refused) > len(merged) or limit in (len(accepted), len(refused))
    views = [
        message_view(row, failed.get(row.id, ()))
        if isinstance(row, InboxRow)
        else _refused_view(row, remedies[row.id])
        for row in merged
    ]
    if state is not None:  # The database does not know whether an answer is undelivered.
        views = [view for view in views if (view["state"] == UNDELIVERED) == (state == UNDELIVERED)]
    return {
        "rows": views,
        "next": f"{accepted_before}.{refused_before}" if has_more and merged else None,
    }


@router.post("/{row_id}/stop", response_model=ActionResponse)
async def stop_message(row_id: RowId, bus: BusDep) -> dict[str, Any]:
    """Stop the turn of a message, whether it waits or runs."""
    await _find(bus, row_id)
    stopped = await bus.stop_message(row_id)
    text = "The turn is being stopped." if stopped else "The turn has already ended."
    return {"success": stopped, "message": text}


@router.post("/refused/{row_id}/let-in", response_model=PairingView)
async def let_in(
    row_id: RowId, request: Request, services: ServicesDep, bus: BusDep
) -> dict[str, Any]:
    """Approve the sender of a refused message, or its group, and tell them ten seconds later."""
    row = await bus.refused.get(row_id)
    if row is None:
        raise HTTPException(404, "There is no such message.")
    approved = await bus.admit(row)
    request.scope[AUDIT_DETAIL] = f"approved {approved.user_id} on {approved.channel}"
    services.changes.note("access")
    services.changes.note("messages")
    return pairing_view(approved)


@router.post("/refused/{row_id}/answer", response_model=ActionResponse)
async def answer_refused(row_id: RowId, services: ServicesDep, bus: BusDep) -> dict[str, Any]:
    """Answer a refused message after all, even beyond its sender's rate limit. It becomes an accepted message."""
    row = await bus.refused.get(row_id)
    if row is None:
        raise HTTPException(404, "There is no such message.")
    disposition = await bus.answer_refused(row)
    services.changes.note("messages")
    if disposition not in (Disposition.ACCEPTED, Disposition.DUPLICATE):
        raise HTTPException(409, f"The message was not accepted: {disposition.value}.")
    return {"success": True, "message": "The message is answered."}


class RepeatRequest(BaseModel):
    """`text`: the message's new text; null = unchanged."""

    text: Annotated[str, Field(min_length=1, max_length=20_000)] | None = None


@router.post("/{row_id}/repeat", response_model=ActionResponse)
async def repeat_message(row_id: RowId, asked: RepeatRequest, bus: BusDep) -> dict[str, Any]:
    """Answer a message again, perhaps with a new text. First remove it, and all that followed, from the thread."""
    row = await _find(bus, row_id)
    if row.state in ("new", "running"):
        raise HTTPException(409, "The message is still being answered: stop it first.")
    disposition = await bus.repeat_message(row, asked.text)
    if disposition is not Disposition.ACCEPTED:
        raise HTTPException(409, f"The message was not accepted: {disposition.value}.")
    return {"success": True, "message": "The message is answered again."}


async def _find(bus: BusDep, row_id: int) -> InboxRow:
    rows = await bus.inbox.list_recent(limit=1, before=min(row_id + 1, NEWEST))
    if not rows or rows[0].id != row_id:
        raise HTTPException(404, "There is no such message.")
    return rows[0]


def _parse_cursor(before: str) -> tuple[int, int]:
    if not before:
        return NEWEST, NEWEST
    match = _CURSOR.fullmatch(before)
    if match is None:
        raise HTTPException(400, "`before` is the `next` of another page.")
    return min(int(match[1]), NEWEST), min(int(match[2]), NEWEST)


async def failed_deliveries(bus: Bus, rows: Sequence[InboxRow]) -> dict[int, list[OutboxRow]]:
    """Return the failed deliveries of messages' visible answers, by the IDs of the messages."""
    found: dict[int, list[OutboxRow]] = {}
    for one in await bus.outbox.list_of_messages([row.id for row in rows], "failed"):
        if is_part_of_answer(one):
            found.setdefault(int(one.key.partition(":")[0]), []).append(one)
    return found


def is_part_of_answer(delivery: OutboxRow) -> bool:
    """Return whether people would miss a delivery."""
    try:
        body = decode_outbound(delivery.body)
    except ValueError:  # a damaged row
        return True
    if isinstance(body, OutboundText):
        return not body.provisional
    return not isinstance(body, OutboundIndicator | OutboundRemoval)


def message_state(row: InboxRow, failed: Sequence[OutboxRow]) -> MessageState:
    """Return the outcome of an accepted message. `failed`: the deliveries of its answer that failed."""
    state = _turn_state(row)
    return "undelivered" if failed and state in ("answered", "waiting") else state


def message_reason(row: InboxRow, failed: Sequence[OutboxRow]) -> str:
    """Return why a message has no answer yet; "" = it has one."""
    match message_state(row, failed):
        case "undelivered":
            return failed[0].error or ""
        case "waiting":
            return "approval" if decode_question(row.question).needs_approval else "question"
    return row.problem or ""


def _turn_state(row: InboxRow) -> MessageState:  # noqa: PLR0911 - one return per state
    """Return how the turn of an accepted message ended."""
    if row.state == "new":
        return "queued"
    if row.state == "running":
        return "running"
    if row.state == "dead":
        return "failed"
    if row.outcome == "waiting" and row.question is None:
        return "answered"
    if row.outcome is not None:
        return row.outcome
    return "command" if row.kind == "command" else "answered"


def message_view(row: InboxRow, failed: Sequence[OutboxRow]) -> dict[str, Any]:
    """Return an accepted message. `failed`: the deliveries of its answer that failed."""
    try:
        inbound = decode_inbound(row.body)
    except ValueError:  # a damaged row
        names = {"user_id": "", "user_name": "", "place": "", "is_private": True}
        text = row.body
    else:
        text = inbound.text
        names = {
            "user_id": inbound.sender.user_id,
            "user_name": inbound.sender.name,
            "place": place_of(inbound),
            "is_private": inbound.is_private,
        }
    return {
        "id": f"m{row.id}",
        "kind": row.kind,
        "channel": row.key.channel,
        "workspace": row.key.workspace,
        "chat": row.key.chat,
        "topic": row.key.topic,
        **names,
        "preview": text[:PREVIEW_CHARS],
        "state": message_state(row, failed),
        "reason": message_reason(row, failed),
        "undelivered": [one.id for one in failed],
        "conversation_id": row.conversation_id,
        "thread_id": row.thread_id,
        "run_id": row.run_id,
        "received_at": iso_time(row.received_at),
    }


def _refused_view(row: RefusedRow, remedy: Remedy) -> dict[str, Any]:
    return {
        "id": f"r{row.id}",
        "kind": "refused",
        "channel": row.channel,
        "workspace": row.workspace,
        "chat": row.chat,
        "topic": row.topic,
        "place": row.place or (row.user_name if row.is_private else ""),
        "user_id": row.user_id,
        "user_name": row.user_name,
        "is_private": row.is_private,
        "preview": row.text[:PREVIEW_CHARS],
        "state": "refused",
        "reason": row.reason,
        "undelivered": [],
        "conversation_id": None,
        "thread_id": None,
        "run_id": None,
        "received_at": iso_time(row.received_at),
        "remedy": asdict(remedy),
    }
