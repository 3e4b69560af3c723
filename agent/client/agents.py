"""Client methods for custom agents and USER.md."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from pydantic import ValidationError
from typing_extensions import Unpack

from agent.client.api import ClientApi, JsonObject
from agent.custom_agents import CustomAgent, normalize_agent_name, require_known
from agent.errors import AgentInvalid


class CustomAgentFields(TypedDict, total=False):
    """The fields of a custom agent; see `CustomAgent`."""

    description: str
    model: str | None
    tool_groups: Sequence[str] | None
    skills: Sequence[str] | None
    soul: str


class CustomAgentsApi(ClientApi):
    """Custom agents and USER.md."""

    async def list_agents(self) -> JsonObject:
        """Return the custom agents: `{agents}`."""
        return {
            "agents": [
                _to_json(agent) for agent in await self._services.custom_agents.list_agents()
            ]
        }

    async def get_agent(self, name: str) -> JsonObject | None:
        """Return a custom agent; None if it does not exist. Raises AgentInvalid."""
        return (
            _to_json(await self._services.custom_agents.get(name))
            if await self._services.custom_agents.exists(name)
            else None
        )

    async def create_agent(self, name: str, **fields: Unpack[CustomAgentFields]) -> JsonObject:
        """Create a custom agent and return it.

        Args:
            name: Letters, digits and hyphens.
            fields: `description`, `model`, `tool_groups`, `skills`, `soul`.

        Raises:
            AgentExists: The name is taken.
            AgentInvalid: A field is invalid.
        """
        self._require_known(fields)
        return _to_json(
            await self._services.custom_agents.create(_validate({"name": name, **fields}))
        )

    async def update_agent(self, name: str, **fields: Unpack[CustomAgentFields]) -> JsonObject:
        """Update the given fields and return the agent. Raises AgentNotFound, AgentInvalid."""
        self._require_known(fields)
        changed = await self._services.custom_agents.update(
            name, lambda old: _validate({**old.model_dump(), **fields})
        )
        return _to_json(changed)

    async def delete_agent(self, name: str) -> None:
        """Delete a custom agent with its files. Raises AgentNotFound."""
        await self._services.custom_agents.delete(name)

    async def check_agent_name(self, name: str) -> JsonObject:
        """Return whether a name is available, with its stored form: `{available, name}`. Raises AgentInvalid."""
        return {
            "available": not await self._services.custom_agents.exists(name),
            "name": normalize_agent_name(name),
        }

    async def get_user_profile(self) -> JsonObject:
        """Return USER.md: `{content}`."""
        return {"content": await self._services.custom_agents.load_profile()}

    async def update_user_profile(self, content: str) -> JsonObject:
        """Replace USER.md and return it. Raises AgentInvalid."""
        await self._services.custom_agents.write_profile(content)
        return {"content": content}

    def _require_known(self, fields: CustomAgentFields) -> None:
        config = self._services.config.get()
        require_known(config, fields.get("model"), fields.get("tool_groups"))


def _validate(fields: Mapping[str, Any]) -> CustomAgent:
    try:
        return CustomAgent.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise AgentInvalid(f"{key}: {first['msg']}") from None


def _to_json(agent: CustomAgent) -> JsonObject:
    return agent.model_dump(mode="json", exclude={"made_by"})
