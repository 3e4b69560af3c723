"""Resolves the session of a run: user > chat > channel > defaults, key by key, then settings chosen by command."""

import copy
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bus.access.policy import is_admin
from bus.config import DEFAULT_SESSION, LEAD_AGENT, BusConfig, Busy, ChannelPolicy, SessionConfig
from bus.errors import BusError
from bus.messages import InboundMessage
from bus.settings.memory_scope import global_room_id, global_user_id, run_memory_scope
from bus.settings.resolver import Setting, SettingSource, SettingsResolver, run_context

_EMPTY = SessionConfig()
_NAME = re.compile(r"[a-z0-9-]{1,64}")


@dataclass(frozen=True, slots=True)
class SessionLayer:
    """One of the sessions to merge: its level, its key in the configuration ("" = built in), and the session itself."""

    source: SettingSource
    key: str
    session: SessionConfig


@dataclass(frozen=True, slots=True)
class MergedSession:
    """A session, and where each of its values comes from, by `assistant_id`, `busy`, `config.KEY` and `context.KEY`."""

    session: SessionConfig
    settings: Mapping[str, Setting]


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
        self._merged: dict[tuple[int, ...], tuple[MergedSession, list[SessionLayer]]] = {}

    def resolve(self, message: InboundMessage) -> SessionConfig:
        """Return the session for a message. The caller must not change it. Raises InvalidSession."""
        session = self._configured(message).session
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

    def explain(self, message: InboundMessage) -> dict[str, Setting]:
        """Return the values of `resolve` that someone chose or configured, with their sources. Raises InvalidSession.

        `agent` is the agent or graph, and `model` is missing if no one chose one. The other keys are `busy`,
        `config.KEY` and `context.KEY`.
        """
        session, merged = self.resolve(message), self._configured(message).settings
        chosen = self._settings.explain(message.key)
        found = {name: one for name, one in merged.items() if name != "assistant_id"}
        agent, named = merged["assistant_id"], found.pop("context.agent_name", None)
        if agent.value == LEAD_AGENT and named is not None:
            agent = named
        name = session.context.get("agent_name") or session.assistant_id
        found["agent"] = replace(chosen.get("agent", agent), value=name)
        if model := chosen.get("model", found.pop("context.model_name", None)):
            found["model"] = model
        return found

    def configured_agent(self, message: InboundMessage) -> str:
        """Return the configured graph or custom agent that answers a message; "" = Parley's own agent."""
        try:
            session = self._configured(message).session
        except InvalidSession as error:
            return error.agent
        if session.assistant_id in self._graphs:
            return str(session.assistant_id)
        return str(session.context.get("agent_name") or "")

    def busy_mode(self, message: InboundMessage) -> Busy | None:
        """Return what to do with a message while another turn of its conversation runs."""
        layers = self._layers(message)
        return next((one.session.busy for one in reversed(layers) if one.session.busy), None)

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

    def _configured(self, message: InboundMessage) -> MergedSession:
        """Return the configured session, merged once for each set of layers. Raises InvalidSession."""
        layers = self._layers(message)
        name = tuple(id(layer.session) for layer in layers)
        if name not in self._merged:
            merged = merge_layers(layers)
            if self._config.langgraph_url is None:
                session = for_embedded_runtime(merged.session, self._graphs)
                merged = MergedSession(session, merged.settings)
            # Keep the layers alive, so that no other layer gets the same id().
            self._merged[name] = (merged, layers)
        return self._merged[name][0]

    def _layers(self, message: InboundMessage) -> list[SessionLayer]:
        channel, user, chat = message.key.channel, message.sender.user_id, message.key.chat
        policy = self._policies.get(channel)
        own = policy.session if policy is not None else _EMPTY
        return session_layers(self._config.session, own, channel=channel, user_id=user, chat=chat)


def session_layers(
    defaults: SessionConfig, own: SessionConfig, *, channel: str, user_id: str, chat: str
) -> list[SessionLayer]:
    """Return the layers of a session; later ones override earlier ones. `own`: the channel's."""
    every, channels = "channels.session", f"channels.{channel}.session"
    layers: list[tuple[SettingSource, str, SessionConfig | None]] = [
        ("default", "", DEFAULT_SESSION),
        ("service", every, defaults),
        ("channel", channels, own),
        ("room", f"{every}.chats.{chat}", defaults.chats.get(chat)),
        ("room", f"{channels}.chats.{chat}", own.chats.get(chat)),
        ("person", f"{every}.users.{user_id}", defaults.users.get(user_id)),
        ("person", f"{channels}.users.{user_id}", own.users.get(user_id)),
    ]
    return [SessionLayer(source, key, one) for source, key, one in layers if one is not None]


def merge_layers(layers: Sequence[SessionLayer]) -> MergedSession:
    """Return one session that shares no object with its layers.

    >>> layers = [SessionLayer("default", "", SessionConfig(context={"a": 1, "b": 1}))]
    >>> merge_layers([*layers, SessionLayer("channel", "x", SessionConfig(context={"a": 2}))]).session.context
    {'a': 2, 'b': 1}
    """
    found: dict[str, Setting] = {}
    for layer in layers:
        one = layer.session
        given = {"assistant_id": one.assistant_id, "busy": one.busy}
        values = {name: value for name, value in given.items() if value}
        values |= {f"config.{name}": value for name, value in one.config.items()}
        values |= {f"context.{name}": value for name, value in one.context.items()}
        for name, value in copy.deepcopy(values).items():
            key = f"{layer.key}.{name}" if layer.key else ""
            found[name] = Setting(value=value, source=layer.source, key=key)
    merged: dict[str, Any] = {name: setting.value for name, setting in found.items()}
    session = SessionConfig(
        assistant_id=merged.get("assistant_id"),
        config=_part(merged, "config."),
        context=_part(merged, "context."),
        busy=merged.get("busy"),
    )
    return MergedSession(session, found)


def _part(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value
        for name, value in values.items()
        if name.startswith(prefix)
    }


def for_embedded_runtime(session: SessionConfig, graphs: Collection[str] = ()) -> SessionConfig:
    """Return the session for the embedded runtime, which takes a custom agent's name in the context.

    `graphs`: the graphs besides the agent; each is a separate assistant.

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
