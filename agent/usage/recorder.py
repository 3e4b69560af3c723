"""UsageRecorder: counts model calls, writes their usage in the background, and makes reservations for limits.

All model calls go through `CountedModel` (agent/models/counted.py), which the model factory adds to each model. Usage
is written at most `WRITE_S` after a call, for all runs together, so that no answer waits for it. If there is a limit, a
call first reserves the most that it may use. If its process dies, another process settles the reservation.
"""

import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import anyio
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata

from agent.background import background_tasks
from agent.config import AgentConfig, ModelConfig
from agent.token_estimate import ASCII_RATE, estimate_message_tokens, estimate_tokens
from agent.usage.limits import limits_for
from agent.usage.owner import UsageOwner, current_owner
from agent.usage.prices import cost_nano_usd
from store.errors import StoreError
from store.usage import FinishedUsage, UsageCounter, UsageLimit, UsageRow, UsageStore

log = logging.getLogger(__name__)

WRITE_S = 1.0
"""How long finished calls wait for others before they are written, seconds. Calls with a reservation do not wait."""

CLOSE_S = 5.0
"""Time limit of the last write at shutdown, seconds."""

MAX_WAITING = 100_000
"""Maximum number of calls to keep while the database cannot be used. Further ones are lost."""

OUTPUT_TOKENS = 4_096
"""Tokens to reserve for an answer if the model's entry has no `max_tokens`. Few answers are longer."""


@dataclass(slots=True, kw_only=True)
class _Call:
    """A model call that has not ended."""

    row: UsageRow
    messages: Sequence[BaseMessage]
    tools: Any
    reservation_id: str = ""
    streamed_tokens: float = 0.0


