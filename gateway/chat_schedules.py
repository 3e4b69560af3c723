"""Carries out the agent's tool `schedule` for the person whose message the run answers."""

import re
from datetime import datetime, time, timedelta

from anyio import to_thread
from typing_extensions import override

from agent.tools.schedule import ScheduleArgs, ScheduleBackend, ScheduleCall, ScheduleRefused
from bus.messages import InboundMessage, chat_of
from bus.recurrence import InvalidTimes, ScheduleKind, find_zone, format_moment
from bus.schedules.places import PlaceRefused
from bus.schedules.schedules import ScheduleChange, ScheduleRequest, owner_of
from bus.service import Bus
from store.errors import RowConflict, RowNotFound, StoreError, ValueRefused
from store.schedules import Schedule

_IN = re.compile(r"in\s+((?:\d+\s*[smhdw]\s*)+)", re.IGNORECASE)
_EVERY = re.compile(r"every\s+(.+)", re.IGNORECASE)
_PART = re.compile(r"(\d+)\s*([smhdw])", re.IGNORECASE)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_CRON_FIELDS = 5


class ChatSchedules(ScheduleBackend):
    """The backend of the tool.

    Attributes:
        bus: The running bus; None before it starts and after it stops.
    """

    def __init__(self) -> None:
        self.bus: Bus | None = None

    @override
    async def call(self, call: ScheduleCall) -> str:
        bus = self.bus
        if bus is None:
            raise ScheduleRefused("schedules are not available now")
        try:
            asked = await bus.find_asked(call.thread_id)
            if asked is None:
                raise ScheduleRefused("schedules belong to chats, and this run has no chat")
            return await self._carry_out(bus, asked, call.arguments)
        except (InvalidTimes, PlaceRefused, RowConflict, RowNotFound, ValueRefused) as error:
            raise ScheduleRefused(str(error)) from error
        except StoreError as error:
            raise ScheduleRefused("schedules are not available now") from error

    async def _carry_out(self, bus: Bus, asked: InboundMessage, given: ScheduleArgs) -> str:
        if given.action == "list":
            return await _list(bus, asked)
        if asked.origin:
            raise ScheduleRefused("only a person can set up or change a schedule")
        if given.action == "timezone":
            return await _choose_timezone(bus, asked, given.timezone)
        if given.action == "create":
            return await _create(bus, asked, given)
        if given.chat:
            raise ScheduleRefused("a schedule cannot move to another chat: create one there")
        schedule = await _find(bus, asked, given.number)
        if given.action == "delete":
            await bus.schedules.delete(schedule.id)
            return f"Deleted: {schedule.name}"
        changed = await _changed(bus, schedule, given)
        return await _described(bus, asked, changed, f"Done ({given.action}):")


async def _choose_timezone(bus: Bus, asked: InboundMessage, zone: str) -> str:
    await to_thread.run_sync(find_zone, zone)
    await bus.schedules.timezones.choose(asked, zone)
    return f"The person's time zone is now {zone}. Existing schedules keep theirs."


async def _changed(bus: Bus, schedule: Schedule, given: ScheduleArgs) -> Schedule:
    if given.action == "pause":
        return await bus.schedules.pause(schedule.id)
    if given.action == "resume":
        return await bus.schedules.resume(schedule.id)
    return await bus.schedules.change(schedule.id, _change(bus, schedule, given))


async def _list(bus: Bus, asked: InboundMessage) -> str:
    found = await bus.schedules.list_known(asked)
    private = (
        ""
        if asked.is_private
        else " This person's private chat lists their schedules in other chats."
    )
    if not found:
        return f"This chat has no schedules.{private}"
    lines = []
    for number, one in enumerate(found, start=1):
        described = await _described(bus, asked, one, f"{number}.")
        lines.append(f"{described} Prompt: {owner_of(one).text[:300]!r}")
    return "\n".join([*lines, *filter(None, [private.strip()])])


