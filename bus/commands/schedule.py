"""/schedule: lists the chat's schedules, shows one, and pauses, resumes, runs or deletes it."""

import re
from functools import partial
from typing import cast, get_args

from bus.access.policy import is_channel_admin
from bus.commands.context import CommandContext, CommandReply
from bus.context import BusContext
from bus.schedules.changes import Action, ScheduleChanges
from bus.schedules.listing import detail_reply, list_reply
from bus.schedules.scheduler import Scheduler
from store.errors import RowNotFound
from store.schedules import Schedule


class ScheduleCommand:
    """The command."""

    def __init__(self, bus: BusContext, scheduler: Scheduler) -> None:
        self._schedules = bus.schedules
        self._changes = ScheduleChanges(
            bus.schedules, scheduler, is_admin=partial(is_channel_admin, bus.policies)
        )

    async def schedule(self, context: CommandContext) -> str | CommandReply:
        """List the schedules, show one (`2`), or do something with one (`pause 2`)."""
        texts, row_id = context.texts, context.row.id
        found = await self._changes.list_chat(context.row.key)
        last = await self._schedules.list_last(found)
        action, number = parse_argument(context.argument, count=len(found))
        if number is None:
            text, buttons = list_reply(found, last, texts, row_id)
            return CommandReply(text=text, buttons=buttons)
        if not 1 <= number <= len(found):
            return texts.schedule_unknown.format(number=number)
        schedule = found[number - 1]
        if action is None:
            text, buttons = detail_reply(schedule, number, last.get(schedule.id), texts, row_id)
            return CommandReply(text=text, buttons=buttons)
        return self._changes.refusal(
            schedule, context.inbound.sender, texts
        ) or await self._carry_out(action, schedule, context, number)

    async def _carry_out(
        self, action: Action, schedule: Schedule, context: CommandContext, number: int
    ) -> str:
        key = f"command:{context.row.id}"
        try:
            return await self._changes.carry_out(action, schedule, context.texts, key=key)
        except RowNotFound:
            return context.texts.schedule_unknown.format(number=number)


def parse_argument(argument: str, *, count: int) -> tuple[Action | None, int | None]:
    """Return the action and the schedule's number; (None, None) = list all. A single schedule needs no number.

    >>> [parse_argument(text, count=1) for text in ("", "2", "pause #3", "delete")]
    [(None, None), (None, 2), ('pause', 3), ('delete', 1)]
    >>> parse_argument("delete", count=2), parse_argument("every day", count=2)
    ((None, None), (None, None))
    """
    match = _ARGUMENT.fullmatch(argument.strip().lower())
    if match is None:
        return None, None
    action = cast("Action", match[1]) if match[1] else None
    if match[2]:
        return action, int(match[2])
    return (action, 1) if action and count == 1 else (None, None)


_ARGUMENT = re.compile(rf"({'|'.join(get_args(Action))})?\s*#?(\d{{1,6}})?")
