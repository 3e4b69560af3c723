"""Lets administrators resend deliveries, discard them, and undo that, for one delivery or all that match."""

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal

from bus.messages import OutboundEdit, OutboundFile, OutboundRemoval, OutboundText, decode_outbound
from bus.outbound.worker import DeliveryWorker
from bus.platform import Adapter, Clock
from store.discarded_deliveries import DiscardedDeliveries
from store.errors import RowConflict, RowNotFound
from store.outbox import NEWEST, DeliveryFilter, DeliveryState, OutboxRow, OutboxStore

BATCH = 100
"""Maximum number of rows that one transaction changes."""

MAX_CHANGED = 10_000
"""Maximum number of rows that one request processes. The response says how many remain."""

RESENDABLE: Sequence[DeliveryState] = ("failed", "uncertain")
DISCARDABLE: Sequence[DeliveryState] = ("failed", "uncertain", "pending")

SecondSend = Literal["may_appear_twice", "appears_once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryChanges:
    """The changes of one request.

    Attributes:
        matched: How many deliveries matched before the request.
        changed: How many were changed.
        remaining: How many matching deliveries were not processed. Repeat the request for these.
        batch: The name for undoing a discard; "" for other requests.
    """

    matched: int
    changed: int
    remaining: int = 0
    batch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondSendEffect:
    """What people may see if a delivery with an unknown outcome is sent again.

    `until`: when the platform stops dropping repeated sends with its key, Unix seconds; None = this does not depend on
    time.
    """

    effect: SecondSend
    until: float | None = None


class Deliveries:
    """Changes deliveries for administrators.

    Args:
        adapters: By channel.
    """

    def __init__(
        self,
        outbox: OutboxStore,
        discarded: DiscardedDeliveries,
        worker: DeliveryWorker,
        *,
        adapters: Mapping[str, Adapter],
        now: Clock,
    ) -> None:
        self._outbox = outbox
        self._discarded = discarded
        self._worker = worker
        self._adapters = adapters
        self._now = now

    async def resend(self, row_id: int) -> None:
        """Send a failed or uncertain delivery again. Raises RowNotFound, RowConflict, StoreError."""
        if not await self._worker.resend([row_id]):
            row = await self._outbox.get(row_id)
            raise RowConflict(f"Delivery {row_id} is {row.state}, not failed or uncertain.")

    async def discard(self, row_id: int) -> None:
        """Discard a delivery that is not being sent. Raises RowNotFound, RowConflict, StoreError."""
        if not await self._discard(_new_batch(), [row_id]):
            await self._outbox.get(row_id)
            raise RowConflict(f"Delivery {row_id} is being sent.")

    async def restore(self, row_id: int) -> None:
        """Put a discarded delivery back as it was. Raises RowNotFound, StoreError."""
        if not await self._restore([row_id]):
            raise RowNotFound(f"There is no discarded delivery {row_id}.")

    async def count_resendable(self, wanted: DeliveryFilter) -> int:
        """Return how many `resend_all` would change. Raises StoreError."""
        return await self._count(wanted, RESENDABLE)

    async def count_discardable(self, wanted: DeliveryFilter) -> int:
        """Return how many `discard_all` would change. Raises StoreError."""
        return await self._count(wanted, DISCARDABLE if wanted.states else RESENDABLE)

    async def resend_all(self, wanted: DeliveryFilter) -> DeliveryChanges:
        """Send all matching failed or uncertain deliveries again, oldest last. Raises StoreError."""
        return await self._change(wanted, RESENDABLE, self._worker.resend)

    async def discard_all(self, wanted: DeliveryFilter) -> DeliveryChanges:
        """Discard all matches that are failed, uncertain or, if the filter says so, pending. Raises StoreError."""
        batch, allowed = _new_batch(), DISCARDABLE if wanted.states else RESENDABLE
        changes = await self._change(wanted, allowed, partial(self._discard, batch))
        return replace(changes, batch=batch)

    async def restore_batch(self, batch: str) -> DeliveryChanges:
        """Undo a discard. Raises RowNotFound, StoreError."""
        found = await self._discarded.find_batch(batch, limit=MAX_CHANGED)
        if not found:
            raise RowNotFound("There are no discarded deliveries of this batch.")
        changed = 0
        for start in range(0, len(found), BATCH):
            changed += len(await self._restore(found[start : start + BATCH]))
        return DeliveryChanges(matched=len(found), changed=changed)

    def second_send(self, row: OutboxRow) -> SecondSendEffect | None:
        """Return what a second send of an uncertain row may do; None for other rows."""
        adapter = self._adapters.get(row.conversation.channel)
        window_s = adapter.capabilities.idempotent_send_s if adapter is not None else 0.0
        return second_send_effect(row, window_s=window_s, now=self._now())

    async def _discard(self, batch: str, row_ids: Sequence[int]) -> list[OutboxRow]:
        rows = await self._discarded.discard(row_ids, batch=batch, now=self._now())
        for row in rows:
            self._worker.notify_gone(row)
        return rows

    async def _restore(self, row_ids: Sequence[int]) -> list[OutboxRow]:
        rows = await self._discarded.restore(row_ids)
        for row in rows:
            self._worker.notify(row.conversation, are_new=False)
        return rows

    async def _count(self, wanted: DeliveryFilter, allowed: Sequence[DeliveryState]) -> int:
        wanted = _only(wanted, allowed)
        return await self._outbox.count(wanted) if wanted.states else 0

    async def _change(
        self,
        wanted: DeliveryFilter,
        allowed: Sequence[DeliveryState],
        change: Callable[[Sequence[int]], Awaitable[list[OutboxRow]]],
    ) -> DeliveryChanges:
        wanted = _only(wanted, allowed)
        matched = await self._count(wanted, allowed)
        if not matched:
            return DeliveryChanges(matched=0, changed=0)
        seen, changed, before = 0, 0, NEWEST
        while seen < MAX_CHANGED:
            rows = await self._outbox.list_recent(**asdict(wanted), limit=BATCH, before=before)
            if not rows:
                break
            seen, before = seen + len(rows), rows[-1].id
            changed += len(await change([row.id for row in rows]))
        return DeliveryChanges(matched=matched, changed=changed, remaining=max(0, matched - seen))


def second_send_effect(row: OutboxRow, *, window_s: float, now: float) -> SecondSendEffect | None:
    """Return what a second send of an uncertain row may do; None for other rows.

    `window_s`: how long the platform drops repeated sends with the same key, seconds.
    """
    if row.state != "uncertain":
        return None
    try:
        body = decode_outbound(row.body)
    except ValueError:  # a damaged row
        return SecondSendEffect(effect="may_appear_twice")
    if isinstance(body, OutboundEdit | OutboundRemoval):
        return SecondSendEffect(effect="appears_once")
    has_other_place = isinstance(body, OutboundText | OutboundFile) and body.uncertain
    until = (row.first_sent_at or 0.0) + window_s
    if has_other_place or now >= until:
        return SecondSendEffect(effect="may_appear_twice")
    return SecondSendEffect(effect="appears_once", until=until)


def _only(wanted: DeliveryFilter, allowed: Sequence[DeliveryState]) -> DeliveryFilter:
    """Return a filter with only the allowed states."""
    return replace(wanted, states=[one for one in allowed if one in (wanted.states or allowed)])


def _new_batch() -> str:
    return uuid.uuid4().hex
