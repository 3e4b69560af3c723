"""What is said to a turn while it runs: handed to its run, looked for in its thread, and taken out again."""

import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count

import anyio

from bus.conversation.attempt import Attempt, CancelReason, QueuedMessage, TurnControl
from bus.errors import AgentThreadBusy, RewindUnsupported, RunError, SteeringUnsupported
from bus.history.rewind import ThreadRewinder
from bus.history.versions import message_ids, trace_message
from bus.outbound.worker import DeliveryWorker
from bus.retry import Backoff
from bus.runs.client import RunClient, SteeringMessage
from bus.runs.uploads import FileUploader, UploadResult
from store.inbox import InboxRow
from store.message_edits import MessageEditStore

log = logging.getLogger(__name__)

LOOK_S = 60.0
"""How long a server that cannot be reached is waited for when it has to say whether a message was heard."""

FORGET_S = 5.0
"""How long it may take to take a deleted message out of its thread."""

VERSIONS_STOPPED = 3
"""Of a message that was edited again and again, so many of the last runs are looked for."""


class Steering:
    """Says things to runs that go on.

    A message is in the thread, marked, as soon as the run has heard it. That alone tells whether it was: what
    was not heard before the run ended is answered by a turn of its own.
    """

    def __init__(
        self,
        *,
        revisions: MessageEditStore,
        runs: RunClient,
        uploads: FileUploader,
        delivery: DeliveryWorker,
    ) -> None:
        self._revisions = revisions
        self._runs = runs
        self._rewind = ThreadRewinder(runs)
        self.uploads = uploads
        self._delivery = delivery
        self._backoff = Backoff(first_s=0.1, cap_s=2.0)
        self._is_deaf = False

    async def tell(self, attempt: Attempt, control: TurnControl) -> None:
        """Say to the run of a turn what comes for it, until cancelled."""
        await attempt.started.wait()
        adapter = self._delivery.adapters[attempt.row.key.channel]
        async with AsyncExitStack() as signs:
            while True:
                letter = await control.next_hint()
                is_said = await self._say(attempt, control, letter)
                control.drop(letter)
                if is_said and letter.row.id != attempt.row.id:
                    sign = self._delivery.presence.working(adapter, letter.inbound.reply_target)
                    await signs.enter_async_context(sign)

    async def settle(self, attempt: Attempt, control: TurnControl) -> list[QueuedMessage]:
        """Return the messages that end with the turn, whose run is over; they get no answer of their own.

        A correction of the turn's own message that came too late for the run has the turn run anew.
        """
        if control.why is CancelReason.STOPPED:
            # Whoever stops the turn means all that was said to it.
            own = attempt.row.id
            letters = {**control.said, **{letter.row.id: letter for letter in control.hints}}
            return [letter for row_id, letter in letters.items() if row_id != own]
        own_letter = control.said.get(attempt.row.id)
        others = [letter for row_id, letter in control.said.items() if row_id != attempt.row.id]
        if control.why in (CancelReason.WITHDRAWN, CancelReason.REVISED) or not (
            others or own_letter
        ):
            return []
        heard = [letter for letter in others if await self._heard(attempt, letter)]
        if own_letter and control.why is None and not await self._heard(attempt, own_letter):
            control.revise(own_letter)
            return []
        return heard

    async def was_heard(self, row: InboxRow, ids: tuple[str, ...]) -> bool:
        """Return whether a row that was said to another turn's run was heard there, and so is answered."""
        if row.thread_id is None:
            return False
        deadline = anyio.current_time() + LOOK_S
        for tries in count(1):
            try:
                return trace_message(
                    await self._runs.get_state(row.thread_id), ids
                ).was_injected_only
            except RunError as error:
                if not error.retryable or anyio.current_time() > deadline:
                    break
            await anyio.sleep(self._backoff.wait_s(tries))
        return False

    async def recall(self, attempt: Attempt) -> None:
        """Let the thread of an edited message hold its present text alone, or find out that it goes on with that.

        Raises:
            AgentThreadBusy: what was begun with an earlier text has yet to end.
            RunError: the server cannot be reached.
        """
        found = trace_message(await self._runs.get_state(attempt.thread_id), attempt.ids)
        newest = attempt.ids[-1]
        if found.own == newest:
            return
        if found.own and found.injected == newest:
            # The run was told of the edit: it goes on, under the id with which it began.
            attempt.message_id = found.own
            return
        earlier = attempt.ids[:-1]
        for message_id in earlier[-VERSIONS_STOPPED:]:
            run = await self._runs.find_run(attempt.thread_id, None, message_id)
            if run is not None and run[1] in ("pending", "running"):
                await self._runs.cancel(attempt.thread_id, run[0])
                raise AgentThreadBusy
        try:
            await self._rewind.rewind(attempt.thread_id, *earlier)
        except RewindUnsupported:
            log.info("thread %s keeps a message as it was before it was edited", attempt.thread_id)

    async def forget(self, thread_id: str, ids: tuple[str, ...]) -> None:
        """Take a deleted message out of its thread, with what it brought, if that can be done."""
        with anyio.move_on_after(FORGET_S):
            for tries in count(1):
                try:
                    await self._rewind.rewind(thread_id, *ids)
                except AgentThreadBusy:
                    await anyio.sleep(self._backoff.wait_s(tries))
                except RunError as error:
                    log.info("a deleted message stays in thread %s: %s", thread_id, error)
                    break
                else:
                    break

    async def _heard(self, attempt: Attempt, letter: QueuedMessage) -> bool:
        """Return whether the run of a turn, which is over, heard a message. When in doubt, it did not."""
        ids = message_ids(letter.inbound)
        is_own = letter.row.id == attempt.row.id
        held = trace_message(attempt.fold.values or {}, ids).injected
        if not held:
            try:
                held = trace_message(await self._runs.get_state(attempt.thread_id), ids).injected
            except RunError as error:
                log.warning("whether %s was heard is looked up later: %s", ids[-1], error)
        return held == ids[-1] if is_own else bool(held)

    async def _is_known(self, attempt: Attempt, letter: QueuedMessage) -> bool:
        """Return whether a message that was said before a restart was heard then."""
        try:
            values = await self._runs.get_state(attempt.thread_id)
        except RunError:
            return False
        return bool(trace_message(values, message_ids(letter.inbound)).injected)

    async def _say(self, attempt: Attempt, control: TurnControl, letter: QueuedMessage) -> bool:
        """Say one message to the run; return whether that can be done."""
        if self._is_deaf:
            self._instead(attempt, control, letter)
            return False
        if letter.row.run_id is not None and await self._is_known(attempt, letter):
            control.said[letter.row.id] = letter
            return True
        hint = await self._hint(attempt, control, letter)
        if hint is None:
            return False
        try:
            await self._inject(attempt, hint)
        except SteeringUnsupported:
            self._is_deaf = True
            log.warning("the agent's server hears nothing while it works: turns are interrupted")
            del control.said[letter.row.id]
            self._instead(attempt, control, letter)
            return False
        return True

    async def _inject(self, attempt: Attempt, hint: SteeringMessage) -> None:
        """Say something to the run as soon as it listens. Raises SteeringUnsupported."""
        for tries in count(1):
            try:
                if await self._runs.inject(attempt.thread_id, attempt.run_id or "", hint):
                    return
            except RunError as error:
                if isinstance(error, SteeringUnsupported):
                    raise
                log.info("%s could not be said yet: %s", hint.message_id, error)
            # It has yet to begin, or just ended: then this is cancelled.
            await anyio.sleep(self._backoff.wait_s(tries))

    async def _hint(
        self, attempt: Attempt, control: TurnControl, letter: QueuedMessage
    ) -> SteeringMessage | None:
        """Return what to say, noted as said before it is; None = the message waits no more."""
        inbound, texts = letter.inbound, letter.inbound.reply_target.texts
        is_own = letter.row.id == attempt.row.id
        is_edit = is_own or letter.row.id in control.said
        brought = UploadResult()
        if inbound.attachments and not is_edit:
            adapter = self._delivery.adapters[letter.row.key.channel]
            brought = await self.uploads.upload(
                adapter, attempt.thread_id, inbound.attachments, texts
            )
        thread_id, run_id = attempt.thread_id, attempt.run_id or ""
        if not is_own and not await self._revisions.assign_run(
            letter.row.id, thread_id=thread_id, run_id=run_id
        ):
            return None
        row = replace(letter.row, thread_id=thread_id, run_id=run_id)
        control.said[letter.row.id] = letter if is_own else replace(letter, row=row)
        text = brought.prompt(letter.text, texts)
        if is_edit:
            text = texts.edited_note.format(text=text)
        return SteeringMessage(message_id=message_ids(inbound)[-1], text=text, files=brought.files)

    def _instead(self, attempt: Attempt, control: TurnControl, letter: QueuedMessage) -> None:
        """Do what can be done where runs hear nothing."""
        if letter.row.id == attempt.row.id:
            control.revise(letter)
        else:
            control.stop(CancelReason.INTERRUPTED)
