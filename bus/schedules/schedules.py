"""Schedules of chats: creates, changes and lists them."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from anyio import to_thread

from bus.messages import ConversationKey, InboundMessage, chat_of, decode_inbound, encode_inbound
from bus.platform import Clock
from bus.recurrence import InvalidTimes, Recurrence, ScheduleKind
from bus.settings.timezone import TimezoneResolver
from store.errors import RowConflict
from store.outbox import NewOutboxRow
from store.schedules import (
    PERSON,
    MissedPolicy,
    Occurrence,
    OverlapPolicy,
    Schedule,
    ScheduleStore,
    missing_schedule,
    paused,
)

MAX_PER_CHAT = 100
"""Maximum number of a chat's schedules that have not ended."""

MAX_NAME_CHARS = 100
MAX_PROMPT_CHARS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRequest:
    """A schedule to create; fields as in `Schedule` and `Recurrence`.

    Attributes:
        prompt: What to send to the agent.
        timezone: "" = the owner's time zone.
    """

    name: str = ""
    prompt: str
    kind: ScheduleKind
    expression: str
    timezone: str = ""
    end_at: float | None = None
    active_hours: str = ""
    missed: MissedPolicy = "once"
    overlap: OverlapPolicy = "queue"
    check_command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChange:
    """Changes to a schedule; None = unchanged. `clears_end`: remove its end."""

    name: str | None = None
    prompt: str | None = None
    kind: ScheduleKind | None = None
    expression: str | None = None
    timezone: str | None = None
    end_at: float | None = None
    clears_end: bool = False
    active_hours: str | None = None
    missed: MissedPolicy | None = None
    overlap: OverlapPolicy | None = None
    check_command: str | None = None


class Schedules:
    """Creates, changes and lists the schedules of chats.

    Args:
        store: The schedules.
        timezones: Knows people's time zones.
        can_check: Whether schedules may have checks.
        on_change: Called after a change, so that the schedulers of all nodes look for the next due time again.
        now: The wall clock.
    """

    def __init__(
        self,
        store: ScheduleStore,
        timezones: TimezoneResolver,
        *,
        can_check: bool,
        on_change: Callable[[], None],
        now: Clock,
    ) -> None:
        self._store = store
        self.timezones = timezones
        self._can_check = can_check
        self._changed = on_change
        self._now = now

    async def create(
        self,
        asked: InboundMessage,
        request: ScheduleRequest,
        notices: Callable[[Schedule], Sequence[NewOutboxRow]] = lambda _: (),
    ) -> Schedule:
        """Create a schedule for the conversation of a message, in the name of its sender.

        Args:
            asked: The message.
            request: The schedule.
            notices: Returns the messages that announce it, which are stored in the same transaction. Must not block.

        Raises:
            InvalidTimes: The times cannot be used, or none of them is in the future.
            RowConflict: The chat has too many schedules, or schedules cannot have checks here.
            StoreError: The database cannot be used.
        """
        now = self._now()
        self._refuse_check(request.check_command)
        if len(await self._store.list_chat(chat_of(asked.key))) >= MAX_PER_CHAT:
            raise RowConflict(f"This chat has {MAX_PER_CHAT} schedules already.")
        zone = request.timezone or await to_thread.run_sync(self.timezones.resolve, asked)
        schedule = Schedule(
            id=str(uuid.uuid4()),
            key=asked.key,
            name=_name(request.name or request.prompt),
            kind=request.kind,
            expression=request.expression,
            timezone=zone,
            since=now,
            end_at=request.end_at,
            active_hours=request.active_hours,
            missed=request.missed,
            overlap=request.overlap,
            check_command=request.check_command,
            body=encode_inbound(template_of(asked, request.prompt)),
            next_at=None,
            created_at=now,
            updated_at=now,
            owner=asked.sender.user_id,
        )
        # Reads the zone's file.
        schedule = replace(schedule, next_at=await to_thread.run_sync(_first_time, schedule, now))
        await self._store.create(schedule, notices(schedule))
        self._changed()
        return schedule

    async def find(self, schedule_id: str) -> Schedule:
        """Return the schedule of a chat. Raises RowNotFound, StoreError."""
        found = await self._store.find(schedule_id)
        if found is None or found.key is None:
            raise missing_schedule(schedule_id)
        return found

    async def list_all(
        self, *, channel: str = "", chat: str = "", limit: int, offset: int
    ) -> list[Schedule]:
        """Return all schedules of chats, even ended ones, oldest first; "" = any channel or chat. Raises StoreError."""
        return await self._store.list_chats(channel=channel, chat=chat, limit=limit, offset=offset)

    async def list_occurrences(self, schedule_id: str, *, limit: int) -> list[Occurrence]:
        """Return the occurrences of the latest due times, newest first. Raises StoreError."""
        return await self._store.list_occurrences(schedule_id, limit=limit)

    async def list_chat(self, key: ConversationKey) -> list[Schedule]:
        """Return the schedules of a conversation's chat that are due again, oldest first. Raises StoreError."""
        return await self._store.list_chat(chat_of(key))

    async def list_known(self, asked: InboundMessage) -> list[Schedule]:
        """Return the schedules that a person can name in the chat of a message: those of the chat, oldest first.

        In their private chat, these are followed by their schedules in other chats. Anywhere else, other people would
        see the names of these chats. Raises StoreError.
        """
        found = await self.list_chat(asked.key)
        if not asked.is_private:
            return found
        key = asked.key
        owned = await self._store.list_owned(
            key.channel, key.workspace, owner=asked.sender.user_id, limit=MAX_PER_CHAT
        )
        here = {one.id for one in found}
        return [*found, *(one for one in owned if one.id not in here)]

    async def list_last(self, schedules: Sequence[Schedule]) -> dict[str, Occurrence]:
        """Return the latest occurrence of each schedule. Raises StoreError."""
        return await self._store.list_last([one.id for one in schedules])

    async def change(self, schedule_id: str, wanted: ScheduleChange) -> Schedule:
        """Change a schedule. Raises InvalidTimes, RowConflict, RowNotFound, StoreError."""
        now = self._now()
        self._refuse_check(wanted.check_command or "")

        def apply(before: Schedule) -> Schedule:
            changed = replace(_changed(before, wanted), updated_at=now)
            if recurrence_of(changed) == recurrence_of(before):
                return changed
            since = (
                now
                if (changed.kind, changed.expression) != (before.kind, before.expression)
                else before.since
            )
            changed = replace(changed, since=since)
            next_at = _first_time(changed, now)
            return replace(changed, next_at=next_at)

        return await self._write(schedule_id, apply)

    async def pause(self, schedule_id: str) -> Schedule:
        """Pause a schedule. Raises RowNotFound, StoreError."""
        now = self._now()

        def apply(before: Schedule) -> Schedule:
            return paused(before, PERSON, now=now) if before.is_enabled else before

        return await self._write(schedule_id, apply)

    async def resume(self, schedule_id: str) -> Schedule:
        """Enable a schedule again. Times that were due meanwhile count as paused, not as missed.

        Raises InvalidTimes if it is not due anymore, RowNotFound, StoreError.
        """
        now = self._now()

        def apply(before: Schedule) -> Schedule:
            next_at = _first_time(before, now)
            return replace(
                before,
                is_enabled=True,
                paused_because="",
                failures=0,
                next_at=next_at,
                updated_at=now,
            )

        return await self._write(schedule_id, apply)

    async def delete(self, schedule_id: str) -> None:
        """Delete a schedule with its occurrences. Raises RowNotFound, StoreError."""
        if not await self._store.delete(schedule_id):
            raise missing_schedule(schedule_id)
        self._changed()

    def _refuse_check(self, command: str) -> None:
        if command and not self._can_check:
            raise RowConflict(
                "Schedules cannot have checks here: the sandbox runs no commands, or guardrails decide about them."
            )

    async def _write(self, schedule_id: str, apply: Callable[[Schedule], Schedule]) -> Schedule:
        await self.find(schedule_id)
        changed = await self._store.change(schedule_id, apply)
        self._changed()
        return changed


