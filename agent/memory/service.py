"""MemoryService: extracts memory from turns, provides it to prompts, and lets operators edit it."""

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from langchain_core.messages import BaseMessage

from agent.background import background_tasks
from agent.config import AgentConfig, MemoryConfig
from agent.errors import FactNotFound, MemoryInvalid, MemoryServiceError, MemoryUnavailable
from agent.memory.extractor import MemoryExtractor, format_utc, new_fact_id, utc_now
from agent.memory.pending import PendingTurns
from agent.memory.prompt_block import memory_block
from agent.memory.queue import MemoryQueue, MemoryQueueKey
from agent.memory.recall import ConversationSearch
from agent.memory.schema import (
    CATEGORIES,
    DEFAULT_CATEGORY,
    DEFAULT_CONFIDENCE,
    MANUAL,
    MAX_FACT_CHARS,
    MAX_FACTS,
    PARTS,
    MemoryDocument,
    MemoryFact,
    clean_text,
    document_from_json,
)
from agent.memory.scope import MemoryScope, memory_scope
from agent.memory.shared import shared_memory
from agent.memory.store import MemoryScopeInfo, MemoryStore
from agent.memory.turns import extract_turn
from agent.models.auxiliary import ModelSource
from agent.options import RunContext
from store.errors import StoreError
from store.files.mirror import FileMirror
from store.past_messages import PastMessage, PastMessages

log = logging.getLogger(__name__)

FLUSH_S = 3.0
"""How long shutdown waits for extraction, seconds. The next start processes the rest."""

MAX_BLOCKS = 512
"""Maximum number of conversations with a cached prompt block."""

BLOCK_REST = timedelta(minutes=10)
"""Idle time after which a conversation's cached block expires. By then, providers' caches have expired too."""

BLOCK_AGE = timedelta(hours=1)
"""Age at which the block expires in a conversation without idle time. So one request an hour misses the provider's
cache."""

_CachedBlock = tuple[datetime, datetime, int, str]
"""Time of creation, time of last use, token limit, and the block."""


