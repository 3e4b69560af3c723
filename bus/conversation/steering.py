"""Steering: messages that are injected into a run that goes on, looked for in its thread, and removed from it."""

import logging
from dataclasses import replace
from itertools import count

import anyio

from bus.bounded import BoundedDict
from bus.conversation.machine import CancelReason, QueuedMessage, RunAttempt, Turn
from bus.conversation.states import TurnEvent, TurnState
from bus.errors import AgentThreadBusy, RewindUnsupported, RunError, SteeringUnsupported
from bus.history.versions import message_ids, trace_message
from bus.messages import decode_inbound
from bus.outbound.rows import RerunEffect, rerun_offer_row
from bus.outbound.worker import DeliveryWorker
from bus.retry import Backoff
from bus.runs.port import ACTIVE_STATUSES, Runs
from bus.runs.requests import SteeringMessage
from bus.runs.uploads import AttachmentUploadResult, FileUploader
from store.inbox import OffersFor
from store.message_history import MessageHistoryStore
from store.outbox import NewOutboxRow

log = logging.getLogger(__name__)

REMOVE_DEADLINE_S = 5.0
"""How long it may take to remove a deleted message from its thread."""

MAX_EARLIER_RUNS = 3
"""Of a message that was edited again and again, so many of the last runs are looked for."""

MAX_UNSUPPORTED_THREADS = 1000
"""Threads that are remembered as not taking injected messages."""


