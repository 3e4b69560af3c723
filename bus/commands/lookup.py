"""/models and /memory: questions to the gateway's REST API."""

import logging
from typing import Any

import anyio
import httpx

from bus.commands.call import Call

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
"""How long the gateway may take to answer a question."""


class Lookups:
    """Commands that ask the gateway."""

    def __init__(self, gateway: httpx.AsyncClient) -> None:
        self._gateway = gateway

    async def models(self, call: Call) -> str:  # noqa: ARG002 - every handler gets its call
        """List the models that are configured."""
        found = _names(await self._ask("models"))
        if found is None:
            return "Failed to fetch models information."
        if not found:
            return "No models configured."
        return "Available models:\n" + "\n".join(f"• {name}" for name in found)

    async def memory(self, call: Call) -> str:  # noqa: ARG002 - every handler gets its call
        """Say how much is remembered."""
        document = await self._ask("memory")
        facts = document.get("facts") if isinstance(document, dict) else None
        if not isinstance(facts, list):
            return "Failed to fetch memory information."
        return f"Memory contains {len(facts)} fact(s)."

    async def _ask(self, path: str) -> Any:  # noqa: ANN401 - this is the wire
        """Return the JSON of a GET, or None if there is none."""
        try:
            with anyio.fail_after(TIMEOUT_S):
                answer = await self._gateway.get(path, timeout=TIMEOUT_S)
                answer.raise_for_status()
                return answer.json()
        except (httpx.HTTPError, TimeoutError, ValueError) as error:
            log.warning("the gateway's %s could not be read: %s", path, type(error).__name__)
            return None


def _names(document: Any) -> list[str] | None:  # noqa: ANN401 - this is the wire
    """Return the models' names, or None if this is not a list of models."""
    models = document.get("models") if isinstance(document, dict) else None
    if not isinstance(models, list):
        return None
    return [str(model["name"]) for model in models if isinstance(model, dict) and model.get("name")]
