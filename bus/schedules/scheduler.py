"""The scheduler: sends the messages and starts the runs of schedules that are due.

There are two steps. If the process is killed between them, the first step is repeated but has no second effect: (1) The
message is accepted like a person's message, with the event ID `schedule:ID:DUE`, by which the journal drops a duplicate
(API runs have a start key of the same form). (2) One transaction stores the occurrence and the next time. Only one of
the processes that share the database does this at a time.
"""

import hashlib
import logging
import math
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import anyio
from anyio import to_thread

from bus.buttons import ButtonAction, ButtonToken
from bus.errors import DeliveryError, IntakeClosed, IntakeFull
from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    OutboundText,
    ReplyTarget,
    decode_inbound,
    encode_outbound,
)
from bus.outbound.worker import DeliveryWorker
from bus.platform import Clock, Disposition, Intake, SupportsMembership
from bus.recurrence import find_zone, format_moment
from bus.schedules.run_starter import CheckFailed, CheckRunner, RunNotStarted, RunStarter
from bus.schedules.schedules import recurrence_of
from store.conversations import ConversationStore
from store.errors import StoreError
from store.nodes import Nodes
from store.outbox import NewOutboxRow
from store.schedules import (
    CHAT,
    OWNER,
    EndedOccurrence,
    Occurrence,
    OccurrenceOutcome,
    Schedule,
    ScheduleStore,
)

log = logging.getLogger(__name__)

LATE_S = 60.0
"""A due time counts as missed if it is this late, seconds, because the service was down or its clock was set."""

IDLE_S = 30.0
"""How often to look for changes with a lost signal, and for occurrences that have ended, seconds."""

TICK_S = 1.0
"""How often to read the clock while nothing is due, seconds, because the clock may be set."""

RETRY_S = 1.0
"""How soon to try again if a message could not be accepted, seconds."""

BATCH = 100
"""Schedules to start per second, so that those due in the same minute do not reach the model's server all at once."""

BATCH_S = 1.0
"""Time between two batches, seconds."""

SPREAD_S = 60.0
"""The time in which all schedules that are due at the same time start, seconds."""

AT_ONCE = 20
"""Maximum number of schedules that are being started."""

MAX_OUTPUT_CHARS = 4000
"""Maximum length of a check's output in the message to the agent, characters."""

MAX_FAILURES = 5
"""Number of failures in a row that pause a schedule."""

MEMBERSHIP_S = 10.0
"""How long a platform may take to say whether a schedule's owner is in its group, seconds."""

_LOST_RIGHTS = frozenset({
    Disposition.NOT_ALLOWED, Disposition.EXTERNAL, Disposition.PAIRING, Disposition.GROUP_PAIRING, Disposition.DISABLED,
})  # fmt: skip


