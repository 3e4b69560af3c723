"""Resolves the session of a run: user > chat > channel > defaults, key by key, then settings chosen by command."""

import copy
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bus.access.policy import is_admin
from bus.config import DEFAULT_SESSION, LEAD_AGENT, BusConfig, Busy, ChannelPolicy, SessionConfig
from bus.errors import BusError
from bus.messages import InboundMessage
from bus.settings.memory_scope import global_room_id, global_user_id, run_memory_scope
from bus.settings.resolver import SettingsResolver, run_context

_EMPTY = SessionConfig()
_NAME = re.compile(r"[a-z0-9-]{1,64}")


class InvalidSession(BusError):
    """The configured session cannot be used.

    Attributes:
        agent: The invalid name of an agent.
    """

    def __init__(self, agent: str) -> None:
        super().__init__(f"invalid agent name: {agent!r}")
        self.agent = agent


class SessionResolver:
    """Merges the configured sessions with the settings that people chose by command.

    Args:
        config: The default session.
        policies: The channels' policies.
        settings: The chosen settings.
        graphs: The embedded runtime's graphs besides the agent. People choose them like agents.
    """

    def __init__(
        self,
        config: BusConfig,
        policies: Mapping[str, ChannelPolicy],
        settings: SettingsResolver,
        graphs: Collection[str] = (),
    ) -> None:
        self._config = config
        self._graphs = graphs
        self._policies = policies
        self._settings = settings
        self._merged: dict[tuple[int, ...], tuple[SessionConfig, list[SessionConfig]]] = {}

    def resolve(self, message: InboundMessage) -> SessionConfig:
        """Return the session for a message. Do not change it. Raises InvalidSession."""
        session = self._configured(message)
        chosen = dict(run_context(self._settings.resolve(message.key)))
        assistant_id = session.assistant_id
        if chosen.get("agent_name") == LEAD_AGENT or chosen.get("agent_name") in self._graphs:
            assistant_id = chosen.pop("agent_name")
        elif "agent_name" in chosen and assistant_id in self._graphs:
            assistant_id = LEAD_AGENT
        context = {
            **session.context,
            **chosen,
            "chat": self._chat(message),
            "channel_user_id": message.sender.user_id,
            "user_id": global_user_id(message),
            "memory_scope": run_memory_scope(message),
            "room": global_room_id(message),
            "topic": message.key.topic,
            "language": message.reply_target.language,
        }
        if message.origin:
            context["origin"] = message.origin
        policy = self._policies.get(message.key.channel)
        if policy is not None and policy.agents is not None:
            context["allowed_agents"] = list(policy.agents)
        # Pass every field, because pydantic is slow at looking up defaults.
        return SessionConfig.model_construct(
            assistant_id=assistant_id,
            config=session.config,
            context=context,
            busy=session.busy,
            chats={},
            users={},
        )

    def configured_agent(self, message: InboundMessage) -> str:
        """Return the configured graph or custom agent that answers a message; "" = Parley's own agent."""
        try:
            session = self._configured(message)
        except InvalidSession as error:
            return error.agent
        if session.assistant_id in self._graphs:
            return str(session.assistant_id)
        return str(session.context.get("agent_name") or "")

    def busy_mode(self, message: InboundMessage) -> Busy | None:
        """Return what to do with a message while another turn of its conversation runs."""
        return _busy(self._layers(message))

    def is_admin(self, message: InboundMessage) -> bool:
        """Return whether the sender is an administrator, who may approve and deny for others."""
        policy = self._policies.get(message.key.channel)
        return policy is not None and is_admin(message.sender, policy)

    def _chat(self, message: InboundMessage) -> Mapping[str, str]:
        """Describe for the agent where a message was sent.

        Contains nothing that changes with each message of a conversation.
        """
        policy = self._policies.get(message.key.channel)
        chat = {
            "platform": (policy and policy.platform) or message.key.channel,
            "type": message.chat_type,
            "title": message.chat_title,
            "topic": message.topic_title,
            "name": message.sender.name if message.is_private else "",
        }
        return {key: value for key, value in chat.items() if value}

    def _configured(self, message: InboundMessage) -> SessionConfig:
        """Return the configured session, merged once for each set of layers. Raises InvalidSession."""
        layers = self._layers(message)
        name = tuple(map(id, layers))
        if name not in self._merged:
            session = merge_layers(layers)
            is_embedded = self._config.langgraph_url is None
            session = for_embedded_runtime(session, self._graphs) if is_embedded else session
            # Keep the layers, so that no other layer gets the same id().
            self._merged[name] = (session, layers)
        return self._merged[name][0]

    def _layers(self, message: InboundMessage) -> list[SessionConfig]:
        policy = self._policies.get(message.key.channel)
        own = policy.session if policy is not None else _EMPTY
        user, chat = message.sender.user_id, message.key.chat
        return session_layers(self._config.session, own, user_id=user, chat=chat)


def session_layers(
    defaults: SessionConfig, channel: SessionConfig, *, user_id: str, chat: str
) -> list[SessionConfig]:
    """Return the layers of a session; later ones override earlier ones."""
    theirs = (defaults.chats.get(chat), channel.chats.get(chat))
    own = (defaults.users.get(user_id), channel.users.get(user_id))
    further = [layer for layer in (*theirs, *own) if layer is not None]
    return [DEFAULT_SESSION, defaults, channel, *further]


def _busy(layers: Sequence[SessionConfig]) -> Busy | None:
    return next((layer.busy for layer in reversed(layers) if layer.busy), None)


def merge_layers(layers: Sequence[SessionConfig]) -> SessionConfig:
    """Return one session that shares no object with its layers.

    >>> layers = [SessionConfig(context={"a": 1, "b": 1}), SessionConfig(context={"a": 2})]
    >>> merge_layers(layers).context
    {'a': 2, 'b': 1}
    """
    config: dict[str, Any] = {}
    context: dict[str, Any] = {}
    for layer in layers:
        config.update(copy.deepcopy(layer.config))
        context.update(copy.deepcopy(layer.context))
    return SessionConfig(
        assistant_id=next((x.assistant_id for x in reversed(layers) if x.assistant_id), None),
        config=config,
        context=context,
        busy=_busy(layers),
    )


def for_embedded_runtime(session: SessionConfig, graphs: Collection[str] = ()) -> SessionConfig:
    """Return the session for the embedded runtime, which takes a custom agent's name in the context.

    `graphs`: the graphs besides the agent; each is an assistant of its own.

    Raises:
        InvalidSession: The agent's name is invalid.

    >>> for_embedded_runtime(SessionConfig(assistant_id="Code_Review")).context
    {'agent_name': 'code-review'}
    """
    wanted = session.assistant_id or LEAD_AGENT
    if wanted in graphs:
        return session
    if wanted == LEAD_AGENT:
        return session.model_copy(update={"assistant_id": LEAD_AGENT})
    name = wanted.strip().lower().replace("_", "-")
    if not _NAME.fullmatch(name):
        raise InvalidSession(wanted[:64])
    return session.model_copy(
        update={"assistant_id": LEAD_AGENT, "context": {**session.context, "agent_name": name}}
    )
