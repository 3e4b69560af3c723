"""Client methods for memory documents."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agent.client.api import ClientApi, JsonObject
from agent.memory.schema import DEFAULT_CATEGORY, DEFAULT_CONFIDENCE, document_to_json
from agent.memory.scope import DEFAULT, memory_scope

_SETTINGS = (
    "enabled",
    "storage_path",
    "debounce_seconds",
    "max_calls_per_hour",
    "max_facts",
    "fact_confidence_threshold",
    "injection_enabled",
    "max_injection_tokens",
)


class MemoryApi(ClientApi):
    """Memory documents. Each method works on one document.

    Common arguments: `scope` is the owner of the memory; turns of this client use `default`. `agent` selects a custom
    agent's memory; "" = the lead agent's. All methods raise MemoryInvalid for invalid arguments, and
    MemoryUnavailable.
    """

    async def get_memory(self, *, scope: str = DEFAULT, agent: str = "") -> JsonObject:
        """Return a document, which may be empty."""
        return document_to_json(await self._services.memory.get(memory_scope(scope, agent)))

    async def export_memory(self, *, scope: str = DEFAULT, agent: str = "") -> JsonObject:
        """Return a document for import into another installation."""
        return await self.get_memory(scope=scope, agent=agent)

    async def import_memory(
        self, document: Mapping[str, Any], *, scope: str = DEFAULT, agent: str = ""
    ) -> JsonObject:
        """Replace a document and return it."""
        return document_to_json(
            await self._services.memory.replace(memory_scope(scope, agent), document)
        )

    async def reload_memory(self, *, scope: str = DEFAULT, agent: str = "") -> JsonObject:
        """Reload the documents from disk, and return this one."""
        return document_to_json(await self._services.memory.reload(memory_scope(scope, agent)))

    async def clear_memory(self, *, scope: str = DEFAULT, agent: str = "") -> JsonObject:
        """Delete a document and return the empty one. Without `agent`, delete everything in the scope."""
        return document_to_json(await self._services.memory.clear(memory_scope(scope, agent)))

    async def create_memory_fact(
        self,
        content: str,
        category: str = DEFAULT_CATEGORY,
        confidence: float = DEFAULT_CONFIDENCE,
        *,
        scope: str = DEFAULT,
        agent: str = "",
    ) -> JsonObject:
        """Add a fact; return the whole document."""
        where = memory_scope(scope, agent)
        return document_to_json(
            await self._services.memory.create_fact(where, content, category, confidence)
        )

    async def update_memory_fact(
        self,
        fact_id: str,
        content: str | None = None,
        category: str | None = None,
        confidence: float | None = None,
        *,
        scope: str = DEFAULT,
        agent: str = "",
    ) -> JsonObject:
        """Update a fact; None keeps a value. Return the whole document.

        Args:
            fact_id: The fact's id.
            content: The new content.
            category: The new category.
            confidence: The new confidence, 0 to 1.
            scope: The owner of the memory.
            agent: A custom agent's memory.

        Raises:
            FactNotFound: There is no fact with this id.
        """
        given = {"content": content, "category": category, "confidence": confidence}
        changes = {key: value for key, value in given.items() if value is not None}
        where = memory_scope(scope, agent)
        return document_to_json(await self._services.memory.update_fact(where, fact_id, changes))

    async def delete_memory_fact(
        self, fact_id: str, *, scope: str = DEFAULT, agent: str = ""
    ) -> JsonObject:
        """Delete a fact; return the whole document. Raises FactNotFound."""
        return document_to_json(
            await self._services.memory.delete_fact(memory_scope(scope, agent), fact_id)
        )

    async def get_memory_config(self) -> JsonObject:
        """Return the current configuration."""
        config = self._services.memory.config
        return {key: getattr(config, key) for key in _SETTINGS}

    async def get_memory_status(self, *, scope: str = DEFAULT, agent: str = "") -> JsonObject:
        """Return the configuration and a document: `{config, data}`."""
        document = await self.get_memory(scope=scope, agent=agent)
        return {"config": await self.get_memory_config(), "data": document}

    async def list_memory_scopes(self) -> JsonObject:
        """Return the scopes that have memory: `{scopes}`."""
        found = [asdict(info) for info in await self._services.memory.list_scopes()]
        return {"scopes": [{**info, "agents": list(info["agents"])} for info in found]}
