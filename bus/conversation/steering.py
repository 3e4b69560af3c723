"""Steering: injects messages into active runs, and finds out which of them the run took.

A message that the run took is in the thread, marked as injected. A message that is not in the thread when the run ends
gets its own turn.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

import anyio

from bus.bounded import BoundedDict
from bus.conversation.control import CancelReason, QueuedMessage
from bus.conversation.record import Outcome, TurnRecord
from bus.errors import RunError, SteeringUnsupported
from bus.history.versions import message_ids, trace_message
from bus.messages import decode_inbound
from bus.outbound.rows import RerunEffect, rerun_offer_row
from bus.outbound.worker import DeliveryWorker
from bus.retry import Backoff
from bus.runs.port import Runs
from bus.runs.requests import SteeringMessage
from bus.runs.uploads import AttachmentUploadResult, FileUploader
from store.inbox import OffersFor
from store.message_history import MessageHistoryStore
from store.outbox import NewOutboxRow

log = logging.getLogger(__name__)

MAX_UNSUPPORTED_THREADS = 1000
"""Maximum number of threads to remember as not supporting injection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A message whose row names the run to inject it into.

    Attributes:
        payload: The message to send; None = an earlier process has sent it, and it has arrived.
    """

    message: QueuedMessage
    payload: SteeringMessage | None


class Steering:
    """Injects messages into runs, and finds out which of them the run took.

    Args:
        history: Repeats its calls until the journal works.
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
        self._uploads = uploads
        self._delivery = delivery
        self._backoff = Backoff(first_s=0.1, cap_s=2.0)
        self._unsupported = BoundedDict[str, None](MAX_UNSUPPORTED_THREADS)

    async def note(self, turn: TurnRecord, message: QueuedMessage) -> Injection | None:
        """Store the run in the row of the message to inject. Return None if the message no longer waits.

        Raises:
            SteeringUnsupported: The server cannot inject messages into this thread.
        """
        attempt, inbound, row_id = turn.attempt, message.inbound, message.row.id
        if attempt.thread_id in self._unsupported:
            raise SteeringUnsupported
        if message.row.run_id is not None and await self._was_injected(turn, message):
            return Injection(message=message, payload=None)
        texts = inbound.reply_target.texts
        is_own = row_id == turn.row.id
        is_edit = is_own or row_id in turn.control.injected
        uploads = AttachmentUploadResult()
        if inbound.attachments and not is_edit:
            adapter = self._delivery.adapter(message.row.key.channel)
            uploads = await self._uploads.upload(adapter, attempt.thread_id, message.row, inbound)
        if not is_own:
            thread_id, run_id = attempt.thread_id, attempt.run_id
            if not await self._history.assign_run(row_id, thread_id=thread_id, run_id=run_id):
                return None
            row = replace(message.row, thread_id=thread_id, run_id=run_id)
            message = replace(message, row=row)
        text = uploads.prompt(message.prompt, texts)
        payload = SteeringMessage(
            assistant_id=turn.assistant_id,
            message_id=message_ids(inbound)[-1],
            inbound=inbound,
            text=texts.edited_note.format(text=text) if is_edit else text,
            files=uploads.files,
        )
        return Injection(message=message, payload=payload)

    async def send(self, turn: TurnRecord, payload: SteeringMessage) -> None:
        """Send a message to the run until the run accepts it.

        Raises:
            SteeringUnsupported: The server cannot inject messages into this thread. This is remembered.
        """
        attempt = turn.attempt
        for tries in count(1):
            try:
                if await self._runs.inject(attempt.thread_id, attempt.run_id, payload):
                    return
            except SteeringUnsupported:
                log.warning(
                    "the agent's server cannot inject messages into thread %s: new messages interrupt its turns",
                    attempt.thread_id,
                )
                self._unsupported[attempt.thread_id] = None
                raise
            except RunError as error:
                log.info("%s could not be injected yet: %s", payload.message_id, error)
            # The run has not begun yet. Or it has just ended; then this task is canceled.
            await anyio.sleep(self._backoff.wait_s(tries))

    async def find_outcome(self, turn: TurnRecord) -> Outcome:
        """Return the outcome of a turn whose run has ended: its reply, and the messages that the run took."""
        control = turn.control
        is_deleted = control.reason is CancelReason.DELETED
        outcome = Outcome(
            reply=turn.attempt.reply,
            released_run_id=(turn.attempt.run_id or None) if is_deleted else None,
        )
        if control.reason is CancelReason.STOPPED:
            return replace(outcome, taken=tuple(await self._stopped_with(turn)))
        if is_deleted:
            return outcome
        own = turn.row.id
        late = next((one for one in control.steered if one.row.id == own), None)
        correction = control.injected.get(own)
        if late is None and correction is not None and control.reason is None:
            found = await self._find_injected(turn, correction)
            late = correction if found != message_ids(correction.inbound)[-1] else None
        taken: list[QueuedMessage] = []
        outdated: list[QueuedMessage] = []
        others = [one for row_id, one in control.injected.items() if row_id != own]
        for message in map(control.newest, others):
            found = await self._find_injected(turn, message)
            if found:
                taken.append(message)
            if found and found != message_ids(message.inbound)[-1]:
                outdated.append(message)
        return replace(outcome, taken=tuple(taken), outdated=tuple(outdated), late=late)

    async def find_taken(self, turn: TurnRecord) -> Outcome | None:
        """Return the outcome if another turn's run took the message before a restart, else None.

        Waits while the server is unreachable, because the message might otherwise be answered twice. A stop or a
        deletion ends the wait.
        """
        for tries in count(1):
            try:
                return await self._taken_by_another(turn)
            except RunError as error:
                if not error.retryable:
                    break
                if turn.control.reason in (CancelReason.STOPPED, CancelReason.DELETED):
                    break
                if tries == 1:
                    log.warning("turn %s waits for its thread: %s", turn.row.id, error)
            await turn.control.pause(self._backoff.wait_s(tries))
        return None

    async def _taken_by_another(self, turn: TurnRecord) -> Outcome | None:
        """Return the outcome if the thread contains the message as an injected one, else None. Raises RunError."""
        if turn.row.thread_id is None:
            return None
        values = await self._runs.get_state(turn.row.thread_id)
        found = trace_message(values, message_ids(turn.message.inbound))
        if not found.was_injected_only:
            return None
        newest = turn.control.newest(turn.message)
        is_outdated = found.injected != message_ids(newest.inbound)[-1]
        return Outcome(outdated=(newest,) if is_outdated else ())

    async def _stopped_with(self, turn: TurnRecord) -> list[QueuedMessage]:
        """Return the messages that are stopped with the turn: injected or waiting to be, and sent before the stop."""
        control = turn.control
        messages = {**control.injected, **{one.row.id: one for one in control.steered}}
        return [
            one
            for row_id, one in messages.items()
            if row_id != turn.row.id
            and (one.row.seq <= control.stopped_seq or await self._find_injected(turn, one))
        ]

    async def _find_injected(self, turn: TurnRecord, message: QueuedMessage) -> str:
        """Return the ID of the newest version that the ended run took; "" = none, or unknown."""
        ids = message_ids(message.inbound)
        found = trace_message(turn.attempt.fold.values or {}, ids).injected
        if not found:
            try:
                values = await self._runs.get_state(turn.attempt.thread_id)
                found = trace_message(values, ids).injected
            except RunError as error:
                log.warning("it is not known yet whether the run took %s: %s", ids[-1], error)
        return found

    async def _was_injected(self, turn: TurnRecord, message: QueuedMessage) -> bool:
        """Return whether the injection of a message before a restart succeeded."""
        try:
            values = await self._runs.get_state(turn.attempt.thread_id)
        except RunError:
            return False
        return bool(trace_message(values, message_ids(message.inbound)).injected)


