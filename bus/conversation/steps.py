"""The steps of a turn: each one calls a store or the agent's server, or evaluates the result.

A step reads the turn and returns its result. Only `bus.conversation.turn` changes the turn. Each step may be repeated.
Steps repeat journal calls until the journal works. They raise errors of the agent's server as `RunError`, and the turn
decides what to do next.
"""

import logging
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from itertools import count

import anyio

from bus.conversation.control import CancelReason, QueuedMessage
from bus.conversation.failures import (
    canceled_reply,
    failed_reply,
    operator_stop_reply,
    run_error_message,
)
from bus.conversation.open_questions import OpenQuestion, OpenQuestions
from bus.conversation.record import Outcome, TurnRecord
from bus.conversation.run_slots import RunSlots
from bus.conversation.steering import Injection, Steering, late_edit_offers, rerun_offers
from bus.errors import AgentThreadBusy, RewindUnsupported, RunError, RunMoves
from bus.history.versions import trace_message
from bus.log_context import bind_conversation
from bus.messages import ReplyTarget, prompt_of
from bus.notifications.rows import MAX_UNREAD, quote_unread
from bus.outbound.live_reply import LiveReply, show_live_reply
from bus.outbound.rows import (
    LiveMessages,
    indicator_row,
    notice_key,
    operator_stop_rows,
    repeated_edit_rows,
    reply_buttons,
    reply_rows,
    silent_rows,
    streaming_key,
)
from bus.outbound.split import split_text
from bus.outbound.worker import DeliveryWorker
from bus.platform import Adapter, Clock, SupportsButtons, SupportsIndicators
from bus.retry import PATIENCE_S, Backoff, RunPatience, retried
from bus.runs.port import ACTIVE_STATUSES, Runs, StreamedPart
from bus.runs.questions import chosen_index, is_approval, resume_value
from bus.runs.replies import (
    Reply,
    ReplyFold,
    limit_length,
    turn_messages,
)
from bus.runs.requests import AgentRunRequest
from bus.runs.stream import INTERRUPTS, RunFailed, has_message
from bus.runs.uploads import AttachmentUploadResult, FileUploader
from bus.tracing import NO_TRACER, MessageTracer
from store.conversations import ConversationStore
from store.inbox import InboxRow, InboxStore, TurnEnd, TurnOutcome
from store.message_history import MessageHistoryStore
from store.outbox import NewOutboxRow

log = logging.getLogger(__name__)

CANCEL_DEADLINE_S = 4.0
"""Time limit for the server to cancel a run, seconds. People see the effect of a stop within 5 s."""

END_DEADLINE_S, END_POLL_S = 4.0, 0.05
"""How long to wait for the end of a canceled run, and how often to check, seconds."""

REMOVE_DEADLINE_S = 5.0
"""Time limit for removing a deleted message from its thread, seconds."""

MAX_EARLIER_RUNS = 3
"""Maximum number of earlier versions of an edited message for which to find and cancel runs."""

MAX_PROBLEM_CHARS = 1000
"""Maximum length of a stored reason for a failure, characters."""

