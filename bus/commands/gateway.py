"""/models, /memory and /forget: commands that call the gateway's REST API."""

import logging
from collections.abc import Mapping
from typing import Any

import anyio
import httpx

from bus.commands.context import CommandContext
from bus.settings.memory_scope import memory_scope
from bus.settings.resolver import AllowedChoices

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
"""Timeout of a request to the gateway, seconds."""

FORGET_WORD = "yes"
"""The argument that confirms /forget."""


class GatewayCommands:
    """Commands that call the gateway."""

    def __init__(self, gateway: httpx.AsyncClient, allowed: AllowedChoices) -> None:
        self._gateway = gateway
        self._allowed = allowed

    async def models(self, context: CommandContext) -> str:
        """List the models that people may choose."""
        found = await self.model_names(context)
        if found is None:
            return context.texts.models_failed
        if not found:
            return context.texts.models_none
        return "\n".join([context.texts.models_head, *(f"• {name}" for name in found)])

    async def memory(self, context: CommandContext) -> str:
        """Show the number of facts in the memory of the person or group."""
        facts = await self._facts(context)
        if facts is None:
            return context.texts.memory_failed
        return context.texts.memory_count.format(count=facts)

    async def forget(self, context: CommandContext) -> str:
        """Delete the memory of the person or group if the command confirms it."""
        texts = context.texts
        whose = texts.word_you if context.inbound.is_private else texts.word_this_chat
        if context.argument.strip().lower() != FORGET_WORD:
            facts = await self._facts(context)
            if facts is None:
                return context.texts.memory_failed
            return texts.forget_ask.format(count=facts, whose=whose, word=FORGET_WORD)
        done = await self._request("DELETE", "memory", {"scope": memory_scope(context.inbound)})
        return texts.forget_failed if done is None else texts.forget_done.format(whose=whose)

    async def model_names(self, context: CommandContext) -> list[str] | None:
        """Return the models that people may choose in a chat; None if the request failed."""
        found = await self.names("models", "models")
        return None if found is None else self._allowed.models(context.row.key.channel, found)

    async def names(self, path: str, key: str) -> list[str] | None:
        """Return the names of the objects under `key` of a document; None if the request failed."""
        found = await self.entries(path, key)
        if found is None:
            return None
        return [str(entry["name"]) for entry in found if entry.get("name")]

    async def entries(self, path: str, key: str) -> list[dict[str, Any]] | None:
        """Return the objects under `key` of a document; None if the request failed."""
        document = await self._request("GET", path)
        listed = document.get(key) if isinstance(document, dict) else None
        if not isinstance(listed, list):
            return None
        return [entry for entry in listed if isinstance(entry, dict)]

    async def _facts(self, context: CommandContext) -> int | None:
        document = await self._request("GET", "memory", {"scope": memory_scope(context.inbound)})
        facts = document.get("facts") if isinstance(document, dict) else None
        return len(facts) if isinstance(facts, list) else None

    async def _request(self, method: str, path: str, query: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401 - this is the wire
        """Return the JSON of a response; None if the request failed."""
        try:
            with anyio.fail_after(TIMEOUT_S):
                answer = await self._gateway.request(method, path, params=query, timeout=TIMEOUT_S)
                answer.raise_for_status()
                return answer.json()
        except (httpx.HTTPError, TimeoutError, ValueError) as error:
            log.warning("request to the gateway for %s failed: %s", path, type(error).__name__)
            return None
