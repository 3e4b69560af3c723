"""One turn of a conversation: from an accepted message to the rows of its answer."""

import logging
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
from anyio import to_thread

from bus.conversation.approvals import Questions
from bus.conversation.attempt import Attempt, CancelReason, QueuedMessage, TurnControl, TurnPlan
from bus.conversation.failures import failure_message, is_retryable, run_error_message
from bus.conversation.resuming import Resuming
from bus.conversation.steering import Steering
from bus.errors import AgentThreadBusy, AgentThreadNotFound, RewindUnsupported, RunError
from bus.history.rewind import ThreadRewinder
from bus.history.versions import message_ids
from bus.log_context import bind_conversation, bind_run
from bus.messages import InboundMessage, ReplyTarget, RewindPoint
from bus.outbound.live import show_live_reply
from bus.outbound.live_reply import LiveReply
from bus.outbound.rows import LiveMessages, notice_key, reply_buttons, reply_rows, streaming_key
from bus.outbound.worker import DeliveryWorker
from bus.platform import SupportsButtons
from bus.retry import Backoff
from bus.runs.client import AgentRunRequest, RunClient, RunFailed, RunPart, RunStarted
from bus.runs.replies import Reply, ReplyFold, error_reason, error_reply, turn_messages
from store.conversations import ConversationStore
from store.inbox import InboxRow, InboxStore
from store.outbox import NewOutboxRow

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
"""Starts of one turn, crashes included, before it is given up as poisonous."""

CANCEL_DEADLINE_S = 4.0
"""How long the end of a stopped run is waited for (SPEC 10: within 5 s)."""

START_PATIENCE_S = 2.0
"""How long a run's id is waited for when it is stopped while it starts."""

PATIENCE_S = 60.0
"""How long a server that cannot be reached is waited for within one turn."""

BUSY_PATIENCE_S = 900.0
"""How long a thread that somebody else's run holds is waited for."""

QUIET_S = 0.5
"""How long no further edit of a message may come before it is run anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What turns read and write."""

    inbox: InboxStore
    conversations: ConversationStore
    questions: Questions


