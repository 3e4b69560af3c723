"""/api/schedules: messages that the bot sends itself in chats at set times, in the name of a person."""

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import AwareDatetime, BaseModel, Field

from bus.messages import ConversationKey, Sender
from bus.schedules.schedules import (
    MAX_NAME_CHARS,
    MAX_PROMPT_CHARS,
    ScheduleChange,
    ScheduleRequest,
    owner_of,
)
from bus.service import Bus
from gateway.dependencies import BusDep
from gateway.middleware import AUDIT_DETAIL
from gateway.notification_requests import PlatformId
from gateway.openapi import error_responses
from gateway.routes.channels import ActionResponse, ConversationAddress, Limit, Offset
from gateway.routes.views import iso_time
from store.outbox import DeliveryState
from store.schedules import (
    MissedPolicy,
    Occurrence,
    OccurrenceOutcome,
    OverlapPolicy,
    Schedule,
    ScheduleKind,
)

router = APIRouter(prefix="/schedules", responses=error_responses(404, 409, 422))

MAX_EXPRESSION_CHARS = 200
MAX_COMMAND_CHARS = 4000

ScheduleId = Annotated[str, Path(pattern=r"^[0-9a-f-]{36}$")]
Name = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
Prompt = Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARS, pattern=r"\S")]
Expression = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_EXPRESSION_CHARS,
        description="`once`: ISO 8601; `every`: 30m, 1h30m, 1d; `cron`: five fields",
    ),
]
Hours = Annotated[str, Field(max_length=11, description="Local hours, as 09:00-18:00")]
Command = Annotated[str, Field(max_length=MAX_COMMAND_CHARS)]


class ScheduleOwner(BaseModel):
    """The person in whose name and with whose rights the message is sent."""

    user_id: str
    name: str


class NewScheduleOwner(BaseModel):
    """The person in whose name and with whose rights the new schedule sends its message."""

    user_id: PlatformId
    name: Annotated[str, Field(max_length=200)]


class OccurrenceView(BaseModel):
    """The result of a due time.

    Attributes:
        missed: Number of missed due times that it covers in addition to its own.
        inbox_id: Its message in the inbox.
        delivery: The state of its answer in the outbox; null = the outbox has no answer, or no longer has it.
    """

    due_at: str
    outcome: OccurrenceOutcome
    detail: str
    missed: int
    inbox_id: int | None
    delivery: DeliveryState | None
    created_at: str


class ScheduleView(ConversationAddress):
    """A schedule.

    Attributes:
        place: The name of the group, if known.
        next_at: Null if it will not be due again.
        last: The result of the latest due time; only in lists.
    """

    id: str
    place: str
    owner: ScheduleOwner
    name: str
    prompt: str
    kind: ScheduleKind
    expression: str
    timezone: str
    end_at: str | None
    active_hours: str
    missed: MissedPolicy
    overlap: OverlapPolicy
    check: str
    enabled: bool
    paused_because: str
    next_at: str | None
    failures: int
    created_at: str
    updated_at: str
    last: OccurrenceView | None = None


class ScheduleList(BaseModel):
    """The schedules, oldest first."""

    schedules: list[ScheduleView]


class OccurrenceList(BaseModel):
    """The occurrences, newest first."""

    occurrences: list[OccurrenceView]


class ScheduleFields(BaseModel):
    """The fields of a schedule that clients can set."""

    end_at: AwareDatetime | None = None
    active_hours: Hours = ""
    missed: MissedPolicy = Field(
        default="once", description="After downtime: run once, or skip the missed times"
    )
    overlap: OverlapPolicy = Field(
        default="queue", description="While the previous one runs: wait, skip, or stop it"
    )
    check_command: Command = Field(
        default="", alias="check", description="Run only if the output of this command changed"
    )


class NewSchedule(ScheduleFields):
    """A schedule to create."""

    channel: str
    chat: str
    topic: str = Field(default="", description='"" = the topic of the newest message')
    owner: NewScheduleOwner | None = Field(
        default=None, description="null = the author of the newest message"
    )
    name: Name = ""
    prompt: Prompt
    kind: ScheduleKind
    expression: Expression
    timezone: str = Field(default="", max_length=64, description='"" = the owner\'s')


class ScheduleUpdate(BaseModel):
    """Changes of a schedule; fields that are left out keep their values."""

    name: Name | None = None
    prompt: Prompt | None = None
    kind: ScheduleKind | None = None
    expression: Expression | None = None
    timezone: str | None = Field(default=None, max_length=64)
    end_at: AwareDatetime | None = None
    active_hours: Hours | None = None
    missed: MissedPolicy | None = None
    overlap: OverlapPolicy | None = None
    check_command: Command | None = Field(default=None, alias="check")
    enabled: bool | None = None


@router.get("", response_model=ScheduleList)
async def list_schedules(
    bus: BusDep,
    channel: Annotated[str, Query()] = "",
    chat: Annotated[str, Query()] = "",
    limit: Limit = 100,
    offset: Offset = 0,
) -> dict[str, Any]:
    """List the schedules of all chats, or of one."""
    found = await bus.schedules.list_all(channel=channel, chat=chat, limit=limit, offset=offset)
    last = await bus.schedules.list_last(found)
    if queued := [one.schedule_id for one in last.values() if one.outcome == "queued"]:
        for schedule_id in queued:
            await bus.scheduler.settle(schedule_id)
        last = await bus.schedules.list_last(found)
    runs = {name: await _occurrence_view(bus, one) for name, one in last.items()}
    return {"schedules": [{**_view(one), "last": runs.get(one.id)} for one in found]}


