"""The models and agents that people may choose in a chat, and the model that answers there."""

from bus.commands.gateway import GatewayCommands
from bus.config import LEAD_AGENT
from bus.context import BusContext
from bus.messages import InboundMessage
from bus.settings.resolver import Setting
from bus.settings.sessions import InvalidSession, SessionResolver


class Choices:
    """Choices for the commands /model and /agent, and for the API. None = the gateway does not answer."""

    def __init__(self, bus: BusContext, gateway: GatewayCommands) -> None:
        self._settings = bus.settings
        self._gateway = gateway
        self._graphs = sorted(bus.graphs)
        self._sessions = SessionResolver(bus.config, bus.policies, bus.settings, bus.graphs)

    async def models(self, channel: str) -> list[str] | None:
        """Return the models that people may choose."""
        return await self._gateway.model_names(channel)

    async def agents(self, message: InboundMessage) -> list[str] | None:
        """Return the custom agents and graphs that people may choose."""
        found = await self._gateway.names("agents", "agents")
        if found is None:
            return None
        known = [*found, *self._graphs]
        if self.default_agent(message) in self._graphs:
            known.append(LEAD_AGENT)  # The default here is not Parley's own agent.
        return self._settings.allowed.agents(message.key.channel, known)

    def default_agent(self, message: InboundMessage) -> str:
        """Return the configured graph or custom agent; "" = Parley's own agent."""
        return self._sessions.configured_agent(message)

    async def model(self, message: InboundMessage) -> Setting | None:
        """Return the model that answers a message, with its source; None = it is unknown, or a graph answers."""
        try:
            found = self._sessions.explain(message)
        except InvalidSession:
            return None
        agent = found["agent"].value
        if agent in self._graphs:
            return None
        known = await self._gateway.names("models", "models") or []
        agents = await self._gateway.entries("agents", "agents") or []
        own = next((one.get("model") for one in agents if one.get("name") == agent), None)
        wanted = [found.get("model"), Setting(value=own, source="agent")]
        wanted += [Setting(value=name, source="default", key="models") for name in known[:1]]
        return next((one for one in wanted if one is not None and one.value in known), None)
