"""What is done at each transition of a turn: one method for each `Effect` of `bus.conversation.states`.

An effect commits at most once and may be repeated from its start; the machine does that when the journal fails.
"""

import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from itertools import count

import anyio

from bus.conversation.approvals import Questions
from bus.conversation.failures import cancelled_reply, run_error_message
from bus.conversation.machine import CancelReason, EffectHandler, QueuedMessage, RunAttempt, Turn
from bus.conversation.run_reader import RunReader
from bus.conversation.run_slots import RunSlots
from bus.conversation.states import Effect, TurnEvent
from bus.conversation.steering import Steering, late_edit_offers, rerun_offers
from bus.errors import (
    AgentThreadBusy,
    AgentThreadNotFound,
    RewindUnsupported,
    RunError,
    is_store_outage,
    unwrapped,
)
from bus.log_context import bind_conversation
from bus.messages import ReplyTarget
from bus.outbound.live import show_live_reply
from bus.outbound.rows import (
    LiveMessages,
    indicator_row,
    notice_key,
    repeated_edit_rows,
    reply_buttons,
    reply_rows,
    streaming_key,
)
from bus.outbound.split import split_text
from bus.outbound.worker import DeliveryWorker
from bus.platform import Adapter, Clock, SupportsButtons, SupportsIndicators
from bus.retry import Backoff
from bus.runs.port import Runs
from bus.runs.replies import Reply, limit_length
from store.conversations import ConversationStore
from store.errors import StoreError
from store.inbox import InboxRow, InboxStore, TurnStart
from store.outbox import NewOutboxRow

log = logging.getLogger(__name__)

MAX_STARTS = 20
"""Starts of one turn before it is given up as poisonous: a turn that ends the process ends it each time.

A turn that fails in any other way is not started again. So many kills from outside hardly ever hit one turn.
"""

MAX_CREATIONS = 5
"""How often a thread that the server does not know is created for one turn."""

CANCEL_DEADLINE_S = 4.0
"""How long the server may take to cancel a run (SPEC 10: within 5 s)."""

PATIENCE_S = 60.0
"""How long a server that cannot be reached is waited for within one turn."""

BUSY_PATIENCE_S = 900.0
"""How long a thread that somebody else's run holds is waited for."""

QUIET_S = 0.5
"""How long no further edit of a message may come before it is run again: people correct themselves twice."""


