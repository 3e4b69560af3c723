"""What people can do with a schedule by command or button: pause, resume, run now, delete."""

from collections.abc import Callable
from typing import Literal

from anyio import to_thread

from bus.locales import Messages
from bus.messages import ConversationKey, Sender
from bus.recurrence import InvalidTimes, find_zone, format_moment
from bus.schedules.scheduler import Scheduler
from bus.schedules.schedules import Schedules, owner_of
from store.schedules import Schedule

Action = Literal["pause", "resume", "run", "delete"]


class ScheduleChanges:
    """Carries out people's changes to the schedules of their chat.

    Args:
        is_admin: Returns whether a sender is an administrator of a channel.
    """

    def __init__(
        self,
        schedules: Schedules,
        scheduler: Scheduler,
        *,
        is_admin: Callable[[str, Sender], bool],
    ) -> None:
        self._schedules = schedules
        self._scheduler = scheduler
        self._is_admin = is_admin

    async def list_chat(self, key: ConversationKey) -> list[Schedule]:
        """Return the schedules of a conversation's chat, with up-to-date outcomes. Raises StoreError."""
        found = await self._schedules.list_chat(key)
        for schedule in found:
            await self._scheduler.settle(schedule.id)
            await to_thread.run_sync(find_zone, schedule.timezone)  # Reads the zone's file.
        return found

    def refusal(self, schedule: Schedule, sender: Sender, texts: Messages) -> str:
        """Return why a person may not change a schedule; "" = they may."""
        owner = owner_of(schedule).sender
        channel = schedule.key.channel if schedule.key is not None else ""
        if sender.user_id == owner.user_id or self._is_admin(channel, sender):
            return ""
        return texts.schedule_not_yours.format(name=owner.name or owner.user_id)

    async def carry_out(
        self, action: Action, schedule: Schedule, texts: Messages, *, key: str
    ) -> str:
        """Carry out an action and return what to tell the person.

        `key`: a run with the same key starts once. Raises RowNotFound, IntakeFull, IntakeClosed, StoreError.
        """
        name = schedule.name
        match action:
            case "pause":
                await self._schedules.pause(schedule.id)
                return texts.schedule_paused.format(name=name)
            case "resume":
                return await self._resume(schedule, texts)
            case "run":
                occurrence = await self._scheduler.run_now(schedule, key)
                if occurrence.outcome == "failed":
                    return texts.schedule_not_started.format(name=name, reason=occurrence.detail)
                return texts.schedule_started.format(name=name)
            case "delete":
                await self._schedules.delete(schedule.id)
                return texts.schedule_deleted.format(name=name)

    async def _resume(self, schedule: Schedule, texts: Messages) -> str:
        try:
            resumed = await self._schedules.resume(schedule.id)
        except InvalidTimes:
            return texts.schedule_over.format(name=schedule.name)
        moment = format_moment(resumed.next_at or 0.0, resumed.timezone)
        return texts.schedule_resumed.format(name=schedule.name, moment=moment)