class UsageRecorder:
    """Counts model calls.

    Args:
        store: The tables; None = usage is not stored, and limits do not apply.
        config: Returns the current configuration.
        now: Returns the time.

    Attributes:
        tokens: Tokens since the start, by model, kind of call, and `input`, `cached`, `output` or `reasoning`.
        nano_usd: Cost since the start, by model and kind of call, billionths of a US dollar.
    """

    def __init__(
        self,
        store: UsageStore | None,
        config: Callable[[], AgentConfig],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.store = store
        self.tokens: Counter[tuple[str, str, str]] = Counter()
        self.nano_usd: Counter[tuple[str, str]] = Counter()
        self._config = config
        self._now = now
        self._warnings: dict[UsageCounter, UsageLimit] = {}
        self._active: dict[UUID, _Call] = {}
        self._waiting: list[FinishedUsage] = []
        self._changed = anyio.Event()
        self._urgent = anyio.Event()
        self._writing = anyio.Lock()

    async def begin(
        self,
        call_id: UUID,
        entry: ModelConfig,
        messages: Sequence[BaseMessage],
        tools: Any,  # noqa: ANN401 - in the provider's form
        purpose: str,
    ) -> None:
        """Begin a call of a model.

        Raises:
            UsageLimitReached: A limit leaves no room for it.
            StoreUnavailable: Limits are configured, and the database cannot be used.
        """
        owner = current_owner()
        now = self._now()
        row = UsageRow(
            day=now.astimezone(UTC).date().isoformat(),
            started_at=now.timestamp(),
            run_id=owner.run_id or str(call_id),
            kind=purpose or (owner.kind if owner.run_id else "other"),
            model=entry.name,
            agent=owner.agent,
            person=owner.person,
            room=owner.room,
            topic=owner.topic,
            calls=1,
        )
        call = _Call(row=row, messages=messages, tools=tools)
        limits = limits_for(self._config().usage.limits, owner, row.day) if self.store else []
        if limits and self.store is not None:
            most = _priced(
                replace(
                    row,
                    estimated_calls=1,
                    input_tokens=_input_tokens(call),
                    output_tokens=_max_output_tokens(entry),
                ),
                entry,
            )
            call.reservation_id = uuid4().hex
            for limit in await self.store.reserve(call.reservation_id, most, limits):
                self._warnings[limit.counter] = limit
                log.warning(
                    "80%% of the usage limit of %s %r in %s is used",
                    *(limit.counter.scope, limit.counter.name, limit.counter.period),
                )
        self._active[call_id] = call

    def take_warnings(self) -> list[UsageLimit]:
        """Return the limits of the current person and room that are nearly used up, once per period."""
        if not self._warnings:
            return []
        owner = current_owner()
        names = {("person", owner.person), ("room", owner.room)}
        taken = [one for one in self._warnings if (one.scope, one.name) in names]
        return [self._warnings.pop(one) for one in taken]

    def add_streamed(self, call_id: UUID, text: object) -> None:
        """Count a streamed piece of an answer, in case the answer breaks off."""
        call = self._active.get(call_id)
        if call is not None and isinstance(text, str):
            call.streamed_tokens += (
                len(text) * ASCII_RATE if text.isascii() else estimate_tokens(text)
            )

    def finish(self, call_id: UUID, entry: ModelConfig, answer: AIMessage | None) -> None:
        """Count an answer, with the usage that the server reported or else an estimate."""
        call = self._active.pop(call_id, None)
        if call is None:
            return
        usage = answer.usage_metadata if answer is not None else None
        if usage and (usage["input_tokens"] or usage["output_tokens"]):
            row = _reported(call.row, usage)
        else:
            text = estimate_message_tokens([answer]) if answer is not None else 0
            row = _estimated(call, max(text, round(call.streamed_tokens)))
        self._add(call, _priced(row, entry))

    def fail(self, call_id: UUID, entry: ModelConfig, *, was_served: bool) -> None:
        """Count a call that failed or was canceled. `was_served`: whether the server may have processed it."""
        call = self._active.get(call_id)
        if call is None:
            return
        if was_served or call.streamed_tokens:
            self.finish(call_id, entry, None)
        else:
            del self._active[call_id]
            self._add(call, replace(call.row, calls=0))

    async def flush(self) -> None:
        """Write the finished calls now. If this raises StoreError, they wait for the next attempt."""
        if self.store is None:
            self._waiting.clear()
            return
        async with self._writing:
            batch, self._waiting = self._waiting, []
            if not batch:
                return
            try:
                await self.store.add(batch)
            except BaseException:
                self._waiting = [*batch, *self._waiting][:MAX_WAITING]
                raise

    async def forget(self, scope: str) -> None:
        """Keep the usage of a person or room only in totals. `scope` is a memory scope. Raises StoreUnavailable."""
        owner = UsageOwner.from_memory_scope(scope)
        if self.store is None:
            return
        await self.flush()
        if owner.person:
            await self.store.forget_person(owner.person)
        if owner.room:
            await self.store.forget_room(owner.room)

    async def settle_abandoned(self) -> None:
        """Count the calls of processes that ended during the calls. Raises StoreUnavailable."""
        if self.store is not None and (count := await self.store.settle_abandoned()):
            log.info("Settled %d model calls of a process that ended during them", count)

    async def run(self) -> None:
        """Write finished calls until canceled."""
        while True:
            if not self._waiting:
                self._changed = anyio.Event()
                await self._changed.wait()
            if not any(one.reservation_id for one in self._waiting):
                self._urgent = anyio.Event()
                with anyio.move_on_after(WRITE_S):
                    await self._urgent.wait()
            try:
                await self.flush()
            except StoreError as error:
                log.warning("Could not write usage, will try again later: %s", error)
                await anyio.sleep(WRITE_S)

    def _add(self, call: _Call, row: UsageRow) -> None:
        if row.calls:
            for name in ("input", "cached", "output", "reasoning"):
                self.tokens[(row.model, row.kind, name)] += getattr(row, f"{name}_tokens")
            self.nano_usd[(row.model, row.kind)] += row.cost_nano_usd
        if row.calls or call.reservation_id:
            self._waiting.append(FinishedUsage(row=row, reservation_id=call.reservation_id))
            self._changed.set()
            if call.reservation_id:
                self._urgent.set()


@asynccontextmanager
async def running_recorder(recorder: UsageRecorder) -> AsyncIterator[None]:
    """Run a recorder, and settle the reservations of processes that ended. Leaving the block writes the rest.

    Raises:
        StoreUnavailable: The database cannot be used.
    """
    await recorder.settle_abandoned()
    try:
        async with background_tasks() as tasks:
            tasks.start_soon(recorder.run)
            yield
    finally:
        try:
            with anyio.move_on_after(CLOSE_S, shield=True):
                await recorder.flush()
        except StoreError as error:
            log.warning("The last usage could not be written: %s", error)


def _reported(row: UsageRow, usage: UsageMetadata) -> UsageRow:
    return replace(
        row,
        input_tokens=usage["input_tokens"],
        cached_tokens=(usage.get("input_token_details") or {}).get("cache_read") or 0,
        output_tokens=usage["output_tokens"],
        reasoning_tokens=(usage.get("output_token_details") or {}).get("reasoning") or 0,
    )


def _estimated(call: _Call, output_tokens: int) -> UsageRow:
    return replace(
        call.row,
        estimated_calls=1,
        input_tokens=_input_tokens(call),
        output_tokens=output_tokens,
    )


def _input_tokens(call: _Call) -> int:
    tools = estimate_tokens(json.dumps(call.tools, default=str)) if call.tools else 0
    return estimate_message_tokens(call.messages) + tools


def _max_output_tokens(entry: ModelConfig) -> int:
    given = entry.extra_keys()
    most = given.get("max_completion_tokens") or given.get("max_tokens")
    return most if isinstance(most, int) and most > 0 else OUTPUT_TOKENS


def _priced(row: UsageRow, entry: ModelConfig) -> UsageRow:
    cost = cost_nano_usd(entry, row)
    return replace(row, unpriced_calls=1) if cost is None else replace(row, cost_nano_usd=cost)
