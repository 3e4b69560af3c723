"""What a run is started with: user > channel > defaults, key by key, and over them what people chose."""

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bus.access.policy import is_admin
from bus.config import DEFAULT_SESSION, BusConfig, Busy, ChannelPolicy, SessionConfig
from bus.errors import BusError
from bus.messages import InboundMessage
from bus.settings.memory_scope import global_user_id, memory_scope
from bus.settings.resolver import SettingsResolver, run_context

LEAD_AGENT = "lead_agent"
"""The one assistant of the embedded runtime; other names choose a custom agent within it."""

_NAME = re.compile(r"[a-z0-9-]{1,64}")


class InvalidSession(BusError):
    """The configured session cannot be used.

    Attributes:
        agent: The name of an agent that is none.
    """

    def __init__(self, agent: str) -> None:
        super().__init__(f"not a name of an agent: {agent!r}")
        self.agent = agent


class SessionResolver:
    """The sessions of the people on every channel: the configuration's, and over it what they chose."""

    def __init__(
        self,
        config: BusConfig,
        policies: Mapping[str, ChannelPolicy],
        choices: SettingsResolver,
    ) -> None:
        self._config = config
        self._policies = policies
        self._choices = choices

    def resolve(self, inbound: InboundMessage) -> SessionConfig:
        """Return the session for a message. Raises InvalidSession."""
        session = self._merged(inbound)
        if self._config.langgraph_url is None:
            session = for_embedded_runtime(session)
        context = {
            **session.context,
            **run_context(self._choices.resolve(inbound.key)),
            "channel_user_id": inbound.sender.user_id,
            "user_id": global_user_id(inbound),
            "memory_scope": memory_scope(inbound),
            "language": inbound.reply_target.language,
        }
        return session.model_copy(update={"context": context})

    def busy_mode(self, inbound: InboundMessage) -> Busy | None:
        """Return what a message does while a turn runs before it."""
        return _busy(self._layers(inbound))

    def is_admin(self, inbound: InboundMessage) -> bool:
        """Return whether the sender may decide for others."""
        policy = self._policies.get(inbound.key.channel)
        return policy is not None and is_admin(inbound.sender, policy)

    def _merged(self, inbound: InboundMessage) -> SessionConfig:
        return _united(self._layers(inbound))

    def _layers(self, inbound: InboundMessage) -> list[SessionConfig]:
        policy = self._policies.get(inbound.key.channel)
        own = policy.session if policy is not None else SessionConfig()
        user, chat = inbound.sender.user_id, inbound.key.chat
        return _layers(self._config.session, own, user_id=user, chat=chat)


def merge_sessions(
    defaults: SessionConfig, channel: SessionConfig, *, user_id: str, chat: str = ""
) -> SessionConfig:
    """Return the session of one person in one chat. Nothing in it is shared with the configuration.

    >>> channel = SessionConfig(context={"a": 2}, users={"7": SessionConfig(context={"a": 3})})
    >>> merge_sessions(SessionConfig(context={"a": 1, "b": 1}), channel, user_id="7").context["a"]
    3
    """
    return _united(_layers(defaults, channel, user_id=user_id, chat=chat))


def _layers(
    defaults: SessionConfig, channel: SessionConfig, *, user_id: str, chat: str
) -> list[SessionConfig]:
    """Return what a session is made of; the last counts most."""
    theirs = (defaults.chats.get(chat), channel.chats.get(chat))
    own = (defaults.users.get(user_id), channel.users.get(user_id))
    further = [layer for layer in (*theirs, *own) if layer is not None]
    return [DEFAULT_SESSION, defaults, channel, *further]


def _busy(layers: Sequence[SessionConfig]) -> Busy | None:
    return next((layer.busy for layer in reversed(layers) if layer.busy), None)


def _united(layers: Sequence[SessionConfig]) -> SessionConfig:
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


def for_embedded_runtime(session: SessionConfig) -> SessionConfig:
    """Return the session as the embedded runtime wants it: a custom agent is a name in the context.

    Raises:
        InvalidSession: the name is none.

    >>> for_embedded_runtime(SessionConfig(assistant_id="Code_Review")).context
    {'agent_name': 'code-review'}
    """
    wanted = session.assistant_id or LEAD_AGENT
    if wanted == LEAD_AGENT:
        return session.model_copy(update={"assistant_id": LEAD_AGENT})
    name = wanted.strip().lower().replace("_", "-")
    if not _NAME.fullmatch(name):
        raise InvalidSession(wanted[:64])
    return session.model_copy(
        update={"assistant_id": LEAD_AGENT, "context": {**session.context, "agent_name": name}}
    )
