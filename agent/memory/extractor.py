"""MemoryExtractor: asks a model what a turn changes in a memory document, and applies it."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import anyio
import anyio.to_thread

from agent.config import DEMO_MODEL_CLASS, AgentConfig
from agent.memory.extraction_prompt import extraction_prompt, parse_update
from agent.memory.merge import apply_update
from agent.memory.queue import QueuedTurn
from agent.memory.schema import MemoryDocument
from agent.memory.store import MemoryStore
from agent.models.auxiliary import ModelSource, auxiliary_run_config

log = logging.getLogger(__name__)

DEADLINE_S = 120.0
"""Deadline of one model call, seconds."""


class MemoryExtractor:
    """Extracts memory from one queued turn, or from several concurrently.

    Args:
        store: The documents.
        models: Provides the extraction model.
        config: Returns the current configuration.
        now: Returns the current time, with zone.
    """

    def __init__(
        self,
        store: MemoryStore,
        models: ModelSource,
        config: Callable[[], AgentConfig],
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._models = models
        self._config = config
        self._now = now

    def is_enabled(self) -> bool:
        """Return whether memory is enabled and its model is a real one, not the demo."""
        config = self._config()
        if not config.memory.enabled:
            return False
        name = config.memory.model_name
        entry = config.model_named(name) if name else config.chat_models[0]
        return entry is None or entry.use != DEMO_MODEL_CLASS

    async def process(self, queued: QueuedTurn) -> None:
        """Extract memory from one turn. Failures are logged and leave the document unchanged."""
        if queued.is_cancelled or not self.is_enabled():
            return
        try:
            await self._process(queued)
        except Exception as error:  # noqa: BLE001 - providers raise their own types, and no caller waits for the result
            # Do not log the text of the error: it may quote the conversation or a key.
            log.warning("Memory extraction failed: %s", type(error).__name__)

    async def _process(self, queued: QueuedTurn) -> None:
        turn, memory = queued.turn, self._config().memory
        document = await anyio.to_thread.run_sync(self._store.read, turn.scope)
        model = await self._models(memory.model_name)
        with anyio.fail_after(DEADLINE_S):
            answer = await model.ainvoke(
                extraction_prompt(document, turn), auxiliary_run_config("memory")
            )
        update = parse_update(answer.text)
        if update is None:
            log.debug("Memory extraction returned no usable changes")
            return

        def change(current: MemoryDocument) -> MemoryDocument:
            # The document may have changed, or the turn may have been cancelled, while the model was thinking.
            if queued.is_cancelled:
                return current
            return apply_update(
                current,
                update,
                now=format_utc(self._now()),
                source=turn.thread_id,
                new_id=new_fact_id,
                min_confidence=memory.fact_confidence_threshold,
                max_facts=memory.max_facts,
            )

        if not queued.is_cancelled:
            await anyio.to_thread.run_sync(self._store.update, turn.scope, change)


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