FAILED_STATUSES = ("error", "timeout")
"""Statuses of failed runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """No run starts for a message. `reply` is the answer instead; None = no answer."""

    reply: Reply | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionMatch:
    """Whether and how a message answers the question that its thread waits for.

    Attributes:
        question: The question; None = the thread no longer waits for an answer.
        resume: The answer to the question; None = the message starts a run.
        refusal: Set if the sender may not decide, or pressed a button that is no longer active; None = the run starts
            or resumes.
    """

    question: OpenQuestion | None = None
    resume: object = None
    refusal: Refusal | None = None


class TurnSteps:
    """The steps of turns. See the module.

    Args:
        slots: Limit the number of active runs.
        max_chars: Maximum length of an answer that is sent as messages, characters. A longer one is sent as a file.
        patience_s: How long to wait for an unreachable server, seconds. There is no limit while our database fails.
    """

    def __init__(
        self,
        *,
        inbox: InboxStore,
        conversations: ConversationStore,
        history: MessageHistoryStore,
        questions: OpenQuestions,
        runs: Runs,
        uploads: FileUploader,
        delivery: DeliveryWorker,
        slots: RunSlots,
        max_chars: int = 60_000,
        patience_s: float = PATIENCE_S,
        now: Clock = time.time,
        tracer: MessageTracer = NO_TRACER,
    ) -> None:
        self.max_chars = max_chars
        self._inbox = retried(inbox, "turns")
        self._conversations = retried(conversations, "turns")
        self._questions = retried(questions, "turns")
        self._delivery = retried(delivery, "turns")
        self._runs, self._uploads, self._slots = runs, uploads, slots
        self._steering = Steering(
            history=retried(history, "turns"), runs=runs, uploads=uploads, delivery=delivery
        )
        self._patience_s, self._now, self._tracer = patience_s, now, tracer
        self._backoff = Backoff(first_s=0.1, cap_s=2.0)

    # ---- before the run -----------------------------------------------------------------------

    async def find_taken(self, turn: TurnRecord) -> Outcome | None:
        """Find out whether another turn's run took the message before a restart. See `Steering.find_taken`."""
        return await self._steering.find_taken(turn)

    async def begin(self, turn: TurnRecord) -> InboxRow | None:
        """Bind the conversation's thread and commit the start of the turn.

        Does nothing if accepting the row already did both. Returns the row with its `start`; None = the row is
        finished.
        """
        row = turn.row if turn.row.start is not None else await self._record_start(turn)
        if row is None or row.start is None:
            return None
        bind_conversation(row.key.channel, row.conversation_id, row.thread_id)
        if row.follows_question == row.start.follows_question:
            return row
        return replace(row, follows_question=row.start.follows_question)

    async def open_question(self, turn: TurnRecord) -> OpenQuestion | None:
        """Look up the question that the message may answer. Removes the buttons of a question that it ignores."""
        message = turn.message
        is_repeated = message.inbound.rewind_point is not None
        return await self._questions.open_before(turn.row, None if is_repeated else message.text)

    def is_for_bot(self, turn: TurnRecord) -> bool:
        """Return whether to show people that the bot works on the message.

        Messages that people write to each other get no indicator, and usually no answer.
        """
        question = turn.attempt.question
        return question is None or question.may_be_answered_by(turn.message.inbound)

    def show_working(self, turn: TurnRecord) -> AbstractAsyncContextManager[LiveReply]:
        """Inside the block, show that the turn runs and what its run writes."""
        return show_live_reply(self._delivery, turn.row, turn.message.inbound, now=self._now)

    async def upload(self, turn: TurnRecord) -> AttachmentUploadResult:
        """Upload the message's files to the thread, and transcribe recordings."""
        inbound = turn.message.inbound
        point = inbound.rewind_point
        if not inbound.attachments:
            return AttachmentUploadResult(files=point.files if point else ())
        adapter = self._adapter(turn.row)
        return await self._uploads.upload(adapter, turn.attempt.thread_id, turn.row, inbound)

    # ---- the run ------------------------------------------------------------------------------

    def slot(self, turn: TurnRecord) -> AbstractAsyncContextManager[None]:
        """Wait for a run slot and hold it inside the block."""
        key, sender = turn.row.key, turn.message.inbound.sender
        return self._slots.slot(key.channel, (key.workspace, sender.user_id))

    def new_patience(self) -> RunPatience:
        """Return the patience for the run's retries."""
        return RunPatience(self._patience_s)

    @property
    def is_outage(self) -> bool:
        """Whether our database is failing."""
        return bool(self._inbox.outage)

    async def prepare_thread(self, turn: TurnRecord) -> str:
        """Create the thread if it is new. Remove earlier versions of an edited message from it.

        Returns the message's ID in the thread. Raises RunError.
        """
        attempt = turn.attempt
        if not attempt.thread_exists:
            key = turn.row.key
            metadata = {
                "channel": key.channel,
                "workspace": key.workspace,
                "chat": key.chat,
                "topic": key.topic,
            }
            await self._runs.create_thread(attempt.thread_id, metadata)
        elif len(attempt.ids) > 1:
            return await self._replace_earlier_versions(turn)
        return attempt.message_id

    async def match_question(self, turn: TurnRecord, asked: OpenQuestion) -> QuestionMatch:
        """Return whether and how the message answers the question that its thread waits for. Raises RunError."""
        attempt, inbound = turn.attempt, turn.message.inbound
        values = await self._runs.get_state(attempt.thread_id)
        ids = {str(one.get("id") or "") for one in values.get(INTERRUPTS) or []}
        interrupts = [one for one in asked.question.interrupts if one.id in ids]
        if not interrupts:
            if attempt.is_again:
                # An earlier attempt or process may have answered it with this message.
                return QuestionMatch(question=asked)
            await self._questions.mark_answered(asked.row)
            if not inbound.answers_row:
                return QuestionMatch()
            return QuestionMatch(refusal=Refusal(reply=Reply(markdown=turn.texts.press_inactive)))
        refusal = self._refusal(turn, asked)
        if refusal is not None:
            self._questions.keep_open(asked)
            return QuestionMatch(question=asked, refusal=refusal)
        # Use only the sender's own words, because they often quote the question.
        words = turn.message.text
        is_choice = chosen_index(asked.question, words) is not None
        answer = words if is_choice else attempt.files.prompt(words, turn.texts)
        mark = turn.texts.mark_approved if is_approval(words) else turn.texts.mark_denied
        await self._questions.remove_buttons(
            asked.row, mark if asked.question.needs_approval else ""
        )
        resume = resume_value(interrupts, answer, asked.question)
        return QuestionMatch(question=asked, resume=resume)

    async def start(self, turn: TurnRecord) -> str:
        """Start the run of the message, or return the one that answers it. Raises RunError (see `Runs.start`)."""
        attempt = turn.attempt
        return await self._runs.start(
            AgentRunRequest(
                thread_id=attempt.thread_id,
                assistant_id=turn.assistant_id,
                message_id=attempt.message_id,
                inbound=turn.message.inbound,
                text=await self._prompt(turn),
                resume=attempt.resume,
                is_again=attempt.is_again,
                known_run_id=attempt.run_id,
                answers_question=attempt.question is not None,
                files=attempt.files.files,
                config=turn.session.config,
                context=turn.context,
                traceparent=self._tracer.traceparent(turn.row),
            )
        )

    def new_fold(self, turn: TurnRecord) -> ReplyFold:
        """Return an empty fold for the run's events."""
        inbound = turn.message.inbound
        return ReplyFold(
            turn.attempt.message_id,
            self.max_chars,
            approval_hint=self._approval_hint(turn),
            may_be_silent=bool(inbound.origin) or not inbound.is_private,
        )

    async def set_run(self, turn: TurnRecord) -> None:
        """Store the run in the row."""
        await self._inbox.set_run(turn.row.id, turn.attempt.run_id)

    def events(self, turn: TurnRecord) -> AsyncGenerator[StreamedPart, None]:
        """Yield the run's events after the last one that was read. Raises RunError."""
        attempt = turn.attempt
        return self._runs.events(attempt.thread_id, attempt.run_id, attempt.seen)

    async def note_injection(self, turn: TurnRecord, message: QueuedMessage) -> Injection | None:
        """Store in a message's row that it is injected into the run. Return None if the message no longer waits.

        Raises SteeringUnsupported.
        """
        return await self._steering.note(turn, message)

    async def inject(self, turn: TurnRecord, injection: Injection) -> None:
        """Send a message to the run until the run accepts it. Raises SteeringUnsupported."""
        if injection.payload is not None:
            await self._steering.send(turn, injection.payload)

    async def keep_indicator(self, message: QueuedMessage) -> None:
        """Show the working indicator of an injected message until canceled."""
        row, inbound = message.row, message.inbound
        if inbound.may_be_declined:
            await anyio.sleep_forever()
        is_first = not (row.starts or row.run_id or inbound.edit_count)
        target = inbound.reply_target
        show_working = self._delivery.show_working(row.key.channel, target, is_first=is_first)
        if show_working is not None:
            await show_working()

    async def conclude(self, turn: TurnRecord) -> Reply:
        """Return the answer after the last event. If the stream broke off, request the run's status.

        Raises:
            RunMoves: Another node continues the run.
            RunError: The server cannot be reached.
        """
        attempt, fold = turn.attempt, turn.attempt.fold
        status = fold.ended
        if fold.failure is None and not status:
            status = await self._runs.get_status(attempt.thread_id, attempt.run_id)
        if fold.failure is not None or status in FAILED_STATUSES:
            return failed_reply(turn, fold.failure or RunFailed(status, ""))
        if fold.is_interrupted:
            return fold.reply(turn.texts)
        if status == "interrupted" and turn.control.is_handed_over:
            raise RunMoves
        if status == "interrupted" and not await self._waits_for_answer(turn):
            return operator_stop_reply(turn)  # An API client canceled it.
        reply, messages = fold.reply(turn.texts), turn_messages(fold.values, attempt.message_id)
        if not messages or messages[-1].get("tool_calls") or reply.silent:
            # The stream contained no states, or it lacked the interrupts that its tool calls wait for. A silent answer
            # shows people nothing, so make sure that it does not come from a state that the stream left out.
            fold.set_state(await self._runs.get_state(attempt.thread_id))
            reply = fold.reply(turn.texts)
        return reply

    async def _waits_for_answer(self, turn: TurnRecord) -> bool:
        """Return whether an interrupted run asks a question that a broken stream may have left out."""
        attempt = turn.attempt
        if not attempt.fold.ended:
            attempt.fold.set_state(await self._runs.get_state(attempt.thread_id))
        return attempt.fold.is_interrupted

    def error_reply(self, turn: TurnRecord, error: RunError) -> Reply:
        """Return the answer to a message whose run could not be started or followed."""
        retry = not isinstance(error, RewindUnsupported)
        text = run_error_message(error, turn.texts)
        return Reply(markdown=text, failed=True, retry=retry, problem=str(error))

    # ---- its end ------------------------------------------------------------------------------

    async def cancel(self, turn: TurnRecord) -> None:
        """Cancel the run on the server. If its ID is unknown, find it by the message."""
        attempt = turn.attempt
        may_have_run = bool(attempt.run_id) or attempt.is_asked or turn.row.starts > 1
        if attempt.is_over or not may_have_run:
            return
        try:
            with anyio.fail_after(CANCEL_DEADLINE_S):
                await self._runs.cancel(attempt.thread_id, attempt.run_id, attempt.message_id)
        except (RunError, TimeoutError) as error:
            log.warning("run %s could not be canceled: %s", attempt.run_id, error)

    async def find_outcome(self, turn: TurnRecord) -> Outcome:
        """Return the outcome of the turn. See `Steering.find_outcome`."""
        return await self._steering.find_outcome(turn)

    async def answer_despite_cancel(self, turn: TurnRecord) -> Reply | None:
        """Return the answer of a run that succeeded although it was canceled; None = it did not succeed.

        A run that asks for approval does not count as successful, because the newer message does not answer it.
        """
        attempt = turn.attempt
        reply = attempt.reply
        if reply is None and attempt.run_id:
            try:
                if await self._status_at_end(attempt.thread_id, attempt.run_id) != "success":
                    return None
                values = await self._runs.get_state(attempt.thread_id)
            except RunError as error:
                log.info("it is not known whether run %s succeeded: %s", attempt.run_id, error)
                return None
            if not has_message(values, attempt.message_id):
                return None  # It answered an earlier version of the message.
            attempt.fold.set_state(values)
            reply = attempt.fold.reply(turn.texts)
        if reply is None or reply.failed or reply.question.interrupts:
            return None
        return reply

    async def remove_from_thread(self, turn: TurnRecord) -> None:
        """Remove a deleted message and everything after it from its thread, if the server can do so."""
        thread_id, ids = turn.attempt.thread_id, turn.attempt.ids
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

    async def close_question(self, turn: TurnRecord) -> None:
        """Record that the question that the attempt answered is closed.

        A canceled attempt closes it too, if the server may have received the answer. The thread shows the question
        until the step has ended, and until then it would take the next message for another answer.
        """
        attempt = turn.attempt
        may_have_run = attempt.is_asked or attempt.is_again
        if attempt.question is not None and attempt.resume is not None and may_have_run:
            await self._questions.mark_answered(attempt.question.row)

    async def discard(self, turn: TurnRecord) -> None:
        """Finish the row without an answer."""
        reason, target = turn.control.reason, turn.message.inbound.reply_target
        outcomes = {target: True} if reason is None else {}
        rows = [
            *self._indicator_rows(turn.row, outcomes),
            *rerun_offers(turn, is_discarded=True),
            *(
                operator_stop_rows(turn.row, turn.message.inbound)
                if turn.control.by_operator
                else ()
            ),
        ]
        how: TurnOutcome = "joined" if reason is None else _outcome_of(reason)
        await self._inbox.finish(turn.row.id, rows, end=TurnEnd(how), offers=late_edit_offers(turn))
        self._delivery.notify(turn.row.key)

    def notify(self, row: InboxRow) -> None:
        """Announce that a row's conversation has stored messages to send."""
        self._delivery.notify(row.key)

    async def finish(self, turn: TurnRecord) -> bool:
        """Finish the row and enqueue its answer in one transaction. Return whether the answer asks for approval."""
        row, inbound, outcome, reason = (
            turn.row,
            turn.message.inbound,
            turn.outcome,
            turn.control.reason,
        )
        seen = turn.live.shown if turn.live is not None else LiveMessages()
        reply = outcome.reply if reason is None else canceled_reply(turn, seen)
        rows: list[NewOutboxRow] = []
        question = None
        outcomes: dict[ReplyTarget, bool] = {}
        if reply is not None and reply.silent:
            rows = silent_rows(row, inbound, seen)
            was_shown = seen.exist or row.starts > 1 or not inbound.may_be_declined
            outcomes |= {inbound.reply_target: True} if was_shown else {}
        elif reply is not None:
            reply = limit_length(reply, self.max_chars, turn.texts)
            rows = await self._reply_rows(turn, reply, seen)
            question = self._questions.record(row, inbound, reply.question)
            rows += rerun_offers(turn)
        ok = reply is not None and not (reply.failed or reply.stopped)
        outcomes |= {message.inbound.reply_target: ok for message in outcome.taken}
        if reply is None and reason is not None:
            outcomes[inbound.reply_target] = False
        rows += self._indicator_rows(row, outcomes)
        await self._inbox.finish(
            row.id,
            rows,
            question=question,
            end=TurnEnd(_outcome(reply, reason), _problem(reply), _signed_at(turn)),
            answered_ids=[message.row.id for message in outcome.taken],
            released_run_id=outcome.released_run_id,
            offers=late_edit_offers(turn),
        )
        self._delivery.notify(row.key)
        return reply is not None and bool(reply.question.interrupts)

    async def fail(self, turn: TurnRecord) -> None:
        """Mark the row as dead and enqueue a message about the failure, in one transaction."""
        row, text, taken = turn.row, turn.failure_text, turn.outcome.taken
        # A failure text says what must change before a retry. Without one, the reason is unknown, and a retry may help.
        reply = Reply(markdown=text or turn.texts.failed, failed=True, retry=not text)
        streaming_count = 0
        while await self._delivery.find_row(streaming_key(row, streaming_count)) is not None:
            streaming_count += 1
        notice = await self._delivery.find_row(notice_key(row))
        noticed = notice.key if notice else ""
        seen = LiveMessages(streaming_count=streaming_count, notice_key=noticed, edit_in_doubt=True)
        rows = await self._reply_rows(turn, reply, seen)
        # Messages that the run took fail with it, because no other turn answers them.
        rows += self._indicator_rows(
            row, dict.fromkeys((m.inbound.reply_target for m in taken), False)
        )
        await self._inbox.finish(
            row.id,
            rows,
            dead=True,
            end=TurnEnd("failed", _problem(reply), _signed_at(turn)),
            answered_ids=[message.row.id for message in taken],
            offers=late_edit_offers(turn),
        )
        self._delivery.notify(row.key)

    # ---- parts of the steps --------------------------------------------------------------------------

    async def _prompt(self, turn: TurnRecord) -> str:
        """Return the message's text, and what people have seen and said since the agent's last run."""
        row, inbound = turn.row, turn.message.inbound
        person = inbound.sender.user_id if inbound.is_private else ""
        unread = await self._delivery.list_unread(row, person, limit=MAX_UNREAD)
        text = turn.attempt.files.prompt(turn.message.prompt, turn.texts)
        return prompt_of(text, quote_unread(unread))

    async def _record_start(self, turn: TurnRecord) -> InboxRow | None:
        """Bind the thread and commit the start of a turn that waited or is resumed. None = its row is finished."""
        row, is_new = turn.row, False
        # After `/new`, the turn has the thread of its queue.
        thread_id = row.thread_id or turn.thread_id
        if thread_id is None and row.current_thread_id is None:
            thread_id, is_new = await self._bind_thread(row)
        start = await self._inbox.mark_running(row.id, thread_id=thread_id)
        if start is None:
            return None
        return replace(
            row,
            thread_id=start.thread_id,
            starts=row.starts + 1,
            # A row whose turn has not begun has the ID of the run that it was injected into.
            run_id=row.run_id if row.state == "running" else None,
            start=replace(start, has_new_thread=is_new),
        )

    async def _bind_thread(self, row: InboxRow) -> tuple[str, bool]:
        """Return the conversation's thread ID, and whether the thread is new.

        Concurrent first messages get the same thread.
        """
        found = await self._conversations.find(row.key)
        if found is not None and found.thread_id:
            return found.thread_id, False
        fresh = str(uuid.uuid4())
        return await self._conversations.bind_thread(row.key, fresh, instead_of=None), True

    async def _replace_earlier_versions(self, turn: TurnRecord) -> str:
        """Remove earlier versions of an edited message from the thread, unless the run continues with the newest one.

        Returns the message ID with which the run continues, or begins.

        Raises:
            AgentThreadBusy: The run of an earlier version has not ended yet.
            RunError: The server cannot be reached.
        """
        attempt = turn.attempt
        found = trace_message(await self._runs.get_state(attempt.thread_id), attempt.ids)
        *earlier, newest = attempt.ids
        if found.own == newest:
            return newest
        if found.own and found.injected == newest:
            # The edit was injected, so the run continues with the ID with which it began.
            return found.own
        for message_id in earlier[-MAX_EARLIER_RUNS:]:
            if await self._runs.cancel(attempt.thread_id, "", message_id):
                raise AgentThreadBusy
        try:
            await self._runs.rewind(attempt.thread_id, *earlier)
        except RewindUnsupported:
            log.info("thread %s keeps the earlier version of an edited message", attempt.thread_id)
        return newest

    def _refusal(self, turn: TurnRecord, asked: OpenQuestion) -> Refusal | None:
        """Return the refusal of a message that does not decide, or None if it decides."""
        inbound, asker = turn.message.inbound, asked.asked.sender
        may_be_answer = asked.may_be_answered_by(inbound)
        may_decide = inbound.sender.user_id == asker.user_id or turn.is_admin
        needs_approval, texts = asked.question.needs_approval, turn.texts
        if may_decide and may_be_answer:
            return None
        if may_decide and needs_approval:
            hint = f"{texts.approval_undecided} {self._approval_hint(turn)}"
            return Refusal(reply=Reply(markdown=hint))
        if not (may_be_answer or inbound.origin):
            return Refusal(reply=None)
        waits = texts.approval_waits if needs_approval else texts.question_waits
        return Refusal(reply=Reply(markdown=waits.format(name=asker.name or asker.user_id)))

    def _approval_hint(self, turn: TurnRecord) -> str:
        """Return how people approve and deny in the chat of a turn."""
        if turn.message.inbound.is_private:
            return turn.texts.approval_hint
        if self._adapter(turn.row).capabilities.has_replies:
            return turn.texts.approval_hint_reply
        return turn.texts.approval_hint_mention

    async def _status_at_end(self, thread_id: str, run_id: str) -> str:
        """Return the final status of a canceled run; "running" if it does not end in time."""
        status = "running"
        with anyio.move_on_after(END_DEADLINE_S):
            while True:
                status = await self._runs.get_status(thread_id, run_id)
                if status not in ACTIVE_STATUSES:
                    break
                await anyio.sleep(END_POLL_S)
        return status

    async def _reply_rows(
        self, turn: TurnRecord, reply: Reply, seen: LiveMessages
    ) -> list[NewOutboxRow]:
        """Return the rows of a reply."""
        row, adapter = turn.row, self._adapter(turn.row)
        parts = await split_text(adapter, reply.markdown)
        has_buttons = isinstance(adapter, SupportsButtons)
        buttons = reply_buttons(row, reply, turn.texts) if has_buttons else ()
        rows = reply_rows(row, turn.message.inbound, reply, parts, seen, buttons)
        if seen.edit_in_doubt and adapter.capabilities.edits_can_overtake:
            rows += repeated_edit_rows(rows, now=self._now())
        return rows

    def _indicator_rows(
        self, row: InboxRow, outcomes: Mapping[ReplyTarget, bool]
    ) -> list[NewOutboxRow]:
        """Return the rows that turn working indicators into done (True) or failure indicators."""
        if not isinstance(self._adapter(row), SupportsIndicators):
            return []
        return [indicator_row(row.key, target, ok=ok) for target, ok in outcomes.items()]

    def _adapter(self, row: InboxRow) -> Adapter:
        return self._delivery.adapter(row.key.channel)


def _outcome(reply: Reply | None, reason: CancelReason | None) -> TurnOutcome | None:
    """Return how a turn ended; None = with an answer."""
    if reason is not None:
        return _outcome_of(reason)
    if reply is None or reply.silent:
        return "silent"
    if reply.failed:
        return "failed"
    if reply.stopped:
        return "stopped"
    return "waiting" if reply.question.interrupts else None


def _outcome_of(reason: CancelReason) -> TurnOutcome:
    match reason:
        case CancelReason.INTERRUPTED | CancelReason.EDITED:
            return "interrupted"
        case CancelReason.DELETED:
            return "deleted"
        case CancelReason.STOPPED:
            return "stopped"
        case CancelReason.TAKEN_OVER:
            return "taken_over"


def _signed_at(turn: TurnRecord) -> float | None:
    return None if turn.live is None else turn.live.signed_at


def _problem(reply: Reply | None) -> str | None:
    """Return why a turn failed, for administrators."""
    if reply is None or not reply.failed:
        return None
    return (reply.problem or reply.markdown)[:MAX_PROBLEM_CHARS]