class Steering:
    """Injects messages into runs.

    An injected message is in the thread, marked, as soon as the run consumed it. That alone tells whether it was:
    what was not consumed before the run ended is answered by a turn of its own.
    """

    def __init__(
        self,
        *,
        history: MessageHistoryStore,
        runs: Runs,
        uploads: FileUploader,
        delivery: DeliveryWorker,
    ) -> None:
        self._history = history
        self._runs = runs
        self.uploads = uploads
        self._delivery = delivery
        self._backoff = Backoff(first_s=0.1, cap_s=2.0)
        self._unsupported = BoundedDict[str, None](MAX_UNSUPPORTED_THREADS)

    async def inject(self, turn: Turn, message: QueuedMessage) -> bool:
        """Inject one message into a turn's run; return whether that can be done. Raises StoreError.

        Where the server cannot, the turn is cancelled instead; that is remembered for the thread.
        """
        attempt = turn.attempt
        if attempt.thread_id in self._unsupported:
            _cancel_instead(turn, message)
            return False
        if message.row.run_id is not None and await self._was_injected(attempt, message):
            turn.injected[message.row.id] = message
            return True
        payload = await self._payload(turn, message)
        if payload is None:
            return False
        try:
            await self._send(attempt, payload)
        except SteeringUnsupported:
            log.warning(
                "the agent's server injects nothing into thread %s: its turns are interrupted",
                attempt.thread_id,
            )
            self._unsupported[attempt.thread_id] = None
            del turn.injected[message.row.id]
            _cancel_instead(turn, message)
            return False
        return True

    async def consumed_messages(self, turn: Turn) -> list[QueuedMessage]:
        """Return the messages that end with a turn whose run is over; they get no answer of their own.

        Where the turn's own message was corrected too late for the run, the turn is edited; where another one was,
        it is outdated.
        """
        own = turn.row.id
        if turn.reason is CancelReason.STOPPED:
            # Whoever stops the turn means all that was injected, or was to be; not what is said after that.
            messages = {**turn.injected, **{one.row.id: one for one in turn.to_inject}}
            return [
                one
                for row_id, one in messages.items()
                if row_id != own
                and (one.row.seq <= turn.stopped_seq or await self._find_injected(turn, one))
            ]
        correction = turn.injected.get(own)
        others = [one for row_id, one in turn.injected.items() if row_id != own]
        if turn.reason is CancelReason.DELETED or not (others or correction):
            return []
        consumed = []
        for message in map(turn.newest, others):
            found = await self._find_injected(turn, message)
            if found:
                consumed.append(message)
            if found and found != message_ids(message.inbound)[-1]:
                turn.outdated.append(message)
        if correction and turn.reason is None:
            found = await self._find_injected(turn, correction)
            if found != message_ids(correction.inbound)[-1]:
                turn.edit(correction)
        return consumed

    async def check_consumed(self, turn: Turn) -> TurnEvent:
        """Return CONSUMED if another turn's run consumed the message, and so answered it; otherwise TAKE.

        While the server cannot be reached this waits: otherwise the message might be answered twice. CANCEL = it
        was stopped or deleted meanwhile.
        """
        for tries in count(1):
            try:
                return await self._find_consumed(turn)
            except RunError as error:
                if not error.retryable:
                    break
                if turn.reason in (CancelReason.STOPPED, CancelReason.DELETED):
                    return TurnEvent.CANCEL
                if tries == 1:
                    log.warning("turn %s waits for its thread: %s", turn.row.id, error)
            await turn.pause(self._backoff.wait_s(tries))
        return TurnEvent.TAKE

    async def replace_earlier_versions(self, attempt: RunAttempt) -> None:
        """Let the thread of an edited message hold its present text alone, or find out that it goes on with that.

        Raises:
            AgentThreadBusy: what was begun with an earlier text has yet to end.
            RunError: the server cannot be reached.
        """
        values = await self._runs.get_state(attempt.thread_id)
        found = trace_message(values, attempt.ids)
        *earlier, newest = attempt.ids
        if found.own == newest:
            return
        if found.own and found.injected == newest:
            # The edit was injected: the run goes on, under the id with which it began.
            attempt.message_id = found.own
            return
        for message_id in earlier[-MAX_EARLIER_RUNS:]:
            run = await self._runs.find_run(attempt.thread_id, None, message_id)
            if run is not None and run[1] in ACTIVE_STATUSES:
                await self._runs.cancel(attempt.thread_id, run[0])
                raise AgentThreadBusy
        try:
            await self._runs.rewind(attempt.thread_id, *earlier)
        except RewindUnsupported:
            log.info("thread %s keeps a message as it was before it was edited", attempt.thread_id)

    async def remove(self, thread_id: str, ids: tuple[str, ...]) -> None:
        """Remove a deleted message from its thread, with what it brought, if that can be done."""
        with anyio.move_on_after(REMOVE_DEADLINE_S):
            for tries in count(1):
                try:
                    await self._runs.rewind(thread_id, *ids)
                except AgentThreadBusy:
                    await anyio.sleep(self._backoff.wait_s(tries))
                except RunError as error:
                    log.info("a deleted message stays in thread %s: %s", thread_id, error)
                    break
                else:
                    break

    async def _find_consumed(self, turn: Turn) -> TurnEvent:
        """Return what the thread says of a turn's message. Raises RunError: nobody knows."""
        if turn.row.thread_id is None:
            return TurnEvent.TAKE
        values = await self._runs.get_state(turn.row.thread_id)
        found = trace_message(values, message_ids(turn.message.inbound))
        if not found.was_injected_only:
            return TurnEvent.TAKE
        if turn.reason in (CancelReason.EDITED, CancelReason.INTERRUPTED):
            turn.reason = None  # too late: it is answered
        newest = turn.newest(turn.message)
        if found.injected != message_ids(newest.inbound)[-1]:
            turn.outdated = [newest]
        return TurnEvent.CONSUMED

    async def _find_injected(self, turn: Turn, message: QueuedMessage) -> str:
        """Return the id of the newest version that a run, which is over, consumed; "" = none, or unknown."""
        ids = message_ids(message.inbound)
        found = trace_message(turn.attempt.fold.values or {}, ids).injected
        if not found:
            try:
                values = await self._runs.get_state(turn.attempt.thread_id)
                found = trace_message(values, ids).injected
            except RunError as error:
                log.warning("whether %s was consumed is looked up later: %s", ids[-1], error)
        return found

    async def _was_injected(self, attempt: RunAttempt, message: QueuedMessage) -> bool:
        """Return whether a message that was injected before a restart arrived then."""
        try:
            values = await self._runs.get_state(attempt.thread_id)
        except RunError:
            return False
        return bool(trace_message(values, message_ids(message.inbound)).injected)

    async def _send(self, attempt: RunAttempt, payload: SteeringMessage) -> None:
        """Send a message to the run as soon as it listens. Raises SteeringUnsupported."""
        for tries in count(1):
            try:
                if await self._runs.inject(attempt.thread_id, attempt.run_id or "", payload):
                    return
            except RunError as error:
                if isinstance(error, SteeringUnsupported):
                    raise
                log.info("%s could not be injected yet: %s", payload.message_id, error)
            # It has yet to begin, or just ended: then this is cancelled.
            await anyio.sleep(self._backoff.wait_s(tries))

    async def _payload(self, turn: Turn, message: QueuedMessage) -> SteeringMessage | None:
        """Return what to inject, noted as injected before it is; None = the message waits no more."""
        attempt, inbound = turn.attempt, message.inbound
        texts, row_id = inbound.reply_target.texts, message.row.id
        is_own = row_id == turn.row.id
        is_edit = is_own or row_id in turn.injected
        uploads = AttachmentUploadResult()
        if inbound.attachments and not is_edit:
            adapter = self._delivery.adapter(message.row.key.channel)
            uploads = await self.uploads.upload(
                adapter, attempt.thread_id, inbound.attachments, texts
            )
        if not is_own:
            thread_id, run_id = attempt.thread_id, attempt.run_id or ""
            if not await self._history.assign_run(row_id, thread_id=thread_id, run_id=run_id):
                return None
            row = replace(message.row, thread_id=thread_id, run_id=run_id)
            message = replace(message, row=row)
        turn.injected[row_id] = message
        text = uploads.prompt(message.prompt, texts)
        if is_edit:
            text = texts.edited_note.format(text=text)
        return SteeringMessage(
            assistant_id=turn.assistant_id,
            message_id=message_ids(inbound)[-1],
            inbound=inbound,
            text=text,
            files=uploads.files,
        )


