"""The buttons under the list of schedules: pause, resume, run now, delete."""

from collections.abc import Mapping
from functools import partial

from bus.access.policy import is_channel_admin
from bus.buttons import ButtonAction
from bus.context import BusContext
from bus.inbound.button_presses import AuthorizedPress, ButtonActionHandler, PressOutcome
from bus.messages import OutboundEdit, encode_outbound
from bus.outbound.rows import text_key
from bus.outbound.split import split_text
from bus.platform import Disposition
from bus.schedules.changes import Action, ScheduleChanges
from bus.schedules.listing import list_reply, token_number
from bus.schedules.scheduler import Scheduler
from store.errors import RowNotFound
from store.outbox import NewOutboxRow

_ACTIONS: Mapping[ButtonAction, Action] = {
    ButtonAction.SCHEDULE_PAUSE: "pause",
    ButtonAction.SCHEDULE_RESUME: "resume",
    ButtonAction.SCHEDULE_RUN: "run",
    ButtonAction.SCHEDULE_DELETE: "delete",
}


class ScheduleButtons:
    """Carries out presses of schedule buttons, and then shows the updated list."""

    def __init__(self, bus: BusContext, scheduler: Scheduler) -> None:
        self._schedules = bus.schedules
        self._delivery = bus.delivery
        self._changes = ScheduleChanges(
            bus.schedules, scheduler, is_admin=partial(is_channel_admin, bus.policies)
        )

    def by_action(self) -> Mapping[ButtonAction, ButtonActionHandler]:
        """Return the handler of each of these buttons."""
        return dict.fromkeys(_ACTIONS, self.press)

    async def press(self, pressed: AuthorizedPress) -> PressOutcome:
        """Do what the button says."""
        texts, row = pressed.texts, pressed.row
        found = await self._changes.list_chat(row.key)
        number = pressed.token.index
        schedule = next((one for one in found if token_number(one.id) == number), None)
        if schedule is None:
            return PressOutcome(Disposition.TOO_LATE, texts.press_inactive)
        refused = self._changes.refusal(schedule, pressed.press.sender, texts)
        if refused:
            return PressOutcome(Disposition.NOT_ALLOWED, refused)
        action = _ACTIONS[pressed.token.action]
        try:
            told = await self._changes.carry_out(
                action, schedule, texts, key=f"press:{pressed.press.event_id}"
            )
        except RowNotFound:
            return PressOutcome(Disposition.TOO_LATE, texts.press_inactive)
        await self._show(pressed)
        return PressOutcome(Disposition.ACCEPTED, told[:MAX_TOAST_CHARS])

    async def _show(self, pressed: AuthorizedPress) -> None:
        """Edit the message with the button into the list as it is now."""
        row, target = pressed.row, pressed.asked.reply_target
        found = await self._changes.list_chat(row.key)
        last = await self._schedules.list_last(found)
        text, buttons = list_reply(found, last, target.texts, row.id)
        parts = await split_text(self._delivery.adapter(row.key.channel), text)
        if len(parts) > 1:
            return
        edit = OutboundEdit(
            channel=row.key.channel,
            reply_target=target,
            target_key=text_key(str(row.id), 0),
            markdown=text,
            buttons=buttons,
        )
        key = f"{row.id}:schedule:{pressed.press.event_id}"
        await self._delivery.enqueue(
            row.key, [NewOutboxRow(key=key, conversation=row.key, body=encode_outbound(edit))]
        )


MAX_TOAST_CHARS = 200
"""Telegram's limit for the answer to a press, characters."""
