"""One attempt to send an outbox row: sends it, or finds the outcome of an earlier attempt, and records the outcome."""

import logging
import math
from dataclasses import dataclass, replace
from functools import partial

import anyio

from bus.errors import DeliveryError, MessageTooLong, unwrapped
from bus.messages import (
    MessageId,
    MovedTo,
    OutboundFile,
    OutboundMessage,
    OutboundText,
    ReplyTarget,
    decode_outbound,
    encode_outbound,
    platform_message_id,
)
from bus.outbound.moved_answers import can_move, find_place, moved_line
from bus.outbound.retry_policy import GiveUp, RetryTimings, decide_retry
from bus.outbound.rows import is_answer_text, repeated_edit_key, text_key
from bus.outbound.send_rate_limiter import SendRateLimiter
from bus.outbound.sending import RowSender, first_part, message_key, next_part
from bus.outbound.split import split_text
from bus.platform import Adapter, Clock, SupportsMessageLookup
from bus.retry import StoreRetry
from bus.runs.port import ThreadFiles
from bus.tracing import NO_TRACER, MessageTracer
from store.outbox import OutboxRow, OutboxStore

log = logging.getLogger(__name__)

SEND_DEADLINE_S = 60.0
"""Time limit of one attempt, seconds. After that, the outcome is unknown."""

CLOCK_ERROR_S = 15 * 60.0
"""How far the clock of this machine, or of the node that stored a row, may be ahead of the platform's, seconds."""

STOP_GRACE_S = 3.0
"""Time limit for an attempt in progress when Parley stops, seconds. After that, the outcome is unknown."""

