"""The list of a chat's schedules as shown to people: texts and buttons. Pure."""

import uuid
from collections.abc import Mapping, Sequence

from bus.buttons import ButtonAction, ButtonToken
from bus.locales import Messages
from bus.messages import Button
from bus.recurrence import format_moment
from bus.schedules.schedules import owner_of
from store.schedules import CHAT, FAILURES, OWNER, Occurrence, Schedule

MAX_WITH_BUTTONS = 5
"""Up to this many schedules have buttons in the list, three each. The view of a single schedule always has them."""


def list_reply(
    schedules: Sequence[Schedule],
    last: Mapping[str, Occurrence],
    texts: Messages,
    row_id: int,
) -> tuple[str, tuple[Button, ...]]:
    """Return the answer to /schedule, and its buttons.

    Args:
        schedules: The schedules of the chat. People refer to them by position, from 1.
        last: The latest occurrence of each schedule, by its ID.
        texts: In the reader's language.
        row_id: The inbox row of the command.
    """
    if not schedules:
        return texts.schedule_none, ()
    lines = [
        f"{number}. **{schedule.name}** · {describe_times(schedule, texts)}"
        f" · {_state(schedule, last.get(schedule.id), texts)}"
        for number, schedule in enumerate(schedules, start=1)
    ]
    buttons: list[Button] = []
    if len(schedules) <= MAX_WITH_BUTTONS:
        for number, schedule in enumerate(schedules, start=1):
            buttons += buttons_of(schedule, str(number), texts, row_id)
    text = "\n".join([texts.schedule_head, *lines, "", texts.schedule_hint])
    return text, tuple(buttons)


def detail_reply(
    schedule: Schedule, number: int, last: Occurrence | None, texts: Messages, row_id: int
) -> tuple[str, tuple[Button, ...]]:
    """Return the answer to /schedule with a number, and its buttons."""
    message = owner_of(schedule)
    text = texts.schedule_detail.format(
        name=schedule.name,
        times=describe_times(schedule, texts),
        state=_state(schedule, last, texts),
        owner=message.sender.name or message.sender.user_id,
        prompt="\n".join(f"> {line}" for line in message.text.splitlines()),
    )
    return text, tuple(buttons_of(schedule, str(number), texts, row_id))


def describe_times(schedule: Schedule, texts: Messages) -> str:
    """Return when a schedule is due, for people."""
    match schedule.kind:
        case "once":
            return texts.schedule_once
        case "every":
            return texts.schedule_every.format(period=schedule.expression)
        case "cron":
            return texts.schedule_cron.format(
                expression=schedule.expression, timezone=schedule.timezone
            )


def buttons_of(schedule: Schedule, number: str, texts: Messages, row_id: int) -> list[Button]:
    """Return the buttons of a schedule. `number`: its position in the list."""
    pause = (ButtonAction.SCHEDULE_PAUSE, texts.button_schedule_pause)
    resume = (ButtonAction.SCHEDULE_RESUME, texts.button_schedule_resume)
    shown = (
        pause if schedule.is_enabled else resume,
        (ButtonAction.SCHEDULE_RUN, texts.button_schedule_run),
        (ButtonAction.SCHEDULE_DELETE, texts.button_schedule_delete),
    )
    return [
        Button(
            label=label.format(number=number),
            token=ButtonToken(action, row_id, token_number(schedule.id)).text,
            style="danger" if action is ButtonAction.SCHEDULE_DELETE else "plain",
        )
        for action, label in shown
    ]


def token_number(schedule_id: str) -> int:
    """Return the number by which a button's token names a schedule of a chat: the first 32 bits of its ID.

    >>> token_number("00000010-0000-4000-8000-000000000000")
    16
    """
    return uuid.UUID(schedule_id).int >> 96


def _state(schedule: Schedule, last: Occurrence | None, texts: Messages) -> str:
    parts = []
    if not schedule.is_enabled:
        owner = owner_of(schedule).sender
        reasons = {
            OWNER: texts.schedule_is_paused_owner,
            CHAT: texts.schedule_is_paused_chat,
            FAILURES: texts.schedule_is_paused_failures,
        }
        reason = reasons.get(schedule.paused_because, texts.schedule_is_paused)
        parts.append(reason.format(name=owner.name or owner.user_id))
    elif schedule.next_at is not None:
        moment = format_moment(schedule.next_at, schedule.timezone)
        parts.append(texts.schedule_next.format(moment=moment))
    if last is not None:
        parts.append(
            texts.schedule_last.format(
                moment=format_moment(last.due_at, schedule.timezone),
                outcome=texts.schedule_outcome(last.outcome),
            )
        )
    return " · ".join(parts)