async def _create(bus: Bus, asked: InboundMessage, given: ScheduleArgs) -> str:
    if not given.prompt.strip() or not given.when.strip():
        raise ScheduleRefused("create needs `prompt` and `when`")
    zone = given.timezone or await to_thread.run_sync(bus.schedules.timezones.resolve, asked)
    await to_thread.run_sync(find_zone, zone)
    if given.timezone and not bus.schedules.timezones.known(asked):
        await bus.schedules.timezones.choose(asked, given.timezone)
    kind, expression = parse_when(
        given.when, now=datetime.fromtimestamp(bus.now(), find_zone(zone))
    )
    place = await bus.places.find(asked, given.chat) if given.chat else asked
    create = bus.schedules.create if place is asked else bus.places.create
    schedule = await create(
        place,
        ScheduleRequest(
            name=given.name,
            prompt=given.prompt,
            kind=kind,
            expression=expression,
            timezone=zone,
            end_at=_end(given.until, zone),
            active_hours=given.active_hours,
            check_command=given.check,
        ),
    )
    return await _described(bus, asked, schedule, "Created")


def _change(bus: Bus, schedule: Schedule, given: ScheduleArgs) -> ScheduleChange:
    zone = given.timezone or schedule.timezone
    kind: ScheduleKind | None = None
    expression = None
    if given.when:
        now = datetime.fromtimestamp(bus.now(), find_zone(zone))
        kind, expression = parse_when(given.when, now=now)
    return ScheduleChange(
        name=given.name or None,
        prompt=given.prompt or None,
        kind=kind,
        expression=expression,
        timezone=given.timezone or None,
        end_at=_end(given.until, zone),
        active_hours=given.active_hours or None,
        check_command=given.check or None,
    )


async def _described(bus: Bus, asked: InboundMessage, schedule: Schedule, what: str) -> str:
    await to_thread.run_sync(find_zone, schedule.timezone)
    text = f"{what} {schedule.name!r}: {schedule.kind} {schedule.expression}"
    if _is_elsewhere(schedule, asked):
        place = owner_of(schedule)
        text += f", in {'their private chat' if place.is_private else place.chat_title or place.key.chat}"
    if not schedule.is_enabled:
        return f"{text}, paused."
    if schedule.next_at is not None:
        text += f", next {format_moment(schedule.next_at, schedule.timezone)}"
    guessed = (
        ""
        if bus.schedules.timezones.known(asked)
        else ", the server's time zone: the person's is not known"
    )
    return f"{text} ({schedule.timezone}{guessed})."


def _is_elsewhere(schedule: Schedule, asked: InboundMessage) -> bool:
    return schedule.key is not None and chat_of(schedule.key) != chat_of(asked.key)


async def _find(bus: Bus, asked: InboundMessage, number: int) -> Schedule:
    """Return a schedule that the person may change. Raises ScheduleRefused."""
    found = await bus.schedules.list_known(asked)
    if not 1 <= number <= len(found):
        raise ScheduleRefused(f"there is no schedule {number}; list shows them")
    schedule = found[number - 1]
    if not bus.may_change(schedule, asked):
        owner = owner_of(schedule).sender
        raise ScheduleRefused(f"only {owner.name or owner.user_id} or an admin may do that")
    return schedule


def _end(until: str, zone: str) -> float | None:
    """Return the end of a day as Unix seconds. Raises InvalidTimes."""
    if not until:
        return None
    try:
        day = datetime.fromisoformat(until.strip()).date()
    except ValueError:
        raise InvalidTimes("until must be a day, such as 2026-12-31.") from None
    return datetime.combine(day, time(23, 59, 59), find_zone(zone)).timestamp()


def parse_when(when: str, *, now: datetime) -> tuple[ScheduleKind, str]:
    """Return the kind and the expression of a time as the agent writes it. Raises InvalidTimes.

    >>> at = datetime.fromisoformat("2026-12-24T17:40:00+00:00")
    >>> parse_when("in 1h 20m", now=at), parse_when("every 2h", now=at), parse_when("0 9 * * 1", now=at)
    (('once', '2026-12-24T19:00:00+00:00'), ('every', '2h'), ('cron', '0 9 * * 1'))
    """
    when = when.strip()
    if match := _IN.fullmatch(when):
        parts = {_UNITS[unit.lower()]: int(count) for count, unit in _PART.findall(match[1])}
        try:
            return "once", (now + timedelta(**parts)).isoformat()
        except OverflowError:
            raise InvalidTimes(f"{when!r} is after the end of the calendar.") from None
    if match := _EVERY.fullmatch(when):
        return "every", match[1].replace(" ", "")
    if when.startswith("@") or len(when.split()) == _CRON_FIELDS:
        return "cron", when
    return "once", when