class TurnEffects:
    """Carries out what the table of transitions names.

    Args:
        slots: Bound how many agents run at once; held only while one runs.
        max_answer_chars: The longest answer in messages.
        patience_s: How long a server that cannot be reached is waited for; without limit while our database fails.
    """

    def __init__(
        self,
        *,
        inbox: InboxStore,
        conversations: ConversationStore,
        questions: Questions,
        runs: Runs,
        reader: RunReader,
        steering: Steering,
        delivery: DeliveryWorker,
        slots: RunSlots,
        max_answer_chars: int = 60_000,
        patience_s: float = PATIENCE_S,
        now: Clock = time.time,
    ) -> None:
        self._inbox, self._conversations, self._now = inbox, conversations, now
        self._questions = questions
        self._runs, self._reader = runs, reader
        self._steering, self._delivery = steering, delivery
        self._slots, self._max_answer_chars = slots, max_answer_chars
        self._patience_s = patience_s
        self._backoff = Backoff(first_s=0.25, cap_s=5.0)

    def handlers(self) -> Mapping[Effect, EffectHandler]:
        """Return what carries out each effect; that of `CLOSE_QUESTION` is `Questions.mark_answered`."""
        return {
            effect: getattr(self, effect.value)
            for effect in Effect
            if effect is not Effect.CLOSE_QUESTION
        }

    async def nothing(self, turn: Turn) -> None:
        """The state changes, and that is all."""

    async def check_consumed(self, turn: Turn) -> TurnEvent:
        """Take the turn unless another one's run consumed its message before a restart."""
        return await self._steering.check_consumed(turn)

    async def discard(self, turn: Turn) -> None:
        """Finish the row without an answer: it was stopped before it began, or another turn answered it."""
        outcomes = {turn.message.inbound.reply_target: True} if turn.reason is None else {}
        rows = [*self._indicator_rows(turn.row, outcomes), *rerun_offers(turn)]
        await self._inbox.finish(turn.row.id, rows, offers=late_edit_offers(turn))
        self._delivery.notify(turn.row.key)

    async def begin(self, turn: Turn) -> TurnEvent:
        """Bind the conversation's thread and commit that the turn starts, unless its acceptance did both."""
        start = turn.row.start or await self._record_start(turn)
        if start is None:
            return TurnEvent.ALREADY_FINISHED
        turn.row = row = replace(turn.row, follows_question=start.follows_question, start=None)
        bind_conversation(row.key.channel, row.conversation_id, row.thread_id)
        if row.attempts > MAX_STARTS:
            turn.failure_text = turn.texts.interrupted_too_often
            return TurnEvent.GIVE_UP
        turn.attempt = RunAttempt(turn.message, row, thread_exists=not start.has_new_thread)
        return TurnEvent.BEGUN

    async def prepare(self, turn: Turn) -> TurnEvent:
        """Show that work begins; look up the question that the message may answer."""
        question = await self._questions.open_before(turn.row, turn.message.text)
        turn.attempt.question = question
        # What people say to each other gets no sign of work, and mostly no answer.
        is_for_bot = question is None or question.may_be_answered_by(turn.message.inbound)
        if turn.live_reply is None and is_for_bot:
            shown = show_live_reply(self._delivery, turn.row, turn.message.inbound)
            turn.live_reply = await turn.stack.enter_async_context(shown)
        return TurnEvent.PREPARED if turn.attempt.attachments else TurnEvent.UPLOADED

    async def upload_files(self, turn: Turn) -> TurnEvent:
        """Hand the message's files to the thread's uploads."""
        attempt = turn.attempt
        attempt.uploads = await self._steering.uploads.upload(
            self._adapter(turn.row), attempt.thread_id, attempt.attachments, turn.texts
        )
        attempt.attachments = ()
        return TurnEvent.UPLOADED

    async def follow_run(self, turn: Turn) -> TurnEvent:
        """Start, join or resume the run and read its stream to the end."""
        key, sender = turn.row.key, turn.message.inbound.sender
        slot = self._slots.slot(key.channel, (key.workspace, sender.user_id))
        try:
            with unwrapped():
                async with slot, anyio.create_task_group() as tasks:
                    turn.run_tasks = tasks
                    turn.reply = await self._reader.read(turn)
                    tasks.cancel_scope.cancel()
        except RunError as error:
            if self._is_tried_again(turn.attempt, error):
                return TurnEvent.RUN_LOST
            retry = not isinstance(error, RewindUnsupported)
            turn.reply = Reply(
                markdown=run_error_message(error, turn.texts), failed=True, retry=retry
            )
        finally:
            turn.run_tasks = None
        turn.attempt.is_over = True
        return TurnEvent.RUN_ENDED

    async def note_run(self, turn: Turn) -> None:
        """Note the run's id in the journal; from now on it listens."""
        await self._inbox.set_run(turn.row.id, turn.attempt.run_id or "")
        turn.inject()

    async def reconnect(self, turn: Turn) -> TurnEvent:
        """Wait before the run is started or joined again."""
        await anyio.sleep(turn.attempt.wait_s)
        return TurnEvent.UPLOADED

    async def inject(self, turn: Turn) -> TurnEvent:
        """Inject messages into the run, beside its stream. While the journal fails, the run goes on."""
        failures = count(1)
        while turn.to_inject:
            message = turn.to_inject[0]
            try:
                with unwrapped():
                    is_injected = await self._steering.inject(turn, message)
            except StoreError as error:
                if not is_store_outage(error):
                    raise
                log.warning("message %s is injected later: %s", message.row.id, error)
                await anyio.sleep(self._backoff.wait_s(next(failures)))
                continue
            turn.injection_done(message)
            if is_injected and message.row.id != turn.row.id and turn.run_tasks is not None:
                turn.run_tasks.start_soon(self._show_working, message)
        return TurnEvent.INJECTED

    async def collect(self, turn: Turn) -> TurnEvent:
        """Find out which injected messages the run consumed.

        A correction of the turn's own message that came too late for the run has the turn run again.
        """
        late = next((one for one in turn.to_inject if one.row.id == turn.row.id), None)
        if late is not None and turn.reason is None:
            turn.edit(late)
        else:
            turn.consumed = await self._steering.consumed_messages(turn)
        return TurnEvent.DECIDED

    async def cancel_run(self, turn: Turn) -> TurnEvent:
        """Cancel the run at the server; of an edited message, wait for the last edit."""
        attempt = turn.attempt
        if attempt.run_id is not None and not attempt.is_over:
            try:
                with anyio.fail_after(CANCEL_DEADLINE_S):
                    await self._runs.cancel(attempt.thread_id, attempt.run_id)
            except (RunError, TimeoutError) as error:
                log.warning("run %s could not be cancelled: %s", attempt.run_id, error)
        attempt.is_over = True
        if await turn.wait_for_last_edit(QUIET_S):
            return TurnEvent.RERUN
        if turn.reason is CancelReason.INTERRUPTED and await self._reader.read_finished(turn):
            turn.reason = (
                None  # the newer message came too late: the answer is complete, and in the thread
            )
        if turn.reason is CancelReason.DELETED:
            await self._steering.remove(attempt.thread_id, attempt.ids)
        return TurnEvent.RUN_CANCELLED

    async def restart(self, turn: Turn) -> TurnEvent:
        """Go on with the message as it was edited."""
        await self._close_question(turn.attempt)
        turn.restart()
        return TurnEvent.BEGUN

    async def commit(self, turn: Turn) -> TurnEvent:
        """Finish the row and enqueue its answer, in one transaction."""
        await turn.stack.aclose()
        if turn.reason in (None, CancelReason.EDITED) and turn.newest(turn.message) != turn.message:
            turn.reason = None  # it was edited after the run: that is offered to be answered
            turn.outdated.append(turn.newest(turn.message))
        seen = turn.live_reply.shown if turn.live_reply is not None else LiveMessages()
        reply = turn.reply if turn.reason is None else cancelled_reply(turn, seen)
        turn.reply = reply
        row, inbound = turn.row, turn.message.inbound
        rows: list[NewOutboxRow] = []
        question = None
        if reply is not None:
            reply = limit_length(reply, self._max_answer_chars, turn.texts)
            rows = await self._reply_rows(turn, reply, seen)
            question = self._questions.record(row, inbound, reply.question)
            rows += rerun_offers(turn)
        ok = reply is not None and not (reply.failed or reply.stopped)
        outcomes = {message.inbound.reply_target: ok for message in turn.consumed}
        if reply is None and turn.reason is not None:
            outcomes[inbound.reply_target] = False
        rows += self._indicator_rows(row, outcomes)
        answered = [message.row.id for message in turn.consumed]
        if turn.reason is CancelReason.DELETED:
            turn.released_run_id = turn.attempt.run_id
        await self._inbox.finish(
            row.id,
            rows,
            question=question,
            answered_ids=answered,
            released_run_id=turn.released_run_id,
            offers=late_edit_offers(turn),
        )
        self._delivery.notify(row.key)
        waits = reply is not None and bool(reply.question.interrupts)
        return TurnEvent.QUESTION_COMMITTED if waits else TurnEvent.COMMITTED

    async def report_failure(self, turn: Turn) -> None:
        """Finish the row as dead and enqueue a message that says so, in one transaction."""
        await turn.stack.aclose()
        row, text = turn.row, turn.failure_text
        # A text of ours says what has to change first; what failed for no known reason may be tried again.
        reply = Reply(markdown=text or turn.texts.failed, failed=True, retry=not text)
        streaming_count = 0
        while await self._delivery.find_row(streaming_key(row, streaming_count)) is not None:
            streaming_count += 1
        notice = await self._delivery.find_row(notice_key(row))
        noticed = notice.key if notice else ""
        seen = LiveMessages(streaming_count=streaming_count, notice_key=noticed, edit_in_doubt=True)
        rows = await self._reply_rows(turn, reply, seen)
        # What the run consumed fails with it: nobody else works on these messages.
        answered = [message.row.id for message in turn.consumed]
        outcomes = {message.inbound.reply_target: False for message in turn.consumed}
        rows += self._indicator_rows(row, outcomes)
        await self._inbox.finish(
            row.id, rows, dead=True, answered_ids=answered, offers=late_edit_offers(turn)
        )
        self._delivery.notify(row.key)

    async def close(self, turn: Turn) -> None:
        """Close the question that the turn answered."""
        await self._close_question(turn.attempt)

    async def _reply_rows(self, turn: Turn, reply: Reply, seen: LiveMessages) -> list[NewOutboxRow]:
        """Return the rows of a reply."""
        row, adapter = turn.row, self._adapter(turn.row)
        parts = await split_text(adapter, reply.markdown)
        has_buttons = isinstance(adapter, SupportsButtons)
        buttons = reply_buttons(row, reply, turn.texts) if has_buttons else ()
        rows = reply_rows(row, turn.message.inbound, reply, parts, seen, buttons)
        if seen.edit_in_doubt and adapter.capabilities.edits_can_overtake:
            rows += repeated_edit_rows(rows, now=self._now())
        return rows

    async def _record_start(self, turn: Turn) -> TurnStart | None:
        """Bind the thread and commit the start of a turn that waited, or is resumed; None if its row is finished."""
        row, is_new = turn.row, False
        # A thread that replaced the present one since comes with the turn: `/new` gives it to its worker.
        thread_id = row.thread_id or turn.thread_id
        if thread_id is None and row.current_thread_id is None:
            thread_id, is_new = await self._bind_thread(row)
        start = await self._inbox.mark_running(row.id, thread_id=thread_id)
        if start is None:
            return None
        # Before it begins, a row has the run that it was injected into, not one of its own.
        run_id = row.run_id if row.state == "running" else None
        thread_id, attempts = start.thread_id, row.attempts + 1
        turn.row = replace(row, thread_id=thread_id, attempts=attempts, run_id=run_id)
        return replace(start, has_new_thread=is_new)

    async def _bind_thread(self, row: InboxRow) -> tuple[str, bool]:
        """Return the conversation's thread id, and whether it is new; of two first messages one names it for both."""
        found = await self._conversations.find(row.key)
        if found is not None and found.thread_id:
            return found.thread_id, False
        fresh = str(uuid.uuid4())
        return await self._conversations.bind_thread(row.key, fresh, instead_of=None), True

    def _is_tried_again(self, attempt: RunAttempt, error: RunError) -> bool:
        """Decide what follows a run that could not be started or followed; note how long to wait first."""
        attempt.tries += 1
        attempt.wait_s = 0.0
        if isinstance(error, AgentThreadNotFound) and attempt.tries <= MAX_CREATIONS:
            # Nothing to worry about after `/new`, which only names the thread.
            log.info("thread %s is not at the server: it is created", attempt.thread_id)
            attempt.thread_exists = False
            return True
        log.warning("turn %s: %s", attempt.message_id, error)
        patience_s = BUSY_PATIENCE_S if isinstance(error, AgentThreadBusy) else self._patience_s
        attempt.wait_s = self._backoff.wait_s(attempt.tries)
        if self._inbox.outage:
            # The gateway has the same database. Acceptance was promised; the patience begins when it works again.
            attempt.began_at = anyio.current_time()
        return error.retryable and anyio.current_time() - attempt.began_at < patience_s

    async def _close_question(self, attempt: RunAttempt) -> None:
        """Note that what an attempt answered waits no more.

        A cancelled attempt counts too, once the server may have been asked: a thread shows its question until the
        step is done, and would take whatever is said next for the answer that it has already.
        """
        if attempt.question is not None and attempt.resume is not None and attempt.may_exist:
            await self._questions.mark_answered(attempt.question.row)

    async def _show_working(self, message: QueuedMessage) -> None:
        """Keep the working indicator of an injected message up, until cancelled."""
        row, inbound = message.row, message.inbound
        is_first = not (row.attempts or row.run_id or inbound.edit_count)
        target = inbound.reply_target
        async with self._delivery.show_working(row.key.channel, target, is_first=is_first):
            await anyio.sleep_forever()

    def _indicator_rows(
        self, row: InboxRow, outcomes: Mapping[ReplyTarget, bool]
    ) -> list[NewOutboxRow]:
        """Return the rows that turn working indicators of further messages into done (True) or failed ones."""
        if not isinstance(self._adapter(row), SupportsIndicators):
            return []
        return [indicator_row(row.key, target, ok=ok) for target, ok in outcomes.items()]

    def _adapter(self, row: InboxRow) -> Adapter:
        return self._delivery.adapter(row.key.channel)
