"""A turn answers one message, from its inbox row to the outbox rows of the answer. Read `Turn.run` from top to bottom.

The call below each COMMIT is one transaction. Everything between two COMMITs may be repeated. After a restart:

    the row is                  stored at   the next process
    new                         intake      begins; ends without an answer if the message was stopped or deleted
    new, names a run            COMMIT 3    reads the thread: if that run took the message, it ends, else it begins
    running                     COMMIT 1    starts the run of the message, or follows the existing run
    running, names its run      COMMIT 2    does the same; the console shows the run
    done or dead                COMMIT 4    does nothing; the outbox sends the answer

Other tasks only call methods of its `Control`. Everything else belongs to the task of `run`. Only this module assigns
to a turn, its control and its attempts. The steps (`bus.conversation.steps`) repeat journal calls until the journal
works. If the process ends, the task is canceled and the row stays as it is.
"""

import logging
from contextlib import AsyncExitStack, aclosing
from functools import partial

import anyio

from bus.config import SessionConfig
from bus.conversation.control import CancelReason, QueuedMessage
from bus.conversation.record import Attempt, Outcome, TurnRecord, TurnStage
from bus.conversation.steps import TurnSteps
from bus.errors import RunError, RunMoves, SteeringUnsupported, unwrapped
from bus.history.versions import message_ids
from bus.log_context import bind_run
from bus.runs.replies import Reply
from bus.tasks import run_beside

log = logging.getLogger(__name__)

MAX_STARTS = 20
"""Maximum number of starts of a turn. A turn that crashes the process would do so at each start.

A turn that fails in any other way is not started again. It is unlikely that a turn is killed from outside this often.
"""

ENDLESS = 10
"""End a run when its answer is this many times longer than `max_chars`."""


