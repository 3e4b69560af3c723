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
    "max_facts",
    "fact_confidence_threshold",
    "injection_enabled",
    "max_injection_tokens",
)


class MemoryApi(ClientApi):
    """What is remembered of people and rooms. Every method looks at one document.

    Args of all: `scope`: whose memory; turns of this client use `default`. `agent`: a custom agent's memory;
    "" = that of the agent as it is. All raise MemoryInvalid for what breaks a rule, and MemoryUnavailable.
    """

    async def get_memory(self, *, scope: str = DEFAULT, agent: str = "") -> JsonObject:
        """Return a document; an empty one when nothing is remembered."""
        return document_to_json(await self._systems.memory.get(memory_scope(scope, agent)))

    async def export_memory(self, *, scope: str = DEFAULT, agent: str = "") -> JsonObject:
        """Return a document, to be imported elsewhere."""
        return await self.get_memory(scope=scope, agent=agent)

    async def import_memory(
        self, document: Mapping[str, Any], *, scope: str = DEFAULT, agent: str = ""
    ) -> JsonObject:
        """Put a document in the place of the present one, and return it."""
        return document_to_json(
            await self._systems.memory.replace(memory_scope(scope, agent), document)
        )

    async def reload_memory(self, *, scope: str = DEFAULT, agent: str = "") -> JsonObject:
        """Read the documents from disk again; return one."""
        return document_to_json(await self._systems.memory.reload(memory_scope(scope, agent)))

    async def clear_memory(self, *, scope: str = DEFAULT, agent: str = "") -> JsonObject:
        """Forget a document; without `agent` everything in the scope. Return what is left: nothing."""
        return document_to_json(await self._systems.memory.clear(memory_scope(scope, agent)))

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
            await self._systems.memory.create_fact(where, content, category, confidence)
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
        """Change a fact: what is None stays. Return the whole document.

        Args:
            fact_id: Which.
            content: What it says.
            category: Of what kind it is.
            confidence: How certain, 0 to 1.
            scope: Whose memory.
            agent: A custom agent's.

        Raises:
            FactNotFound: There is none with this id.
        """
        given = {"content": content, "category": category, "confidence": confidence}
        changes = {key: value for key, value in given.items() if value is not None}
        where = memory_scope(scope, agent)
        return document_to_json(await self._systems.memory.update_fact(where, fact_id, changes))

    async def delete_memory_fact(
        self, fact_id: str, *, scope: str = DEFAULT, agent: str = ""
    ) -> JsonObject:
        """Remove a fact; return the whole document. Raises FactNotFound."""
        return document_to_json(
            await self._systems.memory.delete_fact(memory_scope(scope, agent), fact_id)
        )

    async def get_memory_config(self) -> JsonObject:
        """Return the configuration that holds now."""
        config = self._systems.memory.config
        return {key: getattr(config, key) for key in _SETTINGS}

    async def get_memory_status(self, *, scope: str = DEFAULT, agent: str = "") -> JsonObject:
        """Return the configuration and a document: `{config, data}`."""
        document = await self.get_memory(scope=scope, agent=agent)
        return {"config": await self.get_memory_config(), "data": document}

    async def list_memory_scopes(self) -> JsonObject:
        """Return whose memory there is: `{scopes}`."""
        found = [asdict(info) for info in await self._systems.memory.list_scopes()]
        return {"scopes": [{**info, "agents": list(info["agents"])} for info in found]}