def recurrence_of(schedule: Schedule) -> Recurrence:
    """Return when a schedule is due."""
    return Recurrence(
        kind=schedule.kind,
        expression=schedule.expression,
        timezone=schedule.timezone or "UTC",
        since=schedule.since,
        end_at=schedule.end_at,
        active_hours=schedule.active_hours,
    )


def template_of(asked: InboundMessage, prompt: str) -> InboundMessage:
    """Return the message that a schedule sends. It has the place and sender of `asked`, but different words."""
    return InboundMessage(
        event_id="",
        message_id="",
        key=asked.key,
        # The answer is a separate message. A one-time reply address will have expired by then.
        reply_target=replace(asked.reply_target, reply_to="", response_url=""),
        sender=asked.sender,
        text=prompt[:MAX_PROMPT_CHARS],
        is_private=asked.is_private,
        is_addressed=True,
        language=asked.language,
        chat_title=asked.chat_title,
        topic_title=asked.topic_title,
        original_chat=asked.original_chat,
    )


def prompt_of_schedule(schedule: Schedule) -> str:
    """Return what a schedule of a chat sends to the agent."""
    return decode_inbound(schedule.body).text


def owner_of(schedule: Schedule) -> InboundMessage:
    """Return the message of a schedule, whose sender is its owner."""
    return decode_inbound(schedule.body)


def _first_time(schedule: Schedule, now: float) -> float:
    times = recurrence_of(schedule)
    times.check()
    next_at = times.next_after(now)
    if next_at is None:
        raise InvalidTimes("None of its times is in the future.")
    return next_at


def _changed(before: Schedule, wanted: ScheduleChange) -> Schedule:
    names = ("kind", "expression", "timezone", "active_hours", "missed", "overlap", "check_command")
    given = {name: value for name in names if (value := getattr(wanted, name)) is not None}
    if wanted.name is not None:
        given["name"] = _name(wanted.name)
    if wanted.prompt is not None:
        message = replace(decode_inbound(before.body), text=wanted.prompt[:MAX_PROMPT_CHARS])
        given["body"] = encode_inbound(message)
    if wanted.clears_end or wanted.end_at is not None:
        given["end_at"] = wanted.end_at
    if wanted.check_command is not None:
        given["check_digest"] = ""
    return replace(before, **given)


def _name(text: str) -> str:
    r"""Return a name on one line.

    >>> _name("Read the news\nand sum it up")
    'Read the news and sum it up'
    """
    line = " ".join(text.split())
    return line if len(line) <= MAX_NAME_CHARS else f"{line[: MAX_NAME_CHARS - 1]}…"