def rerun_offers(turn: TurnRecord, *, is_discarded: bool = False) -> list[NewOutboxRow]:
    """Return offers to answer messages again whose edits came too late for the run.

    `is_discarded`: another turn's run answered the message.
    """
    if turn.control.reason is CancelReason.TAKEN_OVER:
        return []
    newest, taken = turn.control.newest, turn.outcome.taken
    newer = [one for one in map(newest, taken) if one not in taken]
    own: Sequence[QueuedMessage] = ()
    if not is_discarded and turn.control.reason is None and newest(turn.message) != turn.message:
        own = [newest(turn.message)]
    late = {one.row.id: one for one in (*turn.outcome.outdated, *newer, *own)}
    effect = _effect(turn, takes_more=is_discarded or bool(taken))
    return [rerun_offer_row(one.row, one.inbound, 0, effect) for one in late.values()]


def late_edit_offers(turn: TurnRecord) -> OffersFor:
    """Return a function that makes offers to answer a message again because of an edit that the turn missed.

    Such an edit is stored while the turn ends. Only the transaction that stores the answer can find it.
    """
    control, taken = turn.control, turn.outcome.taken
    ending = {one.row.id: control.newest(one) for one in (turn.message, *taken)}
    known = {
        row_id: max(
            one.inbound.edit_count for one in (message, control.injected.get(row_id)) if one
        )
        for row_id, message in ending.items()
    }

    def offers(row_id: int, body: str) -> list[NewOutboxRow]:
        row = ending[row_id].row
        if body == row.body or control.reason is CancelReason.TAKEN_OVER:
            return []
        try:
            stored = decode_inbound(body)
        except ValueError:  # The row was damaged after it was accepted.
            return []
        if stored.is_stopped or stored.edit_count <= known[row_id]:
            return []
        takes_more = any(one.row.seq > row.seq for one in taken)
        return [rerun_offer_row(row, stored, 0, _effect(turn, takes_more=takes_more))]

    return offers


def _effect(turn: TurnRecord, *, takes_more: bool) -> RerunEffect:
    if turn.control.is_former:
        return "former"
    return "later" if takes_more else "last"
