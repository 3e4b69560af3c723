"""Offers to answer an edited message again if it was edited after its answer, and carries out such offers."""

import logging
from collections.abc import Sequence

import anyio

from bus.context import BusContext
from bus.errors import RunError
from bus.history.turn_history import MAX_LATER_ROWS, find_rewind_point, rerun_event_id
from bus.inbound.button_presses import AuthorizedPress, PressOutcome, answer_again, refused_press
from bus.inbound.pipeline import InboundPipeline
from bus.messages import InboundMessage
from bus.outbound.rows import RerunEffect, marked_edit_row, rerun_offer_key, rerun_offer_row
from bus.platform import Disposition
from bus.runs.stream import is_user_message, messages_in
from store.inbox import InboxRow
from store.outbox import NewOutboxRow

log = logging.getLogger(__name__)

RERUN_OFFER_S = 24 * 3600.0
"""How long after its arrival an edited message gets an offer, seconds."""

OPEN_STATES = ("new", "running")

TIMEOUT_S = 5.0
"""Timeout of a request to the agent's server, seconds."""


class RerunOffers:
    """Makes the offers, and answers again when a button is pressed. A message has at most one open offer."""

    def __init__(self, bus: BusContext, pipeline: InboundPipeline) -> None:
        self._history = bus.stores.history
        self._runs = bus.runs
        self._pipeline = pipeline
        self._delivery = bus.delivery
        self._now = bus.now

    async def new_offer(self, row: InboxRow, inbound: InboundMessage) -> list[NewOutboxRow]:
        """Return the offer to answer a message again. Raises StoreError.

        None if the message is too old, or if it was or is left to a person who has taken over.
        """
        is_left = row.outcome == "taken_over" or row.taken_over_by is not None
        if self._now() - row.received_at > RERUN_OFFER_S or is_left:
            return []
        later = await self._history.list_after(row, limit=MAX_LATER_ROWS)
        effect = await self._effect(row, inbound, later)
        return [rerun_offer_row(row, inbound, len(_reruns(row, later)), effect)]

    async def _effect(
        self, row: InboxRow, inbound: InboundMessage, later: Sequence[InboxRow]
    ) -> RerunEffect:
        """Return how answering a message again affects its conversation, according to the current thread."""
        thread_id = row.current_thread_id or row.thread_id
        if thread_id != row.thread_id and not _reruns(row, later):
            return "former"
        if any(one.state in OPEN_STATES for one in later):
            return "later"
        point = await find_rewind_point(self._history, row, inbound)
        try:
            with anyio.fail_after(TIMEOUT_S):
                messages = messages_in(await self._runs.get_state(thread_id or ""))
        except (RunError, TimeoutError) as error:
            log.info("cannot read the messages that follow an edited one: %r", error)
            reruns = _reruns(row, later)
            others = [one for one in later if one not in reruns and one.thread_id == thread_id]
            return "later" if others else "last"
        said = [str(message.get("id")) for message in messages if is_user_message(message)]
        mine = [at for at, one in enumerate(said) if one in (point.message_id, *point.earlier_ids)]
        if not mine:
            return "former"
        return "last" if mine[0] == len(said) - 1 else "later"

    async def accept(self, pressed: AuthorizedPress) -> PressOutcome:
        """Answer an edited message again: the button's action. Raises like `Intake.receive`."""
        row, asked = pressed.row, pressed.asked
        if row.state in OPEN_STATES or not asked.edit_count:
            return PressOutcome(Disposition.TOO_LATE, pressed.texts.press_inactive)
        offered = len(_reruns(row, await self._history.list_after(row, limit=MAX_LATER_ROWS)))
        again = answer_again(
            asked,
            event_id=rerun_event_id(row, asked.edit_count),
            rewind_point=await find_rewind_point(self._history, row, asked),
        )
        disposition = await self._pipeline.receive(again)
        if disposition is not Disposition.ACCEPTED:
            return refused_press(disposition, pressed.texts)
        await self._remove_button(row, asked, offered)
        return PressOutcome(disposition)

    async def _remove_button(self, row: InboxRow, inbound: InboundMessage, number: int) -> None:
        found = await self._delivery.find_row(rerun_offer_key(row, number))
        if found is not None:
            mark = f"✓ {inbound.reply_target.texts.button_rerun}"
            await self._delivery.enqueue(row.key, [marked_edit_row(found, mark)])


def _reruns(row: InboxRow, later: Sequence[InboxRow]) -> list[InboxRow]:
    return [one for one in later if one.event_id.startswith(f"rerun:{row.id}:")]
