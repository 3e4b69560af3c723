"""Describes what caused a message that no person sent: the schedule or hook. Pure."""

from bus.locales import Messages
from bus.messages import HOOK, InboundMessage
from bus.recurrence import format_moment
from store.schedules import Schedule


def schedule_id_of(message: InboundMessage) -> str:
    """Return the ID of the schedule that sent a message; "" = no schedule sent it."""
    return "" if message.origin_kind == HOOK else message.origin.partition(":")[2]


def describe_cause(message: InboundMessage, schedule: Schedule | None, texts: Messages) -> str:
    """Describe the schedule or hook that sent a message, as part of a line; "" = a person sent it.

    Args:
        message: The message.
        schedule: Its schedule; None = it was deleted, or a hook sent the message.
        texts: In the reader's language.
    """
    if not message.origin:
        return ""
    name = message.origin.partition(":")[2]
    # A message that an administrator repeats has a different event ID.
    own = message.event_id.partition(f"{message.origin}:")[2]
    if message.origin_kind == HOOK:
        parts = [
            texts.cause_hook.format(name=name),
            texts.cause_event.format(event=message.hook_event) if message.hook_event else "",
            texts.cause_delivery.format(delivery=own) if own else "",
        ]
    else:
        due = format_moment(float(own), schedule.timezone if schedule else "UTC") if own else ""
        parts = [
            texts.cause_schedule.format(
                name=schedule.name if schedule else name,
                owner=message.sender.name or message.sender.user_id,
            ),
            texts.cause_due.format(moment=due) if due else "",
        ]
    return " · ".join(filter(None, parts))