class MemoryService:
    """Extracts memory in the background. Open it with `open_memory`.

    Args:
        home: The data folder.
        config: Returns the current configuration. `memory.storage_path` is read once, here.
        models: Provides the extraction model.
        now: Returns the current time, with zone.
        mirror: Copies the documents between nodes; None on a single node.
        past_messages: Stores past messages for `search_conversations`; None = nothing is stored.
        on_change: Called after memory may have changed.
    """

    def __init__(
        self,
        home: Path,
        config: Callable[[], AgentConfig],
        models: ModelSource,
        now: Callable[[], datetime] = utc_now,
        mirror: FileMirror | None = None,
        past_messages: PastMessages | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        root = home / (config().memory.storage_path or "memory")
        self._config = config
        self._now = now
        self._store = MemoryStore(root, shared_memory(mirror, home, root))
        self._pending = PendingTurns(root)
        self._saving = anyio.Lock()
        self._unsaved: dict[MemoryQueueKey, object] = {}
        self._blocks: OrderedDict[MemoryQueueKey, _CachedBlock] = OrderedDict()
        self._on_change = on_change
        self._extractor = MemoryExtractor(self._store, models, config, now, on_change)
        self._queue = MemoryQueue(
            self._extractor.process,
            self._save_pending,
            rest_s=lambda: self.config.debounce_seconds,
            spacing_s=lambda: 3600 / self.config.max_calls_per_hour,
        )
        self._conversations = ConversationSearch(past_messages) if past_messages else None
        self._is_open = False

    async def start(self, tasks: TaskGroup) -> None:
        """Start processing. Begins with the turns that an earlier process left."""
        for turn in await anyio.to_thread.run_sync(self._pending.load):
            await self._save_pending(self._queue.add(turn))
            if self._conversations:
                self._conversations.add(turn)
        tasks.start_soon(self._queue.run)
        if self._conversations:
            tasks.start_soon(self._conversations.run)
        self._is_open = True

    async def aclose(self, flush_s: float) -> None:
        """Process as many turns as fit in the time limit. The rest stays on disk."""
        self._is_open = False
        with anyio.move_on_after(flush_s):
            if self._conversations:
                await self._conversations.flush()
            await self._queue.flush()

    @property
    def config(self) -> MemoryConfig:
        """The current `memory` section."""
        return self._config().memory

    # ---- for runs ------------------------------------------------------------------------------

    async def prompt_block(self, caller: RunContext) -> str:
        """Return the caller's memory as a block for the prompt; "" if it is empty or disabled.

        The block stays the same during a conversation, although memory is extracted from each turn, because providers
        cache prompts by prefix, and the history already contains the latest messages. It is renewed after changes by
        people, after a pause of `BLOCK_REST`, and at the age of `BLOCK_AGE`.
        """
        scope = _scope_of(caller) if self._is_injected() else None
        if scope is None:
            return ""
        block = self._recent_block(MemoryQueueKey(thread_id=caller.thread_id, scope=scope))
        if block is not None:
            return block
        return await anyio.to_thread.run_sync(self.block_now, caller)

    def block_now(self, caller: RunContext) -> str:
        """Like `prompt_block`, but blocking."""
        scope = _scope_of(caller) if self._is_injected() else None
        if scope is None:
            return ""
        key = MemoryQueueKey(thread_id=caller.thread_id, scope=scope)
        block = self._recent_block(key)
        if block is None:
            limit = self.config.max_injection_tokens
            try:
                block = memory_block(self._store.read(scope), limit)
            except MemoryServiceError:
                return ""  # the store logged the error; the run continues without memory
            now = self._now()
            self._blocks[key] = (now, now, limit, block)
            if len(self._blocks) > MAX_BLOCKS:
                self._blocks.popitem(last=False)
        return block

    def _recent_block(self, key: MemoryQueueKey) -> str | None:
        """Return a conversation's cached block and extend its lifetime. Return None if it must be rebuilt."""
        now, limit = self._now(), self.config.max_injection_tokens
        created_at, used_at, cached_limit, block = self._blocks.pop(key, (now, now, 0, ""))
        if cached_limit != limit or now - used_at >= BLOCK_REST or now - created_at >= BLOCK_AGE:
            return None
        self._blocks[key] = (created_at, now, limit, block)
        return block

    async def enqueue_turn(self, messages: Sequence[BaseMessage], caller: RunContext) -> None:
        """Queue the last turn of a thread for extraction, and save it. Does nothing if memory is off or not open.

        Args:
            messages: The thread, including the final answer.
            caller: The user and thread of the run.
        """
        scope = self._extraction_scope(caller)
        turn = scope and extract_turn(
            scope, caller.thread_id, messages, said_at=format_utc(self._now())
        )
        if turn:
            if self._conversations:
                self._conversations.add(turn)
            await self._save_pending(self._queue.add(turn))

    @property
    def can_search(self) -> bool:
        """Whether runs can search past conversations."""
        return self._conversations is not None and self.config.enabled

    async def search_conversations(
        self, caller: RunContext, query: str, *, limit: int
    ) -> list[PastMessage]:
        """Return matching messages from conversations in the caller's scope, best first. Raises StoreError."""
        scope = _scope_of(caller)
        if scope is None or self._conversations is None:
            return []
        return await self._conversations.search(scope, query, limit=limit)

    async def forget_undone(self, thread_id: str, *message_ids: str) -> None:
        """Delete these messages of a thread and all later ones, so that no search finds messages that a rewind removed.

        A failure is only logged, because the next turn of the thread deletes them too.
        """
        if self._conversations is None:
            return
        try:
            for message_id in message_ids:
                await self._conversations.forget_from(thread_id, message_id)
        except StoreError:
            log.exception(
                "Could not delete undone messages of thread %s: searches can still find them",
                thread_id,
            )

    def before_summarization(
        self,
        messages: Sequence[BaseMessage],  # noqa: ARG002 - the signature of every hook
        caller: RunContext,
    ) -> None:
        """Process the queued turns of a thread now, because its older messages are about to be dropped.

        The messages themselves are not used: `enqueue_turn` received each turn when it ended. Extracting from them
        again would cost a model call and restore facts that people deleted.

        Args:
            messages: The messages about to be dropped.
            caller: The user and thread of the run.
        """
        scope = self._extraction_scope(caller)
        if scope is not None:
            self._queue.expedite(MemoryQueueKey(thread_id=caller.thread_id, scope=scope))

    def _extraction_scope(self, caller: RunContext) -> MemoryScope | None:
        if not self._is_open or not self._extractor.is_enabled():
            return None
        return _scope_of(caller)

    # ---- for operators and users ---------------------------------------------------------------

    async def get(self, scope: MemoryScope) -> MemoryDocument:
        """Return a document. This and the methods below raise MemoryUnavailable."""
        return await anyio.to_thread.run_sync(self._store.read, scope)

    async def reload(self, scope: MemoryScope) -> MemoryDocument:
        """Reload a document from disk."""
        self._store.clear_cache()
        self._renew_blocks(scope)
        return await self.get(scope)

    async def list_scopes(self) -> list[MemoryScopeInfo]:
        """Return the scopes that have memory."""
        return await anyio.to_thread.run_sync(self._store.list_scopes)

    async def clear(self, scope: MemoryScope) -> MemoryDocument:
        """Delete a document, its queued turns and its stored messages. Without an agent, delete the whole scope."""
        dropped = self._queue.drop(scope)
        if self._conversations:
            with _store_errors():
                await self._conversations.forget(scope)
        await anyio.to_thread.run_sync(self._store.delete, scope)
        self._renew_blocks(scope)
        self._on_change()
        for key in dropped:
            await self._save_pending(key)
        return await self.get(scope)

    async def replace(self, scope: MemoryScope, data: object) -> MemoryDocument:
        """Replace a document, as an import does.

        Raises:
            MemoryInvalid: The data is not a memory document or has none of its parts. Importing the wrong file must
                not delete everything.
        """
        if isinstance(data, dict) and data.keys().isdisjoint(PARTS):
            raise MemoryInvalid(f"not a memory document: it has none of {', '.join(PARTS)}")
        document = replace(document_from_json(data), last_updated=self._timestamp())
        return await self._update(scope, lambda _: document)

    async def create_fact(
        self,
        scope: MemoryScope,
        content: str,
        category: str = DEFAULT_CATEGORY,
        confidence: float = DEFAULT_CONFIDENCE,
    ) -> MemoryDocument:
        """Add a fact that a person stated. Return the whole document.

        Raises:
            MemoryInvalid: The fact is empty or too long, its category or confidence is invalid, or the document is
                full.
        """
        fact = MemoryFact(
            id=new_fact_id(),
            content=_check_content(content),
            category=_check_category(category),
            confidence=_check_confidence(confidence),
            created_at=self._timestamp(),
            source=MANUAL,
        )
        return await self._update(scope, lambda document: self._add_fact(document, fact))

    async def update_fact(
        self, scope: MemoryScope, fact_id: str, changes: dict[str, Any]
    ) -> MemoryDocument:
        """Change a fact's `content`, `category` or `confidence`. Other fields stay unchanged.

        Raises:
            FactNotFound: There is no fact with this id.
            MemoryInvalid: See `create_fact`.
        """
        checked: dict[str, Any] = {
            key: check(changes[key]) for key, check in _CHECKS.items() if key in changes
        }

        def change(document: MemoryDocument) -> MemoryDocument:
            facts = tuple(
                replace(fact, **checked) if fact.id == fact_id else fact for fact in document.facts
            )
            return self._replace_facts(_require_fact(document, fact_id), facts)

        return await self._update(scope, change)

    async def delete_fact(self, scope: MemoryScope, fact_id: str) -> MemoryDocument:
        """Delete a fact, and the stored messages of its turn. Return the whole document.

        Raises:
            FactNotFound: There is no fact with this id.
        """
        known = (await self.get(scope)).facts
        fact = next((one for one in known if one.id == fact_id), None)
        if fact is not None and fact.message and self._conversations:
            with _store_errors():
                await self._conversations.forget_turn(fact.source, fact.message)

        def change(document: MemoryDocument) -> MemoryDocument:
            facts = tuple(fact for fact in document.facts if fact.id != fact_id)
            return self._replace_facts(_require_fact(document, fact_id), facts)

        return await self._update(scope, change)

    async def _update(
        self, scope: MemoryScope, change: Callable[[MemoryDocument], MemoryDocument]
    ) -> MemoryDocument:
        document = await anyio.to_thread.run_sync(self._store.update, scope, change)
        self._renew_blocks(scope)
        self._on_change()
        return document

    def _renew_blocks(self, scope: MemoryScope) -> None:
        """Drop the cached prompt blocks of a changed scope. Without an agent, drop all blocks of the scope."""
        for key in list(self._blocks):
            if key.scope.scope == scope.scope and scope.agent in (None, key.scope.agent):
                self._blocks.pop(key, None)

    def _add_fact(self, document: MemoryDocument, fact: MemoryFact) -> MemoryDocument:
        if len(document.facts) >= MAX_FACTS:
            raise MemoryInvalid(f"there are already {MAX_FACTS} facts: delete some first")
        return self._replace_facts(document, (*document.facts, fact))

    def _replace_facts(
        self, document: MemoryDocument, facts: tuple[MemoryFact, ...]
    ) -> MemoryDocument:
        return replace(document, facts=facts, last_updated=self._timestamp())

    def _timestamp(self) -> str:
        return format_utc(self._now())

    # ---- extraction ----------------------------------------------------------------------------

    def _is_injected(self) -> bool:
        config = self.config
        return config.enabled and config.injection_enabled

    async def _save_pending(self, key: MemoryQueueKey) -> None:
        """Save a conversation's unprocessed turns, batched with other conversations that wait for the disk."""
        self._unsaved[key] = object()
        async with self._saving:
            unsaved = dict(self._unsaved)
            if key not in unsaved:
                return
            entries = [(one, self._queue.unprocessed_of(one)) for one in unsaved]
            await anyio.to_thread.run_sync(self._pending.save_all, entries)
            for one, version in unsaved.items():
                if self._unsaved.get(one) is version:
                    del self._unsaved[one]


@asynccontextmanager
async def open_memory(
    home: Path,
    config: Callable[[], AgentConfig],
    models: ModelSource,
    mirror: FileMirror | None = None,
    past_messages: PastMessages | None = None,
    *,
    on_change: Callable[[], None] = lambda: None,
    now: Callable[[], datetime] = utc_now,
    flush_s: float = FLUSH_S,
) -> AsyncIterator[MemoryService]:
    """Open the memory. Leaving the block processes queued turns for up to `flush_s` seconds; the rest waits on disk.

    Args: See `MemoryService`.
    """
    memory = MemoryService(home, config, models, now, mirror, past_messages, on_change)
    async with background_tasks() as tasks:
        await memory.start(tasks)
        try:
            yield memory
        finally:
            with anyio.CancelScope(shield=True):
                await memory.aclose(flush_s)


def _scope_of(caller: RunContext) -> MemoryScope | None:
    """Return the caller's scope; None if it is invalid. There is no fallback to another scope."""
    try:
        return memory_scope(caller.memory_scope, caller.agent_name)
    except MemoryInvalid as error:
        log.warning("Running without memory: %s", error)
        return None


@contextmanager
def _store_errors() -> Iterator[None]:
    """Raise MemoryUnavailable if the database cannot be used."""
    try:
        yield
    except StoreError as error:
        raise MemoryUnavailable from error


def _require_fact(document: MemoryDocument, fact_id: str) -> MemoryDocument:
    if all(fact.id != fact_id for fact in document.facts):
        raise FactNotFound
    return document


def _check_content(value: object) -> str:
    text = clean_text(value, MAX_FACT_CHARS + 1) if isinstance(value, str) else ""
    if not text:
        raise MemoryInvalid("a fact must not be empty")
    if len(text) > MAX_FACT_CHARS:
        raise MemoryInvalid(f"a fact must have at most {MAX_FACT_CHARS} characters")
    return text


def _check_category(value: object) -> str:
    name = value.strip().lower() if isinstance(value, str) else ""
    if name not in CATEGORIES:
        raise MemoryInvalid(f"category must be one of {', '.join(CATEGORIES)}")
    return name


def _check_confidence(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= float(value) <= 1:  # type: ignore[arg-type]  # a number, by the line above
        raise MemoryInvalid("confidence must be a number from 0 to 1")
    return float(value)  # type: ignore[arg-type]


_CHECKS: Mapping[str, Callable[[object], str | float]] = {
    "content": _check_content,
    "category": _check_category,
    "confidence": _check_confidence,
}
