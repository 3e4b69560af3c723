"""/api/people and /api/rooms: people who write to the bot, rooms where they write, and the settings of each."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from agent.usage.limits import NANO, limits_for, resets_at
from agent.usage.owner import LEAD_AGENT, UsageOwner
from bus.messages import SenderKind, decode_inbound
from bus.platform import Disposition
from bus.profiles import AccessMeans, Choice, Profile
from bus.service import Bus
from bus.settings.memory_scope import global_user_id
from bus.settings.resolver import Setting, SettingSource
from gateway.config import Config
from gateway.config_file import join_path
from gateway.config_sources import find_source
from gateway.config_variables import mask_value
from gateway.dependencies import BusDep, ServicesDep
from gateway.middleware import AUDIT_DETAIL
from gateway.openapi import error_responses
from gateway.routes.channels import MAX_OFFSET, ConversationAddress, Offset
from gateway.routes.places import place_of
from gateway.routes.views import iso_time
from gateway.services import Services
from store.chats import KnownChat
from store.inbox import InboxRow
from store.people import KnownPerson
from store.usage import UsageScope

router = APIRouter(responses=error_responses(404, 409, 422))

MAX_CONVERSATIONS = 30

Text = Annotated[str, Query(max_length=200, description="Part of a name or ID")]
Limit = Annotated[int, Query(ge=1, le=200)]
Value = Annotated[str, Field(min_length=1, max_length=200)]


class UsageSum(BaseModel):
    """The usage of this month (UTC)."""

    tokens: int = 0
    cost_usd: float = 0.0


class PersonView(BaseModel):
    """A person who wrote to the bot; `messages` includes commands."""

    channel: str
    workspace: str
    user_id: str
    user_name: str
    kind: SenderKind
    messages: int
    last_message_at: str
    usage: UsageSum


class PeopleList(BaseModel):
    """People, the most recent writers first. `next` is the `offset` of the following page; null = last page."""

    rows: list[PersonView]
    next: int | None


class RoomView(BaseModel):
    """A chat in which people wrote to the bot. `people`: how many people the bot answered there this month (UTC)."""

    channel: str
    workspace: str
    chat: str
    name: str
    kind: Literal["group", "private"]
    user_id: str = Field(description="The last author's ID")
    people: int
    last_message_at: str
    usage: UsageSum


class RoomList(BaseModel):
    """Rooms, the most recently used first. `next` is the `offset` of the following page; null = last page."""

    rows: list[RoomView]
    next: int | None


class SettingView(BaseModel):
    """A value in force.

    Attributes:
        name: `model`, `agent`, `language`, `busy`, `config.KEY` and so on.
        value: Secrets are masked.
        key: Its key in the configuration; "" = it comes from elsewhere.
        file: The configuration file; "" = it is not in it. `line` counts from 1.
        place: The conversation or chat where a command set it.
    """

    name: str
    value: Any
    source: SettingSource
    key: str = ""
    file: str = ""
    line: int = 0
    variable: str = ""
    place: ConversationAddress | None = None


class LimitView(BaseModel):
    """A usage limit; `used` includes what running calls have reserved. `name`: the person, room or agent."""

    scope: UsageScope
    name: str
    period: str
    unit: Literal["tokens", "usd"]
    limit: float
    used: float
    resets_at: str


class AccessView(BaseModel):
    """Whether the person, or people in the room, may use the bot, and why.

    Attributes:
        disposition: `accepted`, or the reason for a refusal.
        pairing_id: The `user_id` with which `DELETE /api/channels/pairings` revokes the approval.
        code: The code that restores the approval; "" = there is no code.
    """

    disposition: Disposition
    means: AccessMeans
    is_admin: bool
    pairing_id: str
    code: str
    approved_at: str | None


class ConversationLink(ConversationAddress):
    """A conversation."""

    thread_id: str
    place: str
    last_message_at: str


class ScheduleLink(BaseModel):
    """A schedule."""

    id: str
    name: str
    enabled: bool
    next_at: str | None


class PersonLink(BaseModel):
    """A person who wrote in the room."""

    user_id: str
    user_name: str


class ProfileView(BaseModel):
    """The settings and data that apply to a person in private, or to a room.

    Attributes:
        usage_id: The person or room in `GET /api/usage`.
        memory_scope, memory_agent: The memory in `GET /api/memory`.
        choices: The values to choose from, by setting. Without `model` and `agent` if the person has no private chat.
        conversations: The conversations of the newest 200 messages, at most 30.
        people: The authors of the room's newest 200 messages.
    """

    channel: str
    workspace: str
    name: str
    kind: str
    messages: int | None
    last_message_at: str
    usage_id: str
    usage: UsageSum
    memory_scope: str
    memory_agent: str
    settings: list[SettingView]
    choices: dict[Choice, list[str]]
    limits: list[LimitView]
    access: AccessView
    conversations: list[ConversationLink]
    schedules: list[ScheduleLink]
    people: list[PersonLink]


class ChoiceUpdate(BaseModel):
    """New choices, as commands make them; null = as configured. Missing fields keep their values."""

    model: Value | None = None
    agent: Value | None = None
    language: Value | None = None
    timezone: Value | None = None


@router.get("/people", response_model=PeopleList)
async def list_people(
    services: ServicesDep,
    bus: BusDep,
    *,
    q: Text = "",
    channel: Text = "",
    limit: Limit = 50,
    offset: Offset = 0,
) -> dict[str, Any]:
    """List the people who write to the bot, the most recent writers first."""
    found = await bus.people.search(q, channel=channel, limit=limit, offset=offset)
    used = await _month(services, "person", [one.id for one in found])
    rows = [_person_view(one, used.get(one.id, UsageSum())) for one in found]
    return {"rows": rows, "next": _next(offset, limit, len(rows))}


@router.get("/people/{channel}/{user_id}", response_model=ProfileView)
async def get_person(
    channel: str, user_id: str, services: ServicesDep, bus: BusDep, workspace: Text = ""
) -> dict[str, Any]:
    """Return what applies to a person in private."""
    return await _profile_view(
        services, bus, await bus.profiles.find_person(channel, user_id, workspace)
    )


@router.patch("/people/{channel}/{user_id}", response_model=ProfileView)
async def choose_for_person(
    channel: str,
    user_id: str,
    update: ChoiceUpdate,
    request: Request,
    services: ServicesDep,
    bus: BusDep,
    workspace: Text = "",
) -> dict[str, Any]:
    """Choose the model and agent of a person's private chat, their language and time zone."""
    found = await bus.profiles.find_person(channel, user_id, workspace)
    return await _choose(services, bus, request, found, update)


