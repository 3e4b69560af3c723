"""Learns from what was said: asks a model what to change in a document, and changes it."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import anyio
import anyio.to_thread

from agent.config import DEMO_MODEL_CLASS, AgentConfig
from agent.memory.extraction_prompt import MemoryUpdate, extraction_prompt, parse_update
from agent.memory.merge import Bounds, Stamp, apply_update
from agent.memory.queue import QueuedTurn
from agent.memory.schema import MemoryDocument
from agent.memory.store import MemoryStore
from agent.models.auxiliary import ModelSource, auxiliary_run_config

logger = logging.getLogger(__name__)

DEADLINE_S = 120.0
"""For one call of the model."""


class MemoryExtractor:
    """Works off one entry of the queue at a time, or several side by side.

    Args:
        files: Where the documents are.
        models: Gives the model that reads conversations.
        config: The configuration that holds now.
        now: The time, with its zone.
    """

    def __init__(
        self,
        files: MemoryStore,
        models: ModelSource,
        config: Callable[[], AgentConfig],
        now: Callable[[], datetime],
    ) -> None:
        self._files = files
        self._models = models
        self._config = config
        self._now = now

    def is_enabled(self) -> bool:
        """Return whether there is something that can learn: memory is on, and the model is a real one."""
        config = self._config()
        if not config.memory.enabled:
            return False
        name = config.memory.model_name
        entry = config.model_named(name) if name else config.chat_models[0]
        return entry is None or entry.use != DEMO_MODEL_CLASS

    async def process(self, work: QueuedTurn) -> None:
        """Learn from one entry. Whatever fails is logged, and the document is as it was."""
        if work.is_cancelled or not self.is_enabled():
            return
        try:
            await self._learn(work)
        except Exception as error:  # noqa: BLE001 - providers raise their own kinds; nobody waits for this
            # Without the text: it may quote the conversation, or a key.
            logger.warning("a conversation was not learnt from: %s", type(error).__name__)

    async def _learn(self, work: QueuedTurn) -> None:
        spot = work.turn.scope
        document = await anyio.to_thread.run_sync(self._files.read, spot)
        update = await self._asked(document, work)
        if update is None or work.is_cancelled:
            return

        def change(present: MemoryDocument) -> MemoryDocument:
            # The document may have changed while the model was thinking, or nobody may want it any more.
            return present if work.is_cancelled else self._merged(present, update, work)

        await anyio.to_thread.run_sync(self._files.update, spot, change)

    async def _asked(self, document: MemoryDocument, work: QueuedTurn) -> MemoryUpdate | None:
        model = await self._models(self._config().memory.model_name)
        with anyio.fail_after(DEADLINE_S):
            answer = await model.ainvoke(
                extraction_prompt(document, work.turn), auxiliary_run_config("memory")
            )
        update = parse_update(answer.text)
        if update is None:
            logger.debug("the model named no changes that could be understood; nothing was changed")
        return update

    def _merged(
        self, document: MemoryDocument, update: MemoryUpdate, work: QueuedTurn
    ) -> MemoryDocument:
        memory = self._config().memory
        bounds = Bounds(threshold=memory.fact_confidence_threshold, max_facts=memory.max_facts)
        stamp = Stamp(now=format_utc(self._now()), source=work.turn.thread_id, new_id=new_fact_id)
        return apply_update(document, update, bounds, stamp)


def new_fact_id() -> str:
    """Return an id for a new fact."""
    return f"fact_{uuid4().hex[:8]}"


def format_utc(moment: datetime) -> str:
    """Return a time as documents have it.

    >>> format_utc(datetime(2026, 3, 1, 12, 30, tzinfo=UTC))
    '2026-03-01T12:30:00Z'
    """
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