def rerun_offers(turn: Turn) -> list[NewOutboxRow]:
    """Return offers to answer again what was edited too late for the run, until now."""
    newer = [one for one in map(turn.newest, turn.consumed) if one not in turn.consumed]
    late = {one.row.id: one for one in (*turn.outdated, *newer)}
    is_alone = turn.state is TurnState.DELIVERING and not turn.consumed
    effect = _effect(turn, takes_more=not is_alone)
    return [rerun_offer_row(one.row, one.inbound, 0, effect) for one in late.values()]


def late_edit_offers(turn: Turn) -> OffersFor:
    """Return what offers to answer again the messages that end with a turn and have an edit that it knows nothing of.

    An edit may be stored while the answer is: only the transaction that stores the answer can tell.
    """
    ending = {one.row.id: turn.newest(one) for one in (turn.message, *turn.consumed)}
    known = {
        row_id: max(one.inbound.edit_count for one in (message, turn.injected.get(row_id)) if one)
        for row_id, message in ending.items()
    }

    def offers(row_id: int, body: str) -> list[NewOutboxRow]:
        row = ending[row_id].row
        if body == row.body:
            return []
        try:
            stored = decode_inbound(body)
        except ValueError:  # damaged since it was accepted: its answer is stored without an offer
            return []
        if stored.is_stopped or stored.edit_count <= known[row_id]:
            return []
        takes_more = any(one.row.seq > row.seq for one in turn.consumed)
        return [rerun_offer_row(row, stored, 0, _effect(turn, takes_more=takes_more))]

    return offers


def _effect(turn: Turn, *, takes_more: bool) -> RerunEffect:
    if turn.is_former:
        return "elsewhere"
    return "later" if takes_more else "last"


def _cancel_instead(turn: Turn, message: QueuedMessage) -> None:
    """Do what can be done where nothing can be injected."""
    if message.row.id == turn.row.id:
        turn.edit(message)
    else:
        turn.cancel(CancelReason.INTERRUPTED)