class Turn(TurnRecord):
    """Answers one message.

    Args:
        steps: The steps that the turn calls.
        session, thread_id, is_admin, failure_text: See `TurnRecord`.
    """

    def __init__(
        self,
        message: QueuedMessage,
        steps: TurnSteps,
        *,
        session: SessionConfig | None,
        thread_id: str | None = None,
        is_admin: bool = False,
        failure_text: str = "",
    ) -> None:
        super().__init__(
            message,
            session=session,
            thread_id=thread_id,
            is_admin=is_admin,
            failure_text=failure_text,
        )
        self._do = steps

    async def run(self) -> None:
        """Answer the message. Raises only cancellation, after which a restart resumes the turn."""
        try:
            with unwrapped():
                await self._run()
        except Exception:
            log.exception("turn %s failed while %s", self.row.id, self.stage)
            await self._fail_after_all()
        finally:
            self.control.finished.set()

    async def _run(self) -> None:
        if self.failure_text:  # There is no session, or the row cannot be decoded.
            return await self._fail()
        if await self._needs_no_answer():
            return await self._discard()
        # COMMIT 1: The row is running, with one more start and its thread.
        row = await self._do.begin(self)
        if row is None:
            return None  # The row is finished already, or a person has taken over.
        self.row = row
        if row.start is not None and row.start.is_taken_over:
            self.control.cancel(CancelReason.TAKEN_OVER)
        if row.starts > MAX_STARTS:
            self.failure_text = self.texts.interrupted_too_often
            return await self._fail()
        async with AsyncExitStack() as shown:
            self.outcome = await self._answer(shown)
            self.control.close_canceled()
        # What people have seen no longer changes. The answer of a canceled turn depends on it.
        return await self._finish()

    async def _needs_no_answer(self) -> bool:
        """Return whether to end the turn without an answer before it begins."""
        control, row = self.control, self.row
        if self.message.inbound.is_deleted:
            control.cancel(CancelReason.DELETED)
        elif self.message.inbound.is_stopped:
            # The stop was stored before a restart. It includes messages that the run took, but no later ones.
            by_operator = self.message.inbound.is_stopped_by_operator
            control.stop(before=row.seq, by_operator=by_operator)
        if row.state == "new" and row.run_id is not None:
            taken = await self._do.find_taken(self)
            if taken is not None:  # Another turn's run answered the message.
                self.outcome = taken
                control.close_answered()
                return True
        # An edited message is run with its current text. A turn that began before a restart may have left messages in
        # the thread, so do not discard it.
        is_untouched = row.state == "new" or row.start is not None
        return is_untouched and control.reason in (CancelReason.STOPPED, CancelReason.DELETED)

    async def _answer(self, shown: AsyncExitStack) -> Outcome:
        """Run the message, and again after each edit, until the answer is decided. `shown` holds the live reply."""
        do, control, start = self._do, self.control, self.row.start
        self._enter(TurnStage.RUNNING)
        self.attempt = Attempt(
            message=self.message,
            thread_id=self.row.thread_id or "",
            message_id=message_ids(self.message.inbound)[-1],
            is_again=self.row.starts > 1 or self.message.inbound.edit_count > 0,
            thread_exists=start is None or not start.has_new_thread,
            run_id=self.row.run_id or "",
        )
        while True:
            self.attempt.question = await do.open_question(self)
            if self.live is None and do.is_for_bot(self):
                self.live = await shown.enter_async_context(do.show_working(self))
            found = await control.until_cut(self._read)
            if found is not None and control.close():
                return found
            self._enter(TurnStage.CANCELING)
            await do.cancel(self)
            self.attempt.is_over = True
            if (edited := await control.last_edit()) is not None:
                await do.close_question(self)
                control.inject_again()
                self.message, self.attempt = edited, self.attempt.again(edited)
                self._enter(TurnStage.RUNNING)
                continue
            if control.reason is CancelReason.INTERRUPTED:
                self.attempt.reply = await do.answer_despite_cancel(self)
                if self.attempt.reply is not None:
                    control.close_answered()  # The answer is complete and in the thread.
            elif control.reason is CancelReason.DELETED:
                await do.remove_from_thread(self)
            return await do.find_outcome(self)

    async def _read(self) -> Outcome:
        """Send the message to the agent and read the answer. A cancellation may interrupt each await."""
        attempt, control = self.attempt, self.control
        if attempt.uploads is None:
            attempt.uploads = await self._do.upload(self)
        if self.live is not None:
            self.live.let_open()
        attempt.reply = await self._follow()
        attempt.is_over = True
        outcome = await self._do.find_outcome(self)
        if outcome.late is not None and control.reason is None:
            control.edit(outcome.late)
        return outcome

    async def _follow(self) -> Reply | None:
        """Start or follow the run and read it to its end.

        After an error, continue from the last event read, as long as a retry may help.
        """
        do, attempt, patience = self._do, self.attempt, self._do.new_patience()
        while True:
            try:
                async with do.slot(self):
                    return await self._follow_once()
            except RunMoves:
                # The node stops, and another node continues the turn. The live reply stays, and no other turn begins
                # here.
                self.control.is_left = True
                await anyio.sleep_forever()
            except RunError as error:
                log.warning("turn %s: %s", attempt.message_id, error)
                wait_s = patience.wait_s(error, is_outage=do.is_outage)
                if wait_s is None:
                    return do.error_reply(self, error)
                attempt.is_again = attempt.is_again or attempt.is_asked
                attempt.thread_exists = attempt.thread_exists and not patience.lost_thread
                await anyio.sleep(wait_s)

    async def _follow_once(self) -> Reply | None:
        do, control, attempt = self._do, self.control, self.attempt
        attempt.message_id = await do.prepare_thread(self)
        attempt.thread_exists = True
        if attempt.question is not None:
            match = await do.match_question(self, attempt.question)
            attempt.question, attempt.resume = match.question, match.resume
            if match.refusal is not None:
                return match.refusal.reply
        attempt.is_asked = True
        # There is one run per message, no matter how often this is repeated. A message that it replaces is removed only
        # before the first start.
        run_id = await control.starting(partial(do.start, self))
        if run_id != attempt.run_id or not attempt.seen:  # Positions are valid for one run only.
            attempt.run_id, attempt.seen, attempt.fold = run_id, "", do.new_fold(self)
        bind_run(run_id)
        # COMMIT 2: The row names the run.
        await do.set_run(self)
        reply = await self._read_events()
        if reply is not None:
            return reply
        return await do.conclude(self)

    async def _read_events(self) -> Reply | None:
        """Read the run's events to the end, and inject further messages meanwhile. None = the events have ended."""
        do, attempt = self._do, self.attempt
        async with (
            run_beside(self._inject),
            # Close the generator before the other task ends, because it may hold cancel scopes.
            aclosing(do.events(self)) as events,
        ):
            async for event in events:
                attempt.seen = event.position
                if attempt.fold.add(event.part) and self.live is not None:
                    progress = attempt.fold.progress
                    self.live.update(attempt.fold.shown_text, progress.lines, progress.steps)
                if attempt.fold.length > ENDLESS * do.max_chars:
                    log.warning(
                        "run %s is canceled because its answer does not end", attempt.run_id
                    )
                    await do.cancel(self)
                    return Reply(markdown=attempt.fold.text, endless=True)
        return None

    async def _inject(self) -> None:
        """Inject further messages into the run, in order, until canceled."""
        do, control = self._do, self.control
        await control.next_steered()  # most runs get none
        async with anyio.create_task_group() as shown:
            while True:
                message = await control.next_steered()
                row_id, is_own = message.row.id, message.row.id == self.row.id
                try:
                    # COMMIT 3: The injected message's row names the run.
                    injection = await do.note_injection(self, message)
                    if injection is not None:  # None: the message no longer waits.
                        control.injected[row_id] = injection.message
                        await do.inject(
                            self, injection
                        )  # This repeats until the run accepts the message or ends.
                        if not is_own:
                            shown.start_soon(do.keep_indicator, injection.message)
                except SteeringUnsupported:
                    control.injected.pop(row_id, None)
                    if is_own:
                        control.edit(message)
                    else:
                        control.cancel(CancelReason.INTERRUPTED)
                # Keep a newer version that replaced it meanwhile.
                if control.steered and control.steered[0] is message:
                    control.steered.popleft()

    async def _finish(self) -> None:
        self._enter(TurnStage.DELIVERING)
        # COMMIT 4: The row is done. Stores the answer, its question, and the end of the rows that the run took.
        asks = await self._do.finish(self)
        await self._do.close_question(self)
        self._enter(TurnStage.WAITING_FOR_APPROVAL if asks else TurnStage.DONE)

    async def _discard(self) -> None:
        """Finish the row without an answer, because it was stopped before it began, or another turn answered it."""
        # COMMIT 4: The row is done, without an answer.
        await self._do.discard(self)
        self._enter(TurnStage.DONE)

    async def _fail(self) -> None:
        self.control.close_canceled()
        # COMMIT 4: The row is dead. Stores the message about the failure, and the end of the rows that the run took.
        await self._do.fail(self)
        self._enter(TurnStage.FAILED)

    async def _fail_after_all(self) -> None:
        """Notify the person. If that cannot be stored either, the row stays as it is and is resumed later."""
        try:
            with unwrapped():
                await self._fail()
        except Exception:
            log.exception("the failure of turn %s could not be stored", self.row.id)

    def _enter(self, stage: TurnStage) -> None:
        log.debug("turn %s: %s -> %s", self.row.id, self.stage, stage)
        self.stage = stage