class Scheduler:
    """Sends what is due.

    Args:
        store: The schedules.
        delivery: Sends notices.
        channels: The running channels. Schedules of other channels wait.
        conversations: The threads of conversations.
        runs: Starts API runs; None = there are no API schedules here.
        checks: Runs checks; None = schedules have no checks here.
        now: The wall clock.

    Attributes:
        counts: Number of due times since the start, by their first outcome.
    """

    def __init__(
        self,
        store: ScheduleStore,
        *,
        delivery: DeliveryWorker,
        conversations: ConversationStore,
        channels: Sequence[str],
        runs: RunStarter | None,
        checks: CheckRunner | None,
        now: Clock,
    ) -> None:
        self._store = store
        self._delivery = delivery
        self._channels = [*channels, ""] if runs is not None else [*channels]
        self._runs = runs
        self._checks = checks
        self._conversations = conversations
        self._now = now
        self._changed = anyio.Event()
        self._scope = anyio.CancelScope()
        self._seen = now()
        self._batch = BATCH
        self._next_batch_at = -math.inf
        self.counts = Counter[OccurrenceOutcome]()

    def accept_with(self, intake: Intake) -> None:
        """Set the intake, which accepts the messages. Call it before `run`."""
        self._intake = intake

    async def wake(self) -> None:
        """Look for the next due time now."""
        self._changed.set()

    def stop(self) -> None:
        """Start no more schedules. The next process sends those that are due."""
        self._scope.cancel()

    async def run(self, nodes: Nodes) -> None:
        """Send what is due until canceled or stopped."""
        with self._scope:
            while True:
                async with nodes.exclusive("schedules"):
                    await self._run()

    async def run_now(self, schedule: Schedule, key: str) -> Occurrence:
        """Send the message of a schedule now, once for each key, without changing its times.

        `key`: "" = a new one. Raises IntakeFull, IntakeClosed, StoreError.
        """
        now = self._now()
        new = Occurrence(schedule_id=schedule.id, due_at=now, outcome="queued")
        event_id = f"schedule:{schedule.id}:{key}" if key else event_id_of(new)
        occurrence, _ = await self._send(schedule, new, event_id)
        return await self._store.add_occurrence(occurrence, now=now)

    async def settle(self, schedule_id: str = "") -> None:
        """Store the outcomes of queued occurrences that have ended, for one schedule or all. Raises StoreError."""
        for ended in await self._store.list_ended(limit=500, schedule_id=schedule_id):
            outcome, detail = _outcome_of(ended)
            paused = await self._store.settle(
                replace(ended.occurrence, outcome=outcome, detail=detail),
                max_failures=MAX_FAILURES,
                notices=_notices,
                now=self._now(),
            )
            thread_id = ended.occurrence.thread_id
            if thread_id is not None and self._runs is not None:
                await self._runs.finish(ended.occurrence.schedule_id, thread_id)
            if paused is not None:
                log.warning("schedule %s was paused after %d failures", paused.id, MAX_FAILURES)
                self._notify(paused)

    async def _run(self) -> None:
        await self._realign()
        while True:
            self._changed = anyio.Event()
            if self._was_set_back():
                await self._realign()
            began, wait_until = self._now(), math.inf
            try:
                wait_until = await self._advance()
            except (StoreError, IntakeFull) as error:
                log.warning("schedules wait: %s", error)
                wait_until = began + RETRY_S
            except IntakeClosed:
                return
            except Exception:
                log.exception("schedules failed and will be retried")
                wait_until = began + RETRY_S
            await self._wait(min(wait_until, began + IDLE_S))

    async def _wait(self, until: float) -> None:
        """Wait until the clock, which may be set, shows a time, or until a change."""
        while not self._changed.is_set() and (left := until - self._now()) > 0:
            if self._was_set_back():
                return
            with anyio.move_on_after(min(left, TICK_S)):
                await self._changed.wait()

    def _was_set_back(self) -> bool:
        """Return whether the clock shows an earlier time than before."""
        return self._now() < self._seen - TICK_S

    async def _realign(self) -> None:
        """After the clock was set back, make sure that no schedule waits for a time at which it already ran."""
        self._seen = now = self._now()
        try:
            ahead = await self._store.list_fired_after(now)
            times = await to_thread.run_sync(_next_times, ahead, now)
            await self._store.realign(times, now=now)
        except StoreError as error:
            log.warning("schedules wait: %s", error)
        else:
            if ahead:
                log.warning("the clock was set back; %d schedules were aligned", len(ahead))

    async def _advance(self) -> float:
        """Start due schedules, at most a batch. Return when to look again, Unix seconds.

        Raises StoreError, IntakeFull, IntakeClosed.
        """
        self._seen = began = self._now()
        await self.settle()
        # A change ends the wait between two batches, but does not start the next batch early.
        # A time further ahead was set before the clock was set back.
        if began < self._next_batch_at <= began + BATCH_S:
            return self._next_batch_at
        due = await self._store.list_due(self._channels, now=began, limit=BATCH)
        if len(due) < BATCH:
            self._batch = BATCH
        if not due:
            next_at = await self._store.find_next_time(began)
            return math.inf if next_at is None else next_at
        if len(due) == BATCH:
            count = await self._store.count_due(self._channels, now=began)
            # As the number of due schedules falls, the batches stay as large as the first one.
            self._batch = max(self._batch, math.ceil(count / SPREAD_S))
            due = await self._store.list_due(self._channels, now=began, limit=self._batch)
        self._next_batch_at = began + BATCH_S if len(due) >= BATCH else began
        limiter = anyio.CapacityLimiter(AT_ONCE)
        errors: list[Exception] = []
        async with anyio.create_task_group() as tasks:
            for schedule in due:
                tasks.start_soon(self._start, schedule, limiter, errors)
        if errors:
            raise errors[0]
        return self._next_batch_at

    async def _start(
        self, schedule: Schedule, limiter: anyio.CapacityLimiter, errors: list[Exception]
    ) -> None:
        async with limiter:
            if errors:
                return
            try:
                await self._fire(schedule)
            except (StoreError, IntakeFull, IntakeClosed) as error:
                errors.append(error)
            except Exception as error:
                log.exception("schedule %s failed and will be retried", schedule.id)
                errors.append(error)

    async def _fire(self, schedule: Schedule) -> None:
        due_at, now = schedule.next_at, self._now()
        if due_at is None:
            return
        times = recurrence_of(schedule)
        await to_thread.run_sync(find_zone, times.timezone)  # Reads the zone's file.
        occurrence = Occurrence(
            schedule_id=schedule.id,
            due_at=due_at,
            outcome="queued",
            missed=times.count_between(due_at, now),
        )
        because, next_at = "", times.next_after(max(due_at, now))
        if await self._store.find_occurrence(schedule.id, due_at) is not None:
            next_at = times.next_after(due_at)  # The clock was set back.
        elif (decided := await self._decide(schedule, occurrence, now)) is not None:
            occurrence = decided
        elif because := await self._find_loss(schedule):
            occurrence = replace(occurrence, outcome="failed", detail=f"{because}_gone")
        else:
            event_id = event_id_of(occurrence)
            schedule, occurrence, output = await self._check(schedule, occurrence)
            if occurrence.outcome == "queued":
                occurrence, lost_rights = await self._send(schedule, occurrence, event_id, output)
                because = OWNER if lost_rights else ""
        paused = await self._store.note(
            schedule,
            occurrence,
            next_at=next_at,
            now=now,
            pause_because=because,
            max_failures=MAX_FAILURES,
            notices=_notices,
        )
        log.info(
            "schedule %s was due at %s: %s %s",
            schedule.id,
            due_at,
            occurrence.outcome,
            occurrence.detail,
        )
        self.counts[occurrence.outcome] += 1
        if paused:
            self._notify(schedule, because)

    async def _decide(
        self, schedule: Schedule, occurrence: Occurrence, now: float
    ) -> Occurrence | None:
        """Return the occurrence if nothing is sent; None = send it."""
        if now - occurrence.due_at > LATE_S and schedule.missed == "skip":
            was_sent = await self._store.was_sent(schedule, event_id_of(occurrence))
            return None if was_sent else replace(occurrence, outcome="missed")
        if schedule.overlap == "queue" or schedule.key is None:
            return None
        await self.settle(schedule.id)
        earlier = await self._store.find_open(schedule.id)
        if earlier is not None and schedule.overlap == "skip":
            return replace(occurrence, outcome="skipped")
        if earlier is not None:
            await self._stop(schedule, earlier)
        return None

    async def _find_loss(self, schedule: Schedule) -> str:
        """Return OWNER if the owner has left the group, CHAT if the bot has; "" = neither, as far as is known."""
        if schedule.key is None or (template := decode_inbound(schedule.body)).is_private:
            return ""
        adapter = self._delivery.adapter(schedule.key.channel)
        if not isinstance(adapter, SupportsMembership):
            return ""
        try:
            with anyio.fail_after(MEMBERSHIP_S):
                target = _target(template, schedule.key)
                is_member = await adapter.is_member(target, template.sender.user_id)
        except TimeoutError:
            return ""
        except DeliveryError as error:
            log.info("schedule %s: the members of its chat are unknown: %s", schedule.id, error)
            return CHAT if error.place_gone == "chat" else ""
        return OWNER if is_member is False else ""

    async def _check(
        self, schedule: Schedule, occurrence: Occurrence
    ) -> tuple[Schedule, Occurrence, str]:
        """Run the check. Return the schedule with the digest of its output, the occurrence, and the output."""
        if not schedule.check_command or schedule.key is None or self._checks is None:
            return schedule, occurrence, ""
        found = await self._conversations.find(schedule.key)
        thread_id = None if found is None else found.thread_id
        if thread_id is None:  # The check writes its files where the agent will look for them.
            fresh = str(uuid.uuid4())
            thread_id = await self._conversations.bind_thread(schedule.key, fresh, instead_of=None)
        try:
            output = await self._checks.run(thread_id, schedule.check_command)
        except CheckFailed as error:
            return schedule, replace(occurrence, outcome="failed", detail=str(error)[:500]), ""
        digest = hashlib.sha256(output.encode()).hexdigest()
        if digest == schedule.check_digest:
            return schedule, replace(occurrence, outcome="unchanged"), output
        return replace(schedule, check_digest=digest), occurrence, output

    async def _stop(self, schedule: Schedule, earlier: Occurrence) -> None:
        """Stop the answer of an earlier occurrence, as if its owner pressed the stop button."""
        message = decode_inbound(schedule.body)
        if earlier.inbox_id is None or schedule.key is None:
            return
        press = ButtonPress(
            event_id=f"{event_id_of(earlier)}:stop",
            key=schedule.key,
            reply_target=message.reply_target,
            message_id="",
            token=ButtonToken(ButtonAction.STOP, earlier.inbox_id).text,
            sender=message.sender,
            is_private=message.is_private,
        )
        await self._intake.handle_button_press(press)

    async def _send(
        self, schedule: Schedule, occurrence: Occurrence, event_id: str, output: str = ""
    ) -> tuple[Occurrence, bool]:
        """Send the message or start the run. Return the occurrence, and whether the owner has lost their rights."""
        if schedule.key is None:
            return await self._start_run(schedule, occurrence), False
        message = _message(schedule, schedule.key, occurrence, now=self._now())
        quoted = f"```\n{output.strip()[:MAX_OUTPUT_CHARS]}\n```" if output else ""
        message = replace(message, event_id=event_id, quoted=quoted)
        disposition = await self._intake.receive(message)
        if disposition is Disposition.TAKEN_OVER:
            return replace(occurrence, outcome="skipped", detail=disposition.value), False
        if disposition in _LOST_RIGHTS:
            return replace(occurrence, outcome="failed", detail=disposition.value), True
        inbox_id = await self._store.find_message(schedule.key, message.event_id)
        if inbox_id is None:
            return replace(occurrence, outcome="failed", detail=disposition.value), False
        return replace(occurrence, inbox_id=inbox_id), False

    async def _start_run(self, schedule: Schedule, occurrence: Occurrence) -> Occurrence:
        if self._runs is None:
            return replace(occurrence, outcome="failed", detail="no runtime")
        try:
            thread_id, run_id = await self._runs.start(schedule, occurrence.due_at)
        except RunNotStarted as error:
            return replace(occurrence, outcome="failed", detail=str(error)[:500])
        return replace(occurrence, thread_id=thread_id, run_id=run_id)

    def _notify(self, schedule: Schedule, because: str = "") -> None:
        for row in _notices(schedule, because):
            self._delivery.notify(row.conversation)