@router.post("", response_model=ScheduleView)
async def create_schedule(new: NewSchedule, request: Request, bus: BusDep) -> dict[str, Any]:
    """Create a schedule for a chat in which people have written to the bot."""
    asked = await bus.find_place(new.channel, new.chat, new.topic)
    if new.owner is not None and new.owner.user_id != asked.sender.user_id:
        owner = Sender(user_id=new.owner.user_id, name=new.owner.name)
        asked = replace(asked, sender=owner, language="", timezone="")
    schedule = await bus.schedules.create(
        asked,
        ScheduleRequest(
            name=new.name,
            prompt=new.prompt,
            kind=new.kind,
            expression=new.expression,
            timezone=new.timezone,
            end_at=_seconds(new.end_at),
            active_hours=new.active_hours,
            missed=new.missed,
            overlap=new.overlap,
            check_command=new.check_command,
        ),
    )
    request.scope[AUDIT_DETAIL] = f"schedule {schedule.id}"
    return _view(schedule)


@router.get("/{schedule_id}", response_model=ScheduleView)
async def get_schedule(schedule_id: ScheduleId, bus: BusDep) -> dict[str, Any]:
    """Return one schedule."""
    return _view(await bus.schedules.find(schedule_id))


@router.patch("/{schedule_id}", response_model=ScheduleView)
async def change_schedule(
    schedule_id: ScheduleId, update: ScheduleUpdate, bus: BusDep
) -> dict[str, Any]:
    """Change, pause (`enabled: false`) or resume a schedule."""
    given = update.model_dump(exclude_unset=True, exclude={"enabled", "end_at"})
    clears_end = "end_at" in update.model_fields_set and update.end_at is None
    change = ScheduleChange(**given, end_at=_seconds(update.end_at), clears_end=clears_end)
    if change != ScheduleChange():
        await bus.schedules.change(schedule_id, change)
    if update.enabled is not None:
        act = bus.schedules.resume if update.enabled else bus.schedules.pause
        await act(schedule_id)
    return _view(await bus.schedules.find(schedule_id))


@router.delete("/{schedule_id}", response_model=ActionResponse)
async def delete_schedule(schedule_id: ScheduleId, bus: BusDep) -> dict[str, Any]:
    """Delete a schedule with its occurrences. A message that is being answered is still answered."""
    await bus.schedules.delete(schedule_id)
    return {"success": True, "message": "The schedule was deleted."}


@router.post("/{schedule_id}/run", response_model=OccurrenceView)
async def run_schedule(schedule_id: ScheduleId, request: Request, bus: BusDep) -> dict[str, Any]:
    """Send its message now. Its due times do not change. A repeated `Idempotency-Key` sends nothing."""
    schedule = await bus.schedules.find(schedule_id)
    key = request.headers.get("Idempotency-Key")
    occurrence = await bus.scheduler.run_now(schedule, f"api:{key}" if key else "")
    return await _occurrence_view(bus, occurrence)


@router.get("/{schedule_id}/occurrences", response_model=OccurrenceList)
async def list_occurrences(
    schedule_id: ScheduleId, bus: BusDep, limit: Limit = 100
) -> dict[str, Any]:
    """List the results of the times at which a schedule was due."""
    await bus.schedules.find(schedule_id)
    await bus.scheduler.settle(schedule_id)
    found = await bus.schedules.list_occurrences(schedule_id, limit=limit)
    return {"occurrences": [await _occurrence_view(bus, one) for one in found]}


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _view(schedule: Schedule) -> dict[str, Any]:
    message = owner_of(schedule)
    key = schedule.key or ConversationKey(channel="", workspace="", chat="")
    return {
        "id": schedule.id,
        "channel": key.channel,
        "workspace": key.workspace,
        "chat": key.chat,
        "topic": key.topic,
        "place": message.chat_title,
        "owner": {"user_id": message.sender.user_id, "name": message.sender.name},
        "name": schedule.name,
        "prompt": message.text,
        "kind": schedule.kind,
        "expression": schedule.expression,
        "timezone": schedule.timezone,
        "end_at": iso_time(schedule.end_at),
        "active_hours": schedule.active_hours,
        "missed": schedule.missed,
        "overlap": schedule.overlap,
        "check": schedule.check_command,
        "enabled": schedule.is_enabled,
        "paused_because": schedule.paused_because,
        "next_at": iso_time(schedule.next_at),
        "failures": schedule.failures,
        "created_at": iso_time(schedule.created_at),
        "updated_at": iso_time(schedule.updated_at),
    }


async def _occurrence_view(bus: Bus, one: Occurrence) -> dict[str, Any]:
    return {
        "due_at": iso_time(one.due_at),
        "outcome": one.outcome,
        "detail": one.detail,
        "missed": one.missed,
        "inbox_id": one.inbox_id,
        "delivery": await bus.delivery_state(one.inbox_id),
        "created_at": iso_time(one.created_at),
    }
