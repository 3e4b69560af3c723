"""MemoryExtractor: asks a model how a turn changes a memory document, and applies the changes."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from uuid import uuid4

import anyio
import anyio.to_thread

from agent.config import DEMO_MODEL_CLASS, AgentConfig
from agent.memory.extraction_prompt import (
    extraction_prompt,
    fact_sources,
    fit_turns,
    parse_update,
)
from agent.memory.merge import apply_update
from agent.memory.queue import QueuedTurn
from agent.memory.schema import MemoryDocument
from agent.memory.store import MemoryStore
from agent.memory.turns import MemoryTurn, is_trivial
from agent.models.auxiliary import ModelSource, auxiliary_run_config
from agent.usage.owner import CURRENT_OWNER, UsageOwner

log = logging.getLogger(__name__)

DEADLINE_S = 120.0
"""Deadline of one model call, seconds."""


class MemoryExtractor:
    """Extracts memory from queued turns. Can process several documents concurrently.

    Args:
        store: The documents.
        models: Provides the extraction model.
        config: Returns the current configuration.
        now: Returns the current time, with zone.
        on_change: Called after a document may have changed.
    """

    def __init__(
        self,
        store: MemoryStore,
        models: ModelSource,
        config: Callable[[], AgentConfig],
        now: Callable[[], datetime],
        on_change: Callable[[], None],
    ) -> None:
        self._store = store
        self._models = models
        self._config = config
        self._now = now
        self._on_change = on_change

    def is_enabled(self) -> bool:
        """Return whether memory is enabled and its model is a real model, not the demo."""
        config = self._config()
        if not config.memory.enabled:
            return False
        name = config.memory.model_name
        entry = config.model_named(name) if name else config.chat_models[0]
        return entry is None or entry.use != DEMO_MODEL_CLASS

    async def process(self, entries: Sequence[QueuedTurn]) -> bool:
        """Extract memory from entries of one document. Return whether the model was called.

        Failures are logged and leave the document unchanged.
        """
        if not self.is_enabled():
            return False
        turns = [
            (one, turn) for one in entries if not one.is_cancelled and _is_worth(turn := one.turn)
        ]
        if not turns:
            return False
        try:
            await self._process(turns)
        except Exception as error:  # noqa: BLE001 - providers raise their own types, and no caller waits for the result
            # Do not log the text of the error: it may quote the conversation or a key.
            log.warning("Memory extraction failed: %s", type(error).__name__)
        return True

    async def _process(self, queued: Sequence[tuple[QueuedTurn, MemoryTurn]]) -> None:
        scope, memory = queued[0][1].scope, self._config().memory
        CURRENT_OWNER.set(UsageOwner.from_memory_scope(scope.scope, scope.agent or ""))
        turns = fit_turns([turn for _, turn in queued])
        document = await anyio.to_thread.run_sync(self._store.read, scope)
        model = await self._models(memory.model_name)
        with anyio.fail_after(DEADLINE_S):
            answer = await model.ainvoke(
                extraction_prompt(document, turns), auxiliary_run_config("memory")
            )
        update = parse_update(answer.text)
        if update is None:
            log.debug("Memory extraction returned no usable changes")
            return

        def change(current: MemoryDocument) -> MemoryDocument:
            # The document may have changed, or the turns may have been canceled, while the model was thinking.
            if any(one.is_cancelled for one, _ in queued):
                return current
            return apply_update(
                current,
                update,
                fact_sources(turns),
                now=format_utc(self._now()),
                new_id=new_fact_id,
                min_confidence=memory.fact_confidence_threshold,
                max_facts=memory.max_facts,
            )

        await anyio.to_thread.run_sync(self._store.update, scope, change)
        self._on_change()


def _is_worth(turn: MemoryTurn) -> bool:
    """Return whether a turn may contain something to learn."""
    return not is_trivial((*turn.context[-1:], *turn.messages))


def new_fact_id() -> str:
    """Return an id for a new fact."""
    return f"fact_{uuid4().hex[:8]}"


def utc_now() -> datetime:
    """Return the time, with zone."""
    return datetime.now(UTC)


def format_utc(moment: datetime) -> str:
    """Return a time in the form documents use.

    >>> format_utc(datetime(2026, 3, 1, 12, 30, tzinfo=UTC))
    '2026-03-01T12:30:00Z'
    """
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
