"""Finds the rows, reruns and edits of a message that was answered."""

import re
from dataclasses import replace

from bus.history.versions import message_ids
from bus.messages import InboundMessage, RewindPoint, decode_inbound
from store.inbox import InboxRow
from store.message_edits import MessageEditStore
from store.message_history import MessageHistoryStore

MAX_LATER_ROWS = 200
"""Messages after one that are searched for its reruns."""

_OF_ROW = re.compile(r"(?:rerun|press):(\d{1,18}):")
_EDIT = re.compile(r"#\d+$")


def rerun_event_id(row: InboxRow, edits: int) -> str:
    """Return the event id of the message that has a row's message answered again as it was edited."""
    return f"rerun:{row.id}:{edits}"


class TurnHistory:
    """Finds messages by their rows, reruns and ids in the thread."""

    def __init__(self, history: MessageHistoryStore, revisions: MessageEditStore) -> None:
        self._history = history
        self._revisions = revisions

    async def find_row(self, row_id: int) -> InboxRow | None:
        """Return a row as it is now. Raises StoreError."""
        return await self._history.find(row_id)

    async def rows_after(self, row: InboxRow) -> list[InboxRow]:
        """Return the chat rows that came after a row in its conversation. Raises StoreError."""
        found = await self._revisions.list_after(row, limit=MAX_LATER_ROWS)
        return [one for one in found if one.kind == "chat"]

    async def rewind_point(self, row: InboxRow, inbound: InboundMessage) -> RewindPoint:
        """Return what has to be taken out of the thread before a message is answered anew. Raises StoreError."""
        ids = dict.fromkeys(message_ids(inbound))
        for one in await self._revisions.list_after(row, limit=MAX_LATER_ROWS):
            again = replace(decode_inbound(one.body), key=one.key)
            before = again.rewind_point
            if before is not None and not ids.keys().isdisjoint(
                {before.message_id, *before.earlier_ids}
            ):
                # It was answered again before: the thread has it under the ids of that attempt.
                ids.update(dict.fromkeys(message_ids(again)))
        first, *others = ids
        return RewindPoint(
            thread_id=row.thread_id or "",
            message_id=first,
            text=inbound.text,
            earlier_ids=tuple(others),
            allow_duplicate=True,
        )

    async def apply_edit(self, conversation_id: int, exchange: RewindPoint) -> RewindPoint:
        """Return an exchange of a conversation with what the person wrote as it reads now. Raises StoreError."""
        event_id = _EDIT.sub("", exchange.message_id.partition(":")[2])
        origin = _OF_ROW.match(event_id)
        if origin is not None:
            row = await self._history.find(int(origin[1]))
        else:
            row = await self._revisions.find_by_event(conversation_id, event_id)
        if row is None or row.conversation_id != conversation_id or row.kind != "chat":
            return exchange
        inbound = replace(decode_inbound(row.body), key=row.key)
        is_newest = exchange.message_id in (
            message_ids(inbound)[-1],
            f"{row.key.channel}:{rerun_event_id(row, inbound.edit_count)}",
        )
        return (
            exchange
            if is_newest or not inbound.edit_count
            else replace(exchange, text=inbound.text)
        )
