"""What a run is started with: user > channel > defaults, key by key. Pure."""

import copy
import re
from typing import Any

from bus.config import DEFAULT_SESSION, SessionConfig
from bus.errors import BusError

LEAD = "lead_agent"
"""The one assistant of the embedded runtime; other names choose a custom agent within it."""

_NAME = re.compile(r"[a-z0-9-]{1,64}")


class SessionInvalid(BusError):
    """The configured session cannot be used.

    Attributes:
        agent: The name of an agent that is none.
    """

    def __init__(self, agent: str) -> None:
        super().__init__(f"not a name of an agent: {agent!r}")
        self.agent = agent


def merged(defaults: SessionConfig, channel: SessionConfig, user_id: str) -> SessionConfig:
    """Return the session of one person on one channel. Nothing in it is shared with the configuration.

    >>> channel = SessionConfig(context={"a": 2}, users={"7": SessionConfig(context={"a": 3})})
    >>> merged(SessionConfig(context={"a": 1, "b": 1}), channel, "7").context["a"]
    3
    """
    own = (defaults.users.get(user_id), channel.users.get(user_id))
    layers = [DEFAULT_SESSION, defaults, channel, *(layer for layer in own if layer is not None)]
    config: dict[str, Any] = {}
    context: dict[str, Any] = {}
    for layer in layers:
        config.update(copy.deepcopy(layer.config))
        context.update(copy.deepcopy(layer.context))
    return SessionConfig(
        assistant_id=next((x.assistant_id for x in reversed(layers) if x.assistant_id), None),
        config=config,
        context=context,
        busy=next((x.busy for x in reversed(layers) if x.busy), None),
    )


def embedded(session: SessionConfig) -> SessionConfig:
    """Return the session as the embedded runtime wants it: a custom agent is a name in the context.

    Raises:
        SessionInvalid: the name is none.

    >>> embedded(SessionConfig(assistant_id="Code_Review")).context
    {'agent_name': 'code-review'}
    """
    wanted = session.assistant_id or LEAD
    if wanted == LEAD:
        return session.model_copy(update={"assistant_id": LEAD})
    name = wanted.strip().lower().replace("_", "-")
    if not _NAME.fullmatch(name):
        raise SessionInvalid(wanted[:64])
    return session.model_copy(
        update={"assistant_id": LEAD, "context": {**session.context, "agent_name": name}}
    )