class Turns:
    """Runs turns. Each finishes its inbox row; after a crash the same row is taken up where it was.

    Args:
        limiter: Bounds how many agents run at once; held only while one runs.
    """

    def __init__(
        self,
        *,
        records: Records,
        runs: RunClient,
        steering: Steering,
        delivery: DeliveryWorker,
        limiter: anyio.CapacityLimiter,
    ) -> None:
        self._inbox = records.inbox
        self._conversations = records.conversations
        self._questions = records.questions
        self._resuming = Resuming(records.questions, runs)
        self._runs = runs
        self._rewind = ThreadRewinder(runs)
        self._steering = steering
        self._uploads = steering.uploads
        self._delivery = delivery
        self._limiter = limiter
        self._backoff = Backoff(first_s=0.25, cap_s=5.0)

    async def run(
        self, row: InboxRow, inbound: InboundMessage, plan: TurnPlan, control: TurnControl
    ) -> None:
        """Answer one message and finish its row. Raises nothing but cancellation and StoreError."""
        was_said = row.attempts == 0 and row.run_id is not None
        if was_said and await self._steering.was_heard(row, message_ids(inbound)):
            await self._inbox.finish(row.id, [])
            await self._signed(row, {inbound.reply_target: True})
            return
        begun = await self._begin(row, plan)
        if begun is None:
            return
        row, is_new = begun
        bind_conversation(row.key.channel, row.conversation_id, row.thread_id)
        if row.attempts > MAX_ATTEMPTS:
            await self.fail(row, inbound, text=inbound.reply_target.texts.interrupted_too_often)
            return
        async with show_live_reply(self._delivery, row, inbound) as display:
            attempt = Attempt(row, plan, inbound, is_new=is_new)
            while True:
                attempt.asked = await self._questions.open_before(row, plan.text)
                reply = await self._answer(attempt, control, display)
                also = await self._steering.settle(attempt, control)
                revised = await control.revised(row.id, QUIET_S)
                if revised is None:
                    break
                await self._resuming.close(attempt)
                attempt = attempt.renewed(revised)
                inbound, plan = revised.inbound, attempt.plan
        if control.why is CancelReason.WITHDRAWN:
            await self._steering.forget(attempt.thread_id, attempt.ids)
        if control.stopped:
            reply = _ended(attempt, control, display.shown)
        control.settled = frozenset(letter.row.id for letter in also)
        await self._settle(row, inbound, reply, display.shown, also=also)
        await self._resuming.close(attempt)

    async def fail(self, row: InboxRow, inbound: InboundMessage, *, text: str = "") -> None:
        """Finish a row as dead with a visible message: `text`, or that it failed."""
        # One of ours says what has to change first; what failed for no known reason may be tried again.
        reply = Reply(
            markdown=text or inbound.reply_target.texts.failed, failed=True, retry=not text
        )
        card = await self._delivery.outbox.find(streaming_key(row, 0))
        notice = await self._delivery.outbox.find(notice_key(row))
        seen = LiveMessages(
            streaming_count=1 if card else 0, notice_key=notice.key if notice else ""
        )
        await self._settle(row, inbound, reply, seen, dead=True)

    async def _begin(self, row: InboxRow, plan: TurnPlan) -> tuple[InboxRow, bool] | None:
        """Note the start; return the row as it now is, and whether its thread has yet to be made.

        None: the row was finished meanwhile.
        """
        thread_id, is_new = row.thread_id or plan.thread_id, False
        if thread_id is None:
            thread_id, is_new = await self._thread(row)
        noted = await self._inbox.mark_running(row.id, thread_id=thread_id)
        if noted is None:
            return None
        # As in the journal: before it begins, a row has the run that it was said to, not one of its own.
        run_id = row.run_id if row.attempts else None
        begun = replace(
            row,
            thread_id=thread_id,
            attempts=row.attempts + 1,
            run_id=run_id,
            follows_question=noted.follows_question,
        )
        return begun, is_new

    async def _thread(self, row: InboxRow) -> tuple[str, bool]:
        """Return the conversation's thread id; of two first messages one names it for both."""
        if row.current_thread_id is not None:
            # A thread that replaced it since comes with the plan: `/new` gives its mailbox one.
            return row.current_thread_id, False
        found = await self._conversations.find(row.key)
        if found is not None and found.thread_id:
            return found.thread_id, False
        return await self._conversations.bind_thread(
            row.key, str(uuid.uuid4()), instead_of=None
        ), True

    async def _settle(
        self,
        row: InboxRow,
        inbound: InboundMessage,
        reply: Reply | None,
        seen: LiveMessages,
        *,
        dead: bool = False,
        also: Sequence[QueuedMessage] = (),
    ) -> None:
        """Finish a row with what there is to say, and the rows that the turn answers `also`."""
        deliveries: list[NewOutboxRow] = []
        if reply is not None:
            # In a worker thread: cutting a very long answer takes a while.
            split = self._delivery.adapters[row.key.channel].split
            parts = await to_thread.run_sync(split, reply.markdown)
            has_buttons = isinstance(self._delivery.adapters[row.key.channel], SupportsButtons)
            buttons = reply_buttons(row, reply, inbound.reply_target.texts) if has_buttons else ()
            deliveries = reply_rows(row, inbound, reply, parts, seen, buttons)
        others = [letter.row.id for letter in also]
        asks = self._questions.record(row, inbound, reply.question) if reply is not None else None
        await self._inbox.finish(row.id, deliveries, dead=dead, question=asks, answered_ids=others)
        self._delivery.notify(row.key)
        went_well = reply is not None and not (reply.failed or reply.stopped)
        signs = {letter.inbound.reply_target: went_well for letter in also}
        if not deliveries:
            signs[inbound.reply_target] = False
        await self._signed(row, signs)

    async def _signed(self, row: InboxRow, signs: Mapping[ReplyTarget, bool]) -> None:
        """Turn the working signs of places into done signs, or into failure signs where it went wrong."""
        adapter, presence = self._delivery.adapters[row.key.channel], self._delivery.presence
        for place, went_well in signs.items():
            await presence.finished(adapter, place, ok=went_well)

    async def _answer(
        self, attempt: Attempt, control: TurnControl, display: LiveReply
    ) -> Reply | None:
        """Return what there is to say, unless the turn was ended."""
        async with anyio.create_task_group() as tasks:

            async def stopper() -> None:
                await control.wait()
                await self._cancel_run(attempt)
                tasks.cancel_scope.cancel()

            tasks.start_soon(stopper)
            tasks.start_soon(self._steering.tell, attempt, control)
            await self._bring_files(attempt)
            async with self._limiter:
                await self._persist(attempt, display)
            tasks.cancel_scope.cancel()
        return attempt.reply

    async def _bring_files(self, attempt: Attempt) -> None:
        if attempt.attachments:
            adapter = self._delivery.adapters[attempt.row.key.channel]
            attempt.brought = await self._uploads.upload(
                adapter, attempt.thread_id, attempt.attachments, attempt.texts
            )

    async def _cancel_run(self, attempt: Attempt) -> None:
        if attempt.is_asked and attempt.run_id is None:
            # The server is starting it just now. Left alone it would go on for nobody.
            with anyio.move_on_after(START_PATIENCE_S):
                await attempt.started.wait()
        await self._cancel(attempt.thread_id, attempt.run_id)

    async def _cancel(self, thread_id: str, run_id: str | None) -> None:
        if run_id is None:
            return
        try:
            with anyio.fail_after(CANCEL_DEADLINE_S):
                await self._runs.cancel(thread_id, run_id)
        except (RunError, TimeoutError) as error:
            log.warning("run %s could not be cancelled: %s", run_id, error)

    async def _persist(self, attempt: Attempt, display: LiveReply) -> None:
        """Run the turn, again and again where that can help, until there is something to say."""
        started, tries = anyio.current_time(), 0
        while True:
            tries += 1
            try:
                attempt.reply = await self._once(attempt, display)
            except RunError as error:
                if isinstance(error, AgentThreadNotFound) and tries <= MAX_ATTEMPTS:
                    # Nothing to worry about after `/new`, which only names the thread.
                    log.info("thread %s is not at the server: it is made", attempt.thread_id)
                    attempt.known = False
                    continue
                log.warning("turn %s: %s", attempt.message_id, error)
                patience = BUSY_PATIENCE_S if isinstance(error, AgentThreadBusy) else PATIENCE_S
                if error.retryable and anyio.current_time() - started < patience:
                    await anyio.sleep(self._backoff.wait_s(tries))
                    continue
                said = run_error_message(error, attempt.texts)
                retry = not isinstance(error, RewindUnsupported)
                attempt.reply = Reply(markdown=said, failed=True, retry=retry)
            return

    async def _once(self, attempt: Attempt, display: LiveReply) -> Reply:
        if not attempt.known:
            await self._make_thread(attempt)
        elif len(attempt.ids) > 1:
            await self._steering.recall(attempt)
        refusal = await self._resuming.look(attempt)
        if refusal is not None:
            return refusal
        fold = attempt.fold = ReplyFold(attempt.message_id)
        async for part in self._parts(attempt, fold):
            if isinstance(part, RunStarted):
                attempt.run_id = part.run_id
                attempt.started.set()
                bind_run(part.run_id)
                await self._inbox.set_run(attempt.row.id, part.run_id)
            if fold.add(part):
                display.update(fold.current_text, fold.progress.lines)
        return await self._conclude(attempt, fold)

    async def _parts(self, attempt: Attempt, fold: ReplyFold) -> AsyncIterator[RunPart]:
        """Start, join or resume the run that answers the message, whichever the thread needs."""
        text: str | None = attempt.brought.prompt(attempt.plan.text, attempt.texts)
        if attempt.check:
            found = await self._runs.find_run(attempt.thread_id, attempt.run_id, attempt.message_id)
            if found is not None and found[1] in ("pending", "running"):
                async for part in self._runs.join(attempt.thread_id, found[0]):
                    yield part
                return
            values = await self._runs.get_state(attempt.thread_id)
            # An answer to what a thread waits for is no message in it: its run says that it came.
            resumed = found is not None and attempt.asked is not None
            if resumed or _holds(values, attempt.message_id):
                fold.set_state(values)
                if found is not None and found[1] == "success":
                    return
                text = None
        attempt.check = True
        if attempt.plan.again is not None and text is not None:
            await self._take_back(attempt.thread_id, attempt.plan.again)
        request = AgentRunRequest(
            thread_id=attempt.thread_id,
            assistant_id=attempt.plan.session.assistant_id or "lead_agent",
            message_id=attempt.message_id,
            text=text if attempt.resume is None else None,
            resume=attempt.resume,
            files=attempt.brought.files,
            config=attempt.plan.session.config,
            context=attempt.context(),
        )
        attempt.is_asked = True
        async for part in self._runs.stream(request):
            yield part

    async def _take_back(self, thread_id: str, said: RewindPoint) -> None:
        """Take what is said anew out of the thread. Raises RunError."""
        try:
            await self._rewind.rewind(thread_id, said.message_id, *said.earlier_ids)
        except RewindUnsupported:
            if not said.allow_duplicate:
                raise
            log.info("thread %s keeps a message that is said once more", thread_id)

    async def _conclude(self, attempt: Attempt, fold: ReplyFold) -> Reply:
        """Return the answer when the stream is over; a stream that just stopped is asked after."""
        if fold.failure is None and not fold.ended and attempt.run_id is not None:
            status = await self._runs.get_status(attempt.thread_id, attempt.run_id)
            if status in ("error", "timeout"):
                fold.failure = RunFailed(status, "")
        if fold.failure is not None or fold.ended in ("error", "timeout"):
            failure = fold.failure or RunFailed(fold.ended, "")
            reason = f"{failure.error}: {failure.message}".removesuffix(": ")
            log.error("run %s failed: %.300s", attempt.run_id, reason)
            said = turn_messages(fold.values, attempt.message_id)
            own = error_reply(said)
            broken_off = f"{fold.text}\n\n{failure_message(failure, attempt.texts, agent=attempt.agent)}".strip()
            retry = is_retryable(failure, error_reason(said))
            return Reply(markdown=own or broken_off, failed=True, retry=retry)
        if fold.is_interrupted:
            return fold.reply(attempt.texts)
        if fold.ended == "interrupted":
            return Reply(markdown=f"{fold.text}\n\n{attempt.texts.stopped}".strip())
        said = turn_messages(fold.values, attempt.message_id)
        if not said or said[-1].get("tool_calls"):
            # A stream without states; or one that does not tell what its calls wait for.
            fold.set_state(await self._runs.get_state(attempt.thread_id))
        return fold.reply(attempt.texts)

    async def _make_thread(self, attempt: Attempt) -> None:
        key = attempt.row.key
        metadata = {
            "channel": key.channel,
            "workspace": key.workspace,
            "chat": key.chat,
            "topic": key.topic,
        }
        await self._runs.create_thread(attempt.thread_id, metadata)
        attempt.known = True


def _ended(attempt: Attempt, control: TurnControl, seen: LiveMessages) -> Reply | None:
    """Return what is said of a turn that was ended; None where nothing of it was visible."""
    if not seen.exist:
        return None
    said = "" if control.why is CancelReason.WITHDRAWN else attempt.fold.text
    texts = attempt.texts
    end = texts.interrupted if control.why is CancelReason.INTERRUPTED else texts.stopped
    return Reply(markdown=f"{said}\n\n{end}".strip(), stopped=True)


def _holds(values: Mapping[str, Any], message_id: str) -> bool:
    return any(
        isinstance(m, dict) and m.get("id") == message_id for m in values.get("messages") or []
    )