MAX_UNEXPECTED_ERRORS = 3
"""Maximum number of attempts to send a row that end with an unexpected exception in the adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRow:
    """An outbox row, ready for an attempt.

    Attributes:
        message: The message that the row changes or deletes, if it was sent.
        edits: Whether the row changes an existing message, which may be repeated.
        repeatable: Whether the row may be sent again now, because of `edits` or the platform's idempotency window.
    """

    row: OutboxRow
    body: OutboundMessage
    adapter: Adapter
    message: MessageId | None
    edits: bool
    repeatable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedRow:
    """A row that needs no further attempt. `is_sent`: whether people see it."""

    decoded: DecodedRow
    is_sent: bool
    is_uncertain: bool = False


_UNKNOWN = "outcome unknown"


class DeliveryAttempts:
    """Makes attempts and records their outcomes.

    If an outcome cannot be recorded, it is kept in memory until the store works again, so that a sent message is not
    sent twice.
    """

    def __init__(
        self,
        *,
        outbox: OutboxStore,
        files: ThreadFiles,
        limiter: SendRateLimiter,
        store: StoreRetry,
        timings: RetryTimings,
        now: Clock,
        tracer: MessageTracer = NO_TRACER,
    ) -> None:
        self._outbox = outbox
        self._sender = RowSender(outbox, files)
        self._limiter = limiter
        self._store = store
        self._timings = timings
        self._now = now
        self._tracer = tracer
        self._scopes: set[anyio.CancelScope] = set()
        self._stop_at = math.inf
        self._in_flight: dict[int, tuple[str, str, anyio.Event]] = {}

    def stop(self) -> None:
        """Give attempts in progress, and those about to begin, `STOP_GRACE_S` to finish and be recorded."""
        self._stop_at = anyio.current_time() + STOP_GRACE_S
        for scope in self._scopes:
            scope.deadline = self._stop_at

    async def wait_recorded(self, channel: str, chats: set[str]) -> None:
        """Wait until the attempts in progress in these chats are recorded."""
        for where, chat, recorded in [*self._in_flight.values()]:
            if where == channel and chat in chats:
                await recorded.wait()

    async def advance(
        self, row: OutboxRow, body: OutboundMessage, adapter: Adapter
    ) -> ClosedRow | None:
        """Advance a row by one step. Return it if it is now closed.

        Raises:
            StoreError: Nothing was sent, and the row has not changed.
        """
        if row.id in self._in_flight:  # The task for the chat's old ID has closed it.
            await self._in_flight[row.id][2].wait()
            return None
        decoded = await self._prepare(row, body, adapter)
        if row.state == "sending":
            # An earlier process stopped between sending the row and recording the outcome.
            error = _unknown_outcome(decoded, "Parley stopped while the message was sent")
            return await self._record(decoded, error, since=row.last_sent_at or row.updated_at)
        if row.uncertain_attempts and not decoded.repeatable:
            return await self._resolve_doubt(decoded)
        return await self._attempt(decoded)

    async def show_failure(self, closed: ClosedRow) -> None:
        """Send a notice instead of an answer's text that was permanently refused. Raises nothing."""
        decoded = closed.decoded
        await self._sender.show_failure(
            "" if closed.is_uncertain else decoded.row.key,
            decoded.body,
            decoded.adapter,
            decoded.message,
        )

    async def _prepare(self, row: OutboxRow, body: OutboundMessage, adapter: Adapter) -> DecodedRow:
        """Return a row with the message that it changes, and whether it may be sent again. Raises StoreError."""
        message = await self._sender.find_changed_message(body)
        edits = self._sender.is_edit(body, adapter, message)
        window_s = adapter.capabilities.idempotent_send_s
        first = row.first_sent_at
        repeatable = edits or (first is not None and 0 <= self._now() - first < window_s)
        return DecodedRow(
            row=row, body=body, adapter=adapter, message=message, edits=edits, repeatable=repeatable
        )

    async def _attempt(self, decoded: DecodedRow) -> ClosedRow | None:
        """Send a row once and record the outcome."""
        row, chat = decoded.row, (decoded.row.conversation.channel, decoded.body.reply_target.chat)
        numbers = decoded.adapter.capabilities
        await self._limiter.acquire(chat, numbers.send_interval_s, burst=numbers.send_burst)
        now = self._now()
        if not await self._outbox.mark_sending(
            row.id, now=now, uncertain_attempts=row.uncertain_attempts
        ):
            return None
        first = now if row.first_sent_at is None else row.first_sent_at
        decoded = replace(
            decoded,
            row=replace(row, attempts=row.attempts + 1, first_sent_at=first),
            repeatable=decoded.edits or now - first < numbers.idempotent_send_s,
        )
        return await self._send_and_record(decoded, started_at=now)

    async def _send_and_record(self, decoded: DecodedRow, *, started_at: float) -> ClosedRow | None:
        """Send a row whose attempt has been stored, and record the outcome."""
        row, chat = decoded.row, (decoded.row.conversation.channel, decoded.body.reply_target.chat)
        closed = None
        recorded = anyio.Event()
        # Shielded, so that messages that the platform accepted are recorded even while Parley stops.
        with anyio.CancelScope(shield=True, deadline=self._stop_at) as scope:
            self._scopes.add(scope)
            self._in_flight[row.id] = (*chat, recorded)
            try:
                outcome = await self._send(decoded)
                self._trace(row, outcome, started_at=started_at)
                closed = await self._record(decoded, outcome)
            finally:
                self._scopes.discard(scope)
                del self._in_flight[row.id]
                recorded.set()
        return closed

    def _trace(
        self, row: OutboxRow, outcome: MessageId | DeliveryError, *, started_at: float
    ) -> None:
        error = type(outcome).__name__ if isinstance(outcome, DeliveryError) else ""
        self._tracer.record_delivery(row, started_at=started_at, ended_at=self._now(), error=error)

    async def _send(self, decoded: DecodedRow) -> MessageId | DeliveryError:
        """Send a row. Return the platform's ID of the message, or the error."""
        try:
            with unwrapped(), anyio.fail_after(SEND_DEADLINE_S):
                return await self._sender.send(
                    decoded.row, decoded.body, decoded.adapter, decoded.message
                )
        except DeliveryError as error:
            return error
        except TimeoutError:
            return _unknown_outcome(decoded, f"no answer within {SEND_DEADLINE_S:.0f} s")
        except Exception as error:
            log.exception("delivery %s: unexpected error of the adapter", decoded.row.key)
            return _UnexpectedError(decoded, error)

    async def _resolve_doubt(self, decoded: DecodedRow) -> ClosedRow | None:
        """Find the outcome of earlier attempts before sending the row again."""
        row = decoded.row
        if isinstance(decoded.adapter, SupportsMessageLookup):
            found = await self._look_up(decoded, decoded.adapter)
            if found is None:
                # The platform may still carry out a request whose connection broke, so look it up once more later.
                if await self._is_too_early(row):
                    return None
                return await self._attempt(replace(decoded, row=replace(row, uncertain_attempts=0)))
            if not isinstance(found, DeliveryError):
                cleared = replace(decoded, row=replace(row, uncertain_attempts=0))
                return await self._record(cleared, found)
            first = row.created_at if row.first_sent_at is None else row.first_sent_at
            if found.retryable and self._now() - first <= self._timings.give_up_after_s:
                wait_s = found.retry_after_s or self._timings.backoff.cap_s
                await self._postpone(row, self._now() + wait_s, found.user_message)
                return None
        return await self._repeat_once(decoded)

    async def _look_up(
        self, decoded: DecodedRow, adapter: SupportsMessageLookup
    ) -> MessageId | DeliveryError | None:
        """Return the message that an earlier attempt sent, None, or why it is unknown."""
        row = decoded.row
        try:
            with unwrapped(), anyio.fail_after(SEND_DEADLINE_S):
                return await adapter.find_message(
                    decoded.body.reply_target,
                    key=message_key(row, decoded.body),
                    since=row.created_at - CLOCK_ERROR_S,
                )
        except DeliveryError as error:
            log.warning("delivery %s cannot be looked up: %s", row.key, error.user_message)
            return error
        except Exception:
            log.exception("delivery %s cannot be looked up", row.key)
            return DeliveryError("the lookup failed", retryable=True)

    async def _repeat_once(self, decoded: DecodedRow) -> ClosedRow | None:
        """Send a row with an unknown outcome once more, `repeat_after_s` after the uncertain attempt."""
        row = decoded.row
        if row.uncertain_attempts > 1:
            return await self._record(decoded, DeliveryError(row.error or _UNKNOWN))
        if await self._is_too_early(row):
            return None
        return await self._attempt(decoded)

    async def _is_too_early(self, row: OutboxRow) -> bool:
        """Return whether it is too early to resend a row with an unknown outcome. If so, postpone it."""
        now, after_s = self._now(), self._timings.repeat_after_s
        sent_at = row.last_sent_at or row.updated_at
        if not sent_at <= now < sent_at + after_s:
            return False
        await self._postpone(row, sent_at + after_s, row.error or _UNKNOWN)
        return True

    async def _postpone(self, row: OutboxRow, not_before: float, reason: str) -> None:
        await self._outbox.reschedule(
            row.id, not_before=not_before, error=reason, now=self._now(), has_failed=False
        )

    async def _record(
        self, decoded: DecodedRow, outcome: MessageId | DeliveryError, *, since: float | None = None
    ) -> ClosedRow | None:
        """Record the outcome of an attempt, with retries until the store works. Return the row if it is closed.

        `since`: when the wait begins, if not now.
        """
        row, now = decoded.row, self._now()
        is_uncertain = row.uncertain_attempts > 0 and not decoded.repeatable
        is_uncertain = is_uncertain or _was_uncertain(decoded.body)
        if isinstance(decoded.body, OutboundText):
            body = replace(decoded.body, uncertain=is_uncertain)
            if isinstance(outcome, MessageTooLong) and len(outcome.pieces) > 1:
                # The row's text now needs several messages, which replace the repeated edit of its text.
                again = repeated_edit_key(row.key)
                await self._start_part(row, first_part(body, outcome.pieces), supersedes=again)
                return None
            if not isinstance(outcome, DeliveryError) and body.more:
                message_id = platform_message_id(outcome)
                await self._start_part(row, next_part(body), message_id=message_id)
                return None
        if not isinstance(outcome, DeliveryError):
            await self._store.call(
                lambda: self._outbox.mark_delivered(
                    row.id,
                    outcome,
                    now=now,
                    uncertain=is_uncertain,
                    message_id=platform_message_id(outcome),
                    begins_topic=_begins_topic(decoded.body),
                )
            )
            return ClosedRow(decoded=decoded, is_sent=True)
        return await self._record_failure(decoded, outcome, now if since is None else since)

    async def _start_part(
        self, row: OutboxRow, body: OutboundText, *, message_id: str = "", supersedes: str = ""
    ) -> None:
        """Advance to the row's next message, which has its own attempts and key."""
        start = partial(
            self._outbox.start_part,
            row.id,
            encode_outbound(body),
            now=self._now(),
            message_id=message_id,
            begins_topic=body.begins_topic,
        )
        await self._store.call(partial(start, supersedes=supersedes))

    async def _record_failure(
        self, decoded: DecodedRow, error: DeliveryError, since: float
    ) -> ClosedRow | None:
        row, now, reason = decoded.row, self._now(), error.user_message
        decision = decide_retry(
            error,
            row,
            now=now,
            repeatable=decoded.repeatable,
            can_look_up=isinstance(decoded.adapter, SupportsMessageLookup),
            timings=self._timings,
        )
        if isinstance(error, _UnexpectedError) and row.attempts >= MAX_UNEXPECTED_ERRORS:
            decision = GiveUp(uncertain=error.ambiguous or row.uncertain_attempts > 0)
        log.warning("delivery %s to %s: %s (%s)", row.key, decoded.body.channel, reason, decision)
        if isinstance(decision, GiveUp):
            if error.place_gone and can_move(row.key, decoded.body):
                refusal = await self._move(decoded, error)
                if refusal is None:
                    return None
                if refusal is not error:  # The private chat could not be looked up now.
                    return await self._record_failure(decoded, refusal, since)
            uncertain = decision.uncertain or _was_uncertain(decoded.body)
            await self._store.call(
                lambda: self._outbox.mark_failed(row.id, error=reason, now=now, uncertain=uncertain)
            )
            return ClosedRow(decoded=decoded, is_sent=False, is_uncertain=uncertain)
        if error.retry_after_s is not None:
            chat = (decoded.body.channel, decoded.body.reply_target.chat)
            self._limiter.pause(chat, decision.wait_s)
        # If an earlier process recorded a send in the future, the clock has been set back since.
        not_before = min(since, now) + decision.wait_s
        outcome_unknown = decision.outcome_unknown
        await self._store.call(
            lambda: self._outbox.reschedule(
                row.id,
                not_before=not_before,
                error=reason,
                now=now,
                outcome_unknown=outcome_unknown,
                not_sent=error.credentials_refused,
            )
        )
        return None

    async def _move(self, decoded: DecodedRow, error: DeliveryError) -> DeliveryError | None:
        """Redirect a row to another place, as if it were new.

        If that is impossible, return the error that ends its attempts.
        """
        row, body = decoded.row, decoded.body
        if not isinstance(body, OutboundText | OutboundFile):
            return error
        try:
            with unwrapped(), anyio.fail_after(SEND_DEADLINE_S):
                found = await find_place(body, decoded.adapter, error)
        except DeliveryError as refusal:
            return refusal if refusal.retryable else error
        except TimeoutError:
            return DeliveryError("the private chat was not found in time", retryable=True)
        if found is None:
            return error
        target, moved_to = found
        # The platform drops a repeated send only in the same place.
        body = replace(body, uncertain=body.uncertain or row.uncertain_attempts > 0)
        if isinstance(body, OutboundFile):
            moved: OutboundMessage = replace(body, reply_target=target, moved_to=moved_to)
        else:
            moved = await self._moved_text(decoded, body, target, moved_to)
        await self._store.call(
            lambda: self._outbox.start_part(
                row.id,
                encode_outbound(moved),
                now=self._now(),
                # The row edits a message in the original place.
                supersedes=repeated_edit_key(row.key),
            )
        )
        return None

    async def _moved_text(
        self, decoded: DecodedRow, body: OutboundText, target: ReplyTarget, moved_to: MovedTo
    ) -> OutboundText:
        """Return a text for another place. An answer's first text there begins with a line that explains the move."""
        moved = replace(
            body,
            reply_target=target,
            moved_to=moved_to,
            replaces="",
            buttons=() if moved_to == "private" else body.buttons,
        )
        if await self._was_told(decoded.row.key, moved_to):
            return moved
        line = moved_line(target, moved_to)
        text = body.markdown.removeprefix(f"{moved_line(target, 'chat')}\n\n")
        return first_part(moved, await split_text(decoded.adapter, f"{line}\n\n{text}"))

    async def _was_told(self, key: str, moved_to: MovedTo) -> bool:
        """Return whether an earlier text of the same answer was sent to that place."""
        first = text_key(key, 0)
        row = None
        if key != first and is_answer_text(key):
            row = await self._store.call(lambda: self._outbox.find(first))
        told = decode_outbound(row.body) if row is not None else None
        return isinstance(told, OutboundText) and told.moved_to == moved_to


class _UnexpectedError(DeliveryError):
    """An exception of an adapter other than DeliveryError."""

    def __init__(self, decoded: DecodedRow, error: Exception) -> None:
        super().__init__(
            f"unexpected error ({type(error).__name__})",
            retryable=True,
            ambiguous=not decoded.edits,
        )


def _begins_topic(body: OutboundMessage) -> bool:
    return isinstance(body, OutboundText | OutboundFile) and body.begins_topic


def _was_uncertain(body: OutboundMessage) -> bool:
    """Return whether an earlier send of a row may have succeeded, elsewhere or in part."""
    return isinstance(body, OutboundText | OutboundFile) and body.uncertain


def _unknown_outcome(decoded: DecodedRow, reason: str) -> DeliveryError:
    """Return the error of an attempt that may have succeeded. It is not ambiguous for edits, which can be repeated."""
    return DeliveryError(reason, retryable=True, ambiguous=not decoded.edits)
