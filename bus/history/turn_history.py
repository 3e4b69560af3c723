"""Finds the rows, reruns and edits of an answered message."""

import re
from dataclasses import replace

from bus.history.versions import message_ids
from bus.messages import InboundMessage, RewindPoint, decode_inbound
from store.inbox import InboxRow
from store.message_history import MessageHistoryStore

MAX_LATER_ROWS = 200
"""Maximum number of later messages to search for reruns of a message."""

_OF_ROW = re.compile(r"(?:rerun|press):(\d{1,18}):")
_EDIT = re.compile(r"#\d+$")


def rerun_event_id(row: InboxRow, edits: int) -> str:
    """Return the event ID of the message that answers a row's edited message again."""
    return f"rerun:{row.id}:{edits}"


async def find_rewind_point(
    history: MessageHistoryStore, row: InboxRow, inbound: InboundMessage
) -> RewindPoint:
    """Return what to remove from the thread before a message is answered again. Raises StoreError."""
    ids = dict.fromkeys(message_ids(inbound))
    for one in await history.list_after(row, limit=MAX_LATER_ROWS, commands=True):
        again = replace(decode_inbound(one.body), key=one.key)
        before = again.rewind_point
        if before is not None and not ids.keys().isdisjoint(
            {before.message_id, *before.earlier_ids}
        ):
            # It has been answered again before, so the thread may contain it with the IDs of that attempt.
            ids.update(dict.fromkeys(message_ids(again)))
    first, *others = ids
    return RewindPoint(
        thread_id=row.thread_id or "",
        message_id=first,
        text=inbound.prompt,
        earlier_ids=tuple(others),
        allow_duplicate=True,
    )


async def apply_edit(
    history: MessageHistoryStore, command: InboxRow, point: RewindPoint
) -> RewindPoint:
    """Return a rewind point with the message's edited text. Raises StoreError.

    `command`: a row of the point's conversation.
    """
    event_id = _EDIT.sub("", point.message_id.partition(":")[2])
    origin = _OF_ROW.match(event_id)
    if origin is not None:
        row = await history.find(int(origin[1]))
        here = await history.find(command.id)
        if row is None or here is None or row.conversation_id != here.conversation_id:
            return point
    else:
        row = await history.find_by_event(command, event_id)
    if row is None or row.kind != "chat":
        return point
    inbound = replace(decode_inbound(row.body), key=row.key)
    is_newest = point.message_id in (
        message_ids(inbound)[-1],
        f"{row.key.channel}:{rerun_event_id(row, inbound.edit_count)}",
    )
    point = replace(point, sender=point.sender or inbound.sender)
    return point if is_newest or not inbound.edit_count else replace(point, text=inbound.prompt)
