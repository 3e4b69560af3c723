"""RunOptions and RunContext: a run's options and its user, read from its config and context. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig

from agent.errors import ThreadIdMissing
from agent.locales import language_key

STEERING_SOURCE_KEY = "__take_injected"
"""Key in `config.configurable` of the function that returns the run's steering messages.

Clients cannot set it, and it is never shown or saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a run that determine its graph. Hashable, because they are part of the graph cache key.

    Attributes:
        model_name: An entry of `models`; None = the first.
        thinking_enabled: Whether the model thinks, if it supports it.
        reasoning_effort: Passed to models that support it.
        is_plan_mode: Whether the agent keeps a to-do list.
        is_bootstrap: Whether this run sets up the agent with its user.
        agent_name: A custom agent; None = the lead agent.
        subagent_enabled: Whether the agent can delegate.
        max_concurrent_subagents: Maximum number of concurrent delegations; None = as configured.
        allowed_agents: The custom agents that the person may choose; None = all.
        user_id: The person; see `RunContext`.
        language: The language of the system prompt: a key of `agent.locales.PROMPTS`.
        is_chat: Whether the run answers a message of a chat.
        agent_draft: The fields of an unsaved custom agent that a user tries out. It replaces `agent_name`.
    """

    model_name: str | None = None
    thinking_enabled: bool = True
    reasoning_effort: str | None = None
    is_plan_mode: bool = False
    is_bootstrap: bool = False
    agent_name: str | None = None
    subagent_enabled: bool = False
    max_concurrent_subagents: int | None = None
    allowed_agents: tuple[str, ...] | None = None
    user_id: str | None = None
    language: str = "en"
    is_chat: bool = False
    agent_draft: Mapping[str, Any] | None = field(default=None, hash=False)

    @classmethod
    def from_config(cls, config: RunnableConfig) -> "RunOptions":
        """Read the options from `config.configurable`, overridden by `config.context`.

        Ignores values of a wrong type, which chat sessions and API clients may send.

        >>> RunOptions.from_config({"configurable": {"model_name": "gpt", "is_plan_mode": True}}).model_name
        'gpt'
        >>> RunOptions.from_config({"configurable": {"thinking_enabled": "no"}}).thinking_enabled
        True
        """
        given = _merged_options(config)
        return cls(
            model_name=_parse_text(given.get("model_name")),
            thinking_enabled=_parse_flag(given.get("thinking_enabled"), default=True),
            reasoning_effort=_parse_text(given.get("reasoning_effort")),
            is_plan_mode=_parse_flag(given.get("is_plan_mode"), default=False),
            is_bootstrap=_parse_flag(given.get("is_bootstrap"), default=False),
            agent_name=_parse_text(given.get("agent_name")),
            subagent_enabled=_parse_flag(given.get("subagent_enabled"), default=False),
            max_concurrent_subagents=_parse_count(given.get("max_concurrent_subagents")),
            allowed_agents=_parse_names(given.get("allowed_agents")),
            user_id=_parse_text(given.get("user_id")),
            language=language_key(_parse_text(given.get("language"))),
            is_chat=isinstance(given.get("chat"), Mapping),
            agent_draft=_parse_mapping(given.get("agent_draft")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The user and thread that a run works for. None = unknown.

    Attributes:
        thread_id: The thread.
        run_id: The run.
        user_id: The user: `{channel}:{workspace}:{platform user id}` from chats.
        memory_scope: The person or room whose memory the run uses.
        agent_name: The requested custom agent.
    """

    thread_id: str
    run_id: str | None = None
    user_id: str | None = None
    memory_scope: str | None = None
    agent_name: str | None = None

    @classmethod
    def from_runtime(cls, context: object, config: Mapping[str, Any] | None) -> "RunContext":
        """Read the values from the runtime context, or else from `config.configurable`.

        Args:
            context: `runtime.context`: a mapping, an object with these attributes, or None.
            config: The runnable config, or None.

        Raises:
            ThreadIdMissing: Neither has a thread id.

        >>> RunContext.from_runtime({"thread_id": "t1", "user_id": "slack:T:U"}, None).user_id
        'slack:T:U'
        """
        return cls(
            thread_id=thread_id_for_run(context, config),
            run_id=_lookup(context, config, "run_id"),
            user_id=_lookup(context, config, "user_id"),
            memory_scope=_lookup(context, config, "memory_scope"),
            agent_name=_lookup(context, config, "agent_name"),
        )


def take_steering_messages(config: Mapping[str, Any] | None) -> list[AnyMessage]:
    """Return the steering messages that arrived since the last call.

    Args:
        config: The runnable config (`langgraph.config.get_config()`), or None.

    >>> take_steering_messages({"configurable": {}}), take_steering_messages(None)
    ([], [])
    """
    take = ((config or {}).get("configurable") or {}).get(STEERING_SOURCE_KEY)
    return list(take()) if callable(take) else []


def language_for_run(context: object, config: Mapping[str, Any] | None) -> str | None:
    """Return the language of a run's users (BCP 47), or None. Looks in the same places as `thread_id_for_run`.

    >>> language_for_run({"language": "zh"}, None)
    'zh'
    """
    return _lookup(context, config, "language")


def thread_id_for_run(context: object, config: Mapping[str, Any] | None) -> str:
    """Return the run's thread id from the runtime context, or else from `config.configurable`.

    Always use this function: the context is None if a caller sets only `config.configurable`.

    Args:
        context: `runtime.context`: a mapping, an object with `thread_id`, or None.
        config: The runnable config, or None.

    Raises:
        ThreadIdMissing: Neither has a thread id.

    >>> thread_id_for_run(None, {"configurable": {"thread_id": "t1"}})
    't1'
    """
    found = _lookup(context, config, "thread_id")
    if found is None:
        raise ThreadIdMissing
    return found


def lookup(context: object, config: Mapping[str, Any] | None, key: str) -> object:
    """Return a value from the runtime context, or else from `config.configurable`; None if neither has it.

    >>> lookup(None, {"configurable": {"chat": {"type": "group"}}}, "chat")
    {'type': 'group'}
    """
    configurable = (config or {}).get("configurable") or {}
    for source in (context, configurable):
        named = source if isinstance(source, Mapping) else {}
        value = named.get(key) or getattr(source, key, None)
        if value:
            return value
    return None


def _lookup(context: object, config: Mapping[str, Any] | None, key: str) -> str | None:
    value = lookup(context, config, key)
    return str(value) if value else None


def _merged_options(config: RunnableConfig) -> dict[str, Any]:
    given: dict[str, Any] = dict(config.get("configurable") or {})
    context = config.get("context")
    if isinstance(context, Mapping):
        given.update({key: value for key, value in context.items() if value is not None})
    return given


def _parse_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _parse_flag(value: object, *, default: bool) -> bool:
    return value if isinstance(value, bool) else default


def _parse_mapping(value: object) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) else None


def _parse_count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _parse_names(value: object) -> tuple[str, ...] | None:
    """Return a list of names. A value of another type allows nothing, because the list is a restriction."""
    if value is None:
        return None
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()