def _outcome_of(ended: EndedOccurrence) -> tuple[OccurrenceOutcome, str]:
    """Return the outcome of an occurrence, and its detail."""
    if ended.occurrence.inbox_id is None:
        failed = ended.run_status in ("error", "timeout")
        return ("failed" if failed else "answered"), ended.run_status or ""
    if ended.message_outcome == "failed":
        return "failed", ended.message_problem or ""
    is_answered = ended.message_outcome in (None, "waiting", "joined")
    return ("answered" if is_answered else "silent"), ""


def _next_times(schedules: Sequence[Schedule], now: float) -> dict[str, float]:
    """Return the next time of each schedule after now, by its ID. Blocking."""
    times = {one.id: recurrence_of(one).next_after(now) for one in schedules}
    return {name: at for name, at in times.items() if at is not None}


def event_id_of(occurrence: Occurrence) -> str:
    """Return the ID by which the journal knows an occurrence.

    >>> event_id_of(Occurrence(schedule_id="7", due_at=1.5, outcome="queued"))
    'schedule:7:1.500'
    """
    return f"schedule:{occurrence.schedule_id}:{occurrence.due_at:.3f}"


def _message(
    schedule: Schedule, key: ConversationKey, occurrence: Occurrence, *, now: float
) -> InboundMessage:
    template = decode_inbound(schedule.body)
    target = _target(template, key)
    text = template.text
    if now - occurrence.due_at > LATE_S or occurrence.missed:
        due = format_moment(occurrence.due_at, schedule.timezone)
        text += "\n\n" + target.texts.schedule_late.format(due=due, count=occurrence.missed)
    return replace(
        template,
        key=key,
        reply_target=target,
        text=text,
        origin=f"schedule:{schedule.id}",
        sent_at=now,
    )


