"""A reply, turned into the outbox rows that bring it to the person. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bus.messages import (
    Delivery,
    FileDelivery,
    Inbound,
    RemovalDelivery,
    TextDelivery,
    decode_delivery,
    encode_delivery,
)
from bus.replies import Reply
from store.inbox import InboxRow
from store.outbox import NewDelivery

LEFT_OVER = "…"
"""What a card says that the final answer has no more words for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What people see of a turn before its answer.

    Attributes:
        cards: How many messages grow in place, for the answer to take over.
        notice: The outbox key of a working message that has to go when the answer comes; "" = none.
    """

    cards: int = 0
    notice: str = ""

    @property
    def anything(self) -> bool:
        """Whether there is anything to take over or away."""
        return bool(self.cards or self.notice)


def card_key(row: InboxRow, index: int) -> str:
    """Return the outbox key of a turn's n-th card."""
    return f"{row.id}:card:{index}"


def notice_key(row: InboxRow) -> str:
    """Return the outbox key of a turn's working message."""
    return f"{row.id}:notice"


def text_rows(
    row: InboxRow, inbound: Inbound, parts: Sequence[str], *, cards: int = 0
) -> list[NewDelivery]:
    """Return one row for each part of a text, already cut to the platform's limit.

    The first `cards` parts replace the turn's open cards; cards that are left over say so.
    """
    shown = [*parts, *[LEFT_OVER] * (cards - len(parts))]
    return [
        _row(
            row,
            f"reply:{index}",
            TextDelivery(
                channel=row.key.channel,
                place=inbound.place,
                markdown=part,
                edits=card_key(row, index) if index < cards else "",
            ),
        )
        for index, part in enumerate(shown)
    ]


def reply_rows(
    row: InboxRow, inbound: Inbound, reply: Reply, parts: Sequence[str], seen: Seen
) -> list[NewDelivery]:
    """Return the rows of a turn's answer: its text, cut into `parts`, then its files; the last ends the turn.

    A working message goes after the answer came; it says itself that a turn was stopped.
    """
    texts = text_rows(row, inbound, parts, cards=seen.cards)
    if seen.notice and reply.stopped:
        texts[0] = _changed(texts[0], edits=seen.notice)
    files = [
        _row(
            row,
            f"file:{index}",
            FileDelivery(
                channel=row.key.channel,
                place=inbound.place,
                thread_id=row.thread_id or "",
                path=path,
                name=path.rpartition("/")[2] or "file",
            ),
        )
        for index, path in enumerate(reply.artifacts)
    ]
    *before, last = [*texts, *files]
    if seen.notice and not reply.stopped:
        before.append(last)
        removal = RemovalDelivery(channel=row.key.channel, place=inbound.place, of=seen.notice)
        last = _row(row, "removal", removal)
    return [*before, _changed(last, closes="failed" if reply.failed else "ok")]


def document_row(row: InboxRow, inbound: Inbound, *, name: str, content: str) -> NewDelivery:
    """Return the row of a text file that a command answers with."""
    body = FileDelivery(
        channel=row.key.channel,
        place=inbound.place,
        thread_id=row.thread_id or "",
        path="",
        name=name,
        content=content,
    )
    return _row(row, "file:0", body)


def _changed(row: NewDelivery, **changes: Any) -> NewDelivery:  # noqa: ANN401 - fields of a delivery
    return replace(row, body=encode_delivery(replace(decode_delivery(row.body), **changes)))


def _row(row: InboxRow, name: str, body: Delivery) -> NewDelivery:
    return NewDelivery(key=f"{row.id}:{name}", conversation=row.key, body=encode_delivery(body))
