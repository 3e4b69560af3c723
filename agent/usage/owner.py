"""UsageOwner: the person, room and agent that a model call counts for."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from langgraph.config import get_config

from agent.options import lookup

LEAD_AGENT = "lead_agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageOwner:
    """The person, room and agent that model calls count for; "" = unknown.

    Attributes:
        run_id: The run.
        kind: `run` or `subagent`; `schedule` or `hook` if one of these started the run in the person's name.
        agent: The agent.
        person: `{channel}:{workspace}:{platform user id}`.
        room: `{channel}:{workspace}:{chat}`.
        topic: The topic in the room.
    """

    run_id: str = ""
    kind: str = "run"
    agent: str = LEAD_AGENT
    person: str = ""
    room: str = ""
    topic: str = ""

    @classmethod
    def from_config(
        cls, context: object, config: Mapping[str, Any] | None, *, kind: str = "run"
    ) -> "UsageOwner":
        """Read it from a run's context, or else from `config.configurable`.

        >>> UsageOwner.from_config({"user_id": "slack:T:U"}, None).person
        'slack:T:U'
        >>> UsageOwner.from_config({"origin": "schedule:7"}, None).kind
        'schedule'
        """

        def read(key: str) -> str:
            return str(lookup(context, config, key) or "")

        return cls(
            run_id=read("run_id"),
            kind=read("origin").partition(":")[0] or kind,
            agent=read("agent_name") or LEAD_AGENT,
            person=read("user_id"),
            room=read("room"),
            topic=read("topic"),
        )

    @classmethod
    def from_memory_scope(cls, scope: str, agent: str = "") -> "UsageOwner":
        """Return the owner of calls for a memory document.

        >>> UsageOwner.from_memory_scope("room:slack:T:C1").room, UsageOwner.from_memory_scope("default").person
        ('slack:T:C1', '')
        """
        kind, _, name = scope.partition(":")
        return cls(
            agent=agent or LEAD_AGENT,
            person=name if kind == "person" else "",
            room=name if kind == "room" else "",
        )


CURRENT_OWNER: ContextVar[UsageOwner | None] = ContextVar("usage_owner", default=None)
"""The owner of the current task's model calls; None outside runs, for example in a scan of a skill."""


def current_owner() -> UsageOwner:
    """Return the owner of the current task. If it has none, read the owner from the config of its graph."""
    if (owner := CURRENT_OWNER.get()) is not None:
        return owner
    try:
        return UsageOwner.from_config(None, get_config())
    except RuntimeError:
        return UsageOwner()