@router.get("/rooms", response_model=RoomList)
async def list_rooms(
    services: ServicesDep,
    bus: BusDep,
    *,
    q: Text = "",
    channel: Text = "",
    kind: Literal["group", "private"] | None = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> dict[str, Any]:
    """List the chats in which people wrote to the bot, the most recently used first."""
    is_private = None if kind is None else kind == "private"
    found = await bus.known_chats.search(
        q, channel=channel, is_private=is_private, limit=limit, offset=offset
    )
    rooms = [one.room for one in found]
    used = await _month(services, "room", rooms)
    people = await _answered_people(services, rooms)
    rows = [
        _room_view(one, used.get(one.room, UsageSum()), people.get(one.room, 0)) for one in found
    ]
    return {"rows": rows, "next": _next(offset, limit, len(rows))}


@router.get("/rooms/{channel}/{chat}", response_model=ProfileView)
async def get_room(channel: str, chat: str, services: ServicesDep, bus: BusDep) -> dict[str, Any]:
    """Return what applies in a room."""
    return await _profile_view(services, bus, await bus.profiles.find_room(channel, chat))


@router.patch("/rooms/{channel}/{chat}", response_model=ProfileView)
async def choose_for_room(
    channel: str,
    chat: str,
    update: ChoiceUpdate,
    request: Request,
    services: ServicesDep,
    bus: BusDep,
) -> dict[str, Any]:
    """Choose the model, agent and language of a room."""
    found = await bus.profiles.find_room(channel, chat)
    return await _choose(services, bus, request, found, update)


async def _choose(
    services: Services, bus: Bus, request: Request, found: Profile, update: ChoiceUpdate
) -> dict[str, Any]:
    given: dict[Choice, str | None] = {
        name: getattr(update, name) for name in get_args(Choice) if name in update.model_fields_set
    }
    await bus.profiles.choose(found, given)
    services.changes.note("people")
    chosen = ", ".join(f"{name}={value or 'default'}" for name, value in given.items())
    request.scope[AUDIT_DETAIL] = f"{found.memory_scope}: {chosen}"
    return await _profile_view(services, bus, found)


def _next(offset: int, limit: int, count: int) -> int | None:
    return min(offset + limit, MAX_OFFSET) if count == limit else None


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


async def _month(
    services: Services, column: Literal["person", "room"], names: Sequence[str]
) -> dict[str, UsageSum]:
    """Return the usage of people or rooms in this month, by their names."""
    store = services.agent_services.usage.store
    if store is None or not names:
        return {}
    since = f"{_today()[:7]}-01"
    rows = await store.totals(since=since, filters={column: names}, by=[column])
    return {
        row[column]: UsageSum(
            tokens=row["input_tokens"] + row["output_tokens"],
            cost_usd=row["cost_nano_usd"] / NANO,
        )
        for row in rows
    }


async def _answered_people(services: Services, rooms: Sequence[str]) -> dict[str, int]:
    """Return how many people the bot answered in rooms in this month."""
    store = services.agent_services.usage.store
    if store is None or not rooms:
        return {}
    since = f"{_today()[:7]}-01"
    rows = await store.totals(since=since, filters={"room": rooms}, by=["room", "person"])
    people: dict[str, int] = {}
    for row in rows:
        people[row["room"]] = people.get(row["room"], 0) + bool(row["person"])
    return people


def _person_view(person: KnownPerson, used: UsageSum) -> dict[str, Any]:
    return {
        "channel": person.channel,
        "workspace": person.workspace,
        "user_id": person.user_id,
        "user_name": person.name,
        "kind": person.kind,
        "messages": person.messages,
        "last_message_at": iso_time(person.received_at),
        "usage": used,
    }


def _room_view(chat: KnownChat, used: UsageSum, people: int) -> dict[str, Any]:
    return {
        "channel": chat.channel,
        "workspace": chat.workspace,
        "chat": chat.chat,
        "name": chat.title,
        "kind": "private" if chat.is_private else "group",
        "user_id": chat.user_id,
        "people": people,
        "last_message_at": iso_time(chat.received_at),
        "usage": used,
    }


async def _profile_view(services: Services, bus: Bus, found: Profile) -> dict[str, Any]:
    settings = await bus.profiles.settings(found)
    agent = bus.profiles.memory_agent(settings)
    rows = await bus.profiles.messages(found)
    choices = await bus.profiles.choices(found)
    if found.chat is None:
        choices = {name: known for name, known in choices.items() if name == "language"}
    person, chat = found.person, found.chat
    column: Literal["person", "room"] = "person" if person else "room"
    used = await _month(services, column, [found.usage_id])
    newest = person or chat
    return {
        "channel": found.message.key.channel,
        "workspace": found.message.key.workspace,
        "name": person.name if person else chat.title if chat else "",
        "kind": person.kind if person else "group",
        "messages": person.messages if person else None,
        "last_message_at": iso_time(newest.received_at if newest else None),
        "usage_id": found.usage_id,
        "usage": used.get(found.usage_id, UsageSum()),
        "memory_scope": found.memory_scope,
        "memory_agent": agent,
        "settings": [
            _setting_view(services.config, name, setting) for name, setting in settings.items()
        ],
        "choices": choices,
        "limits": await _limits(services, found, agent),
        "access": await _access_view(bus, found),
        "conversations": _conversations(rows),
        "schedules": [
            {
                "id": one.id,
                "name": one.name,
                "enabled": one.is_enabled,
                "next_at": iso_time(one.next_at),
            }
            for one in await bus.profiles.schedules(found)
        ],
        "people": [] if person else _people(rows),
    }


def _setting_view(config: Config, name: str, setting: Setting) -> SettingView:
    source = find_source(config, setting.key) if setting.key else None
    return SettingView(
        name=name,
        value=_masked(config, setting.key or name, setting.value),
        source=setting.source,
        key=setting.key,
        file=source.file if source else "",
        line=source.line if source else 0,
        variable=source.variable if source else "",
        place=ConversationAddress.model_validate(asdict(setting.place)) if setting.place else None,
    )


def _masked(config: Config, path: str, value: object) -> object:
    """Return a value as people may see it."""
    if isinstance(value, dict):
        return {key: _masked(config, join_path(path, key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(config, join_path(path, at), item) for at, item in enumerate(value)]
    return mask_value(path, value, config.variables)


async def _limits(services: Services, found: Profile, agent: str) -> list[LimitView]:
    """Return the limits that apply to calls there, and how much of each is used."""
    usage = services.agent_services.usage
    if usage.store is None:
        return []
    await usage.flush()
    owner = UsageOwner(
        agent=agent or LEAD_AGENT,
        person=found.usage_id if found.person else "",
        room="" if found.person else found.usage_id,
    )
    limits = services.agent_services.config.get().usage.limits
    views = []
    for limit in limits_for(limits, owner, _today()):
        counter = limit.counter
        tokens, nano_usd = await usage.store.used(counter)
        amounts: list[tuple[Literal["tokens", "usd"], float, float]] = []
        if limit.max_tokens >= 0:
            amounts.append(("tokens", limit.max_tokens, tokens))
        if limit.max_nano_usd >= 0:
            amounts.append(("usd", limit.max_nano_usd / NANO, nano_usd / NANO))
        views += [
            LimitView(
                scope=counter.scope,
                name=counter.name,
                period=counter.period,
                unit=unit,
                limit=most,
                used=used,
                resets_at=resets_at(counter.period).isoformat(),
            )
            for unit, most, used in amounts
        ]
    return views


async def _access_view(bus: Bus, found: Profile) -> dict[str, Any]:
    access = await bus.profiles.access(found)
    return {
        "disposition": access.disposition,
        "means": access.means,
        "is_admin": access.is_admin,
        "pairing_id": access.pairing_id,
        "code": access.pairing.code if access.pairing else "",
        "approved_at": iso_time(access.pairing.approved_at if access.pairing else None),
    }


def _conversations(rows: Sequence[InboxRow]) -> list[dict[str, Any]]:
    """Return the conversations of messages, which are sorted newest first, in the same order."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row.thread_id is None or row.thread_id in found or len(found) == MAX_CONVERSATIONS:
            continue
        try:
            message = decode_inbound(row.body)
        except ValueError:  # a damaged row
            continue
        found[row.thread_id] = {
            "channel": row.key.channel,
            "workspace": row.key.workspace,
            "chat": row.key.chat,
            "topic": row.key.topic,
            "thread_id": row.thread_id,
            "place": place_of(message),
            "last_message_at": iso_time(row.received_at),
        }
    return list(found.values())


def _people(rows: Sequence[InboxRow]) -> list[dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        try:
            message = decode_inbound(row.body)
        except ValueError:  # a damaged row
            continue
        sender = message.sender
        view = {"user_id": sender.user_id, "user_name": sender.name}
        found.setdefault(global_user_id(message), view)
    return list(found.values())
