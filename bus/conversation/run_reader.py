"""Reads the run that answers a message: starts, joins or resumes it, whichever its thread needs."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

import anyio

from bus.conversation.approvals import OpenQuestion, Questions
from bus.conversation.failures import failure_message, is_retryable
from bus.conversation.machine import Turn
from bus.conversation.states import TurnEvent, TurnState
from bus.conversation.steering import Steering
from bus.errors import RewindUnsupported, RunError
from bus.log_context import bind_run
from bus.messages import RewindPoint
from bus.runs.port import ACTIVE_STATUSES, Runs, StreamedPart
from bus.runs.questions import chosen_index, is_approval, resume_value
from bus.runs.replies import Reply, ReplyFold, error_reason, error_reply, turn_messages
from bus.runs.requests import AgentRunRequest
from bus.runs.stream import INTERRUPTS, RunFailed, messages_in
from bus.tracing import NO_TRACER, MessageTracer

log = logging.getLogger(__name__)

ENDLESS = 10
"""A run is ended when its answer has so many times the characters that messages may have."""

END_DEADLINE_S, END_POLL_S = 4.0, 0.05
"""How long the end of a canceled run is waited for, and how often it is looked at; seconds."""

FAILED_STATUSES = ("error", "timeout")
"""What servers call a run that failed."""


class RunReader:
    """Turns a run into a reply."""

    def __init__(
        self,
        runs: Runs,
        questions: Questions,
        steering: Steering,
        *,
        max_chars: int,
        tracer: MessageTracer = NO_TRACER,
    ) -> None:
        self._tracer = tracer
        self._max_chars = max_chars
        self._runs = runs
        self._questions = questions
        self._steering = steering

    async def read(self, turn: Turn) -> Reply | None:
        """Read a turn's run to its end; applies RUN_STARTED. None = there is nothing to say.

        Raises RunError, StoreError.
        """
        attempt = turn.attempt
        await self._prepare_thread(turn)
        if attempt.question is not None:
            refusal = await self._match_answer(turn, attempt.question)
            if refusal is not None:
                return Reply(markdown=refusal) if refusal else None
        fold = attempt.fold = ReplyFold(
            attempt.message_id, self._max_chars, approval_hint=self._approval_hint(turn)
        )
        async with aclosing(await self._open(turn)) as events:
            async for event in events:
                if fold.add(event.part) and turn.live_reply is not None:
                    turn.live_reply.update(fold.shown_text, fold.progress.lines)
                if fold.length > ENDLESS * self._max_chars:
                    return await self._end(turn)
        return await self._conclude(turn)

    async def read_finished(self, turn: Turn) -> bool:
        """Return whether a turn's run ended well although it was canceled; then the turn has its reply.

        A run that asks for an approval did not: what was said since is no answer to that.
        """
        attempt = turn.attempt
        if turn.reply is None and attempt.run_id is not None:
            try:
                if await self._status_at_end(attempt.thread_id, attempt.run_id) != "success":
                    return False
                values = await self._runs.get_state(attempt.thread_id)
            except RunError as error:
                log.info("whether run %s ended well is not known: %s", attempt.run_id, error)
                return False
            if not _has_message(values, attempt.message_id):
                return False  # it answered an earlier version of the message
            attempt.fold.set_state(values)
            turn.reply = attempt.fold.reply(turn.texts)
        return turn.has_answer

    async def _status_at_end(self, thread_id: str, run_id: str) -> str:
        """Return the status of a run that was canceled, once it ended; "running" if that takes long."""
        status = "running"
        with anyio.move_on_after(END_DEADLINE_S):
            while True:
                status = await self._runs.get_status(thread_id, run_id)
                if status not in ACTIVE_STATUSES:
                    break
                await anyio.sleep(END_POLL_S)
        return status

    async def _prepare_thread(self, turn: Turn) -> None:
        """Create the thread if it is new; of an edited message, let it hold the present text alone."""
        attempt = turn.attempt
        if not attempt.thread_exists:
            await self._runs.create_thread(attempt.thread_id, asdict(turn.row.key))
            attempt.thread_exists = True
        elif len(attempt.ids) > 1:
            await self._steering.replace_earlier_versions(attempt)

    async def _end(self, turn: Turn) -> Reply:
        """Cancel a run whose answer does not end; return what there is of it."""
        attempt = turn.attempt
        log.warning("run %s is ended: its answer does not end", attempt.run_id)
        if attempt.run_id is not None:
            await self._runs.cancel(attempt.thread_id, attempt.run_id)
        return Reply(markdown=attempt.fold.text, endless=True)

    async def _match_answer(self, turn: Turn, asked: OpenQuestion) -> str | None:
        """Let the run resume if its thread waits for what was said.

        Returns what to say instead where the sender may not decide, or a button was pressed in vain; "" = nothing,
        where people talk among themselves; None = the run starts or resumes.
        """
        attempt, inbound = turn.attempt, turn.message.inbound
        values = await self._runs.get_state(attempt.thread_id)
        ids = {str(one.get("id") or "") for one in values.get(INTERRUPTS) or []}
        interrupts = [one for one in asked.question.interrupts if one.id in ids]
        attempt.resume = None
        if not interrupts:
            if attempt.may_exist:
                return None  # an earlier start of this turn may have answered it
            await self._questions.mark_answered(asked.row)
            attempt.question = None
            return turn.texts.press_inactive if inbound.answers_row else None
        refusal = self._refusal(turn, asked)
        if refusal is not None:
            self._questions.keep_open(asked)
            return refusal
        # The sender's own words alone: what they quote is mostly the question.
        words = turn.message.text
        is_choice = chosen_index(asked.question, words) is not None
        answer = words if is_choice else attempt.uploads.prompt(words, turn.texts)
        attempt.resume = resume_value(interrupts, answer, asked.question)
        mark = turn.texts.mark_approved if is_approval(words) else turn.texts.mark_denied
        await self._questions.remove_buttons(
            asked.row, mark if asked.question.needs_approval else ""
        )
        return None

    def _refusal(self, turn: Turn, asked: OpenQuestion) -> str | None:
        """Return what to say to words that decide nothing; "" = nothing, None = they decide."""
        inbound, asker = turn.message.inbound, asked.asked.sender
        may_be_answer = asked.may_be_answered_by(inbound)
        if inbound.sender.user_id == asker.user_id or turn.is_admin:
            hint = f"{turn.texts.approval_undecided} {self._approval_hint(turn)}"
            return None if may_be_answer else hint
        name = asker.name or asker.user_id
        return turn.texts.approval_waits.format(name=name) if may_be_answer else ""

    def _approval_hint(self, turn: Turn) -> str:
        """Return how people approve and deny in the chat of a turn."""
        if turn.message.inbound.is_private:
            return turn.texts.approval_hint
        adapter = self._questions.delivery.adapter(turn.row.key.channel)
        if adapter.capabilities.has_replies:
            return turn.texts.approval_hint_reply
        return turn.texts.approval_hint_mention

    async def _open(self, turn: Turn) -> AsyncGenerator[StreamedPart, None]:
        """Return the events of the run that answers the message: started, joined or resumed, whichever is needed."""
        attempt, point = turn.attempt, turn.message.inbound.rewind_point
        text: str | None = attempt.prompt
        if attempt.may_exist:
            found = await self._runs.find_run(attempt.thread_id, attempt.run_id, attempt.message_id)
            if found is not None and found[1] in ACTIVE_STATUSES:
                return await self._follow(turn, found[0])
            values = await self._runs.get_state(attempt.thread_id)
            # An answer to what a thread waits for is no message in it: its run says that it came.
            resumed = found is not None and attempt.question is not None
            if resumed or _has_message(values, attempt.message_id):
                attempt.fold.set_state(values)
                if found is not None and found[1] == "success":
                    return _no_events()
                text = None
        attempt.may_exist = True
        if point is not None and text is not None:
            await self._rewind(attempt.thread_id, point)
        request = AgentRunRequest(
            thread_id=attempt.thread_id,
            assistant_id=turn.assistant_id,
            message_id=attempt.message_id,
            inbound=turn.message.inbound,
            text=text if attempt.resume is None else None,
            resume=attempt.resume,
            files=attempt.uploads.files,
            config=turn.session.config,
            context=turn.context,
            traceparent=self._tracer.traceparent(turn.row),
        )
        attempt.is_requested = True
        return await self._follow(turn, await self._runs.start(request))

    async def _follow(self, turn: Turn, run_id: str) -> AsyncGenerator[StreamedPart, None]:
        """Note the run in the journal; return its events."""
        turn.attempt.run_id = run_id
        bind_run(run_id)
        if turn.state is TurnState.STARTING:
            await turn.apply(TurnEvent.RUN_STARTED)
        return self._runs.events(turn.attempt.thread_id, run_id)

    async def _rewind(self, thread_id: str, point: RewindPoint) -> None:
        """Take what is answered again out of the thread. Raises RunError."""
        try:
            await self._runs.rewind(thread_id, point.message_id, *point.earlier_ids)
        except RewindUnsupported:
            if not point.allow_duplicate:
                raise
            log.info("thread %s keeps a message that is answered again", thread_id)

    async def _conclude(self, turn: Turn) -> Reply:
        """Return the answer when the stream is over; a stream that just stopped is asked after."""
        attempt, fold = turn.attempt, turn.attempt.fold
        status = fold.ended
        if fold.failure is None and not status and attempt.run_id is not None:
            status = await self._runs.get_status(attempt.thread_id, attempt.run_id)
        if fold.failure is not None or status in FAILED_STATUSES:
            return _failed_reply(turn, fold.failure or RunFailed(status, ""))
        if fold.is_interrupted:
            return fold.reply(turn.texts)
        if status == "interrupted" and turn.is_handed_over:
            await turn.leave()
        if fold.ended == "interrupted":
            return Reply(markdown=f"{fold.text}\n\n{turn.texts.stopped}".strip())
        messages = turn_messages(fold.values, attempt.message_id)
        if not messages or messages[-1].get("tool_calls"):
            # A stream without states; or one that does not tell what its calls wait for.
            fold.set_state(await self._runs.get_state(attempt.thread_id))
        return fold.reply(turn.texts)


async def _no_events() -> AsyncGenerator[StreamedPart, None]:
    """Yield nothing: the run is over, and its end is in the thread's state."""
    return
    yield


def _failed_reply(turn: Turn, failure: RunFailed) -> Reply:
    attempt = turn.attempt
    reason = f"{failure.error}: {failure.message}".removesuffix(": ")
    log.error("run %s failed: %.300s", attempt.run_id, reason)
    messages = turn_messages(attempt.fold.values, attempt.message_id)
    explained = failure_message(failure, turn.texts, agent=turn.agent)
    return Reply(
        markdown=error_reply(messages) or f"{attempt.fold.text}\n\n{explained}".strip(),
        failed=True,
        retry=is_retryable(failure, error_reason(messages)),
    )


def _has_message(values: Mapping[str, Any], message_id: str) -> bool:
    return any(message.get("id") == message_id for message in messages_in(values))