def _target(template: InboundMessage, key: ConversationKey) -> ReplyTarget:
    target = template.reply_target
    if key.chat != template.key.chat and target.chat == template.key.chat:
        target = replace(target, chat=key.chat)  # The chat was migrated.
    return target


def _notices(schedule: Schedule, because: str) -> list[NewOutboxRow]:
    """Return the message that says that a schedule was paused; none for an API schedule.

    If the chat is gone, the owner gets the message in private.
    """
    if schedule.key is None:
        return []
    template, conversation = decode_inbound(schedule.body), schedule.key
    target = _target(template, conversation)
    texts = target.texts
    if because == CHAT:
        # The adapters write to a person's ID in private.
        person = template.sender.user_id
        conversation = replace(conversation, chat=person, topic="")
        target = replace(target, chat=person, thread="", thread_root="")
    text = {OWNER: texts.schedule_paused_owner, CHAT: texts.schedule_paused_chat}.get(
        because, texts.schedule_paused_failures
    )
    body = OutboundText(
        channel=conversation.channel,
        reply_target=target,
        markdown=text.format(name=schedule.name, count=MAX_FAILURES),
    )
    key = f"schedule:{schedule.id}:{because}:{schedule.updated_at:.3f}"
    return [NewOutboxRow(key=key, conversation=conversation, body=encode_outbound(body))]
