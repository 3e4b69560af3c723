"""Checks of a configuration's references and credentials: assistants, models, agents, context keys, tokens, keys."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from agent.config import AgentConfig
from agent.custom_agents import CustomAgentStore
from agent.errors import AgentError
from agent.extensions import ExtensionsFile
from agent.importer import is_importable
from agent.models.factory import create_chat_model
from agent.options import RunOptions
from agent.tool_names import BUILT_IN_TOOLS, matches
from agent.tools.registry import configured_tools
from agent.unmatched_names import find_unmatched_names
from agent.usage.prices import has_price
from bots.config import FeishuConfig, PlatformConfig, SlackConfig, TelegramConfig
from bus.config import DEFAULT_SESSION, SessionConfig
from gateway.checks.models import MODEL_ADDRESSES, find_address_problem
from gateway.config import Config
from gateway.config_validation import closest_match
from gateway.graphs import GraphUnusable, find_graphs
from gateway.misspelled_keys import find_unknown_run_keys, unknown_arguments
from gateway.runtime.assistants import is_uuid

CONTEXT_KEYS = [field.name for field in fields(RunOptions)]
_TYPO_CUTOFF = 0.8

API_KEY_VARIABLES = {
    "langchain_openai:ChatOpenAI": ("OPENAI_API_KEY", ("api_key", "openai_api_key")),
    "langchain_anthropic:ChatAnthropic": ("ANTHROPIC_API_KEY", ("api_key", "anthropic_api_key")),
}
"""Model classes that need a key: the key's environment variable, and the entry's keys that can hold it."""

_NO_AGENT_YET = ": create it, for example in a chat with /bootstrap"

PLATFORM_ADDRESSES = ("base_url", "base_file_url", "domain")

_KINDS = {
    "xoxb-": "a bot token",
    "xoxp-": "a user token",
    "xapp-": "an app-level token",
    "cli_": "a Feishu App ID",
}
"""Prefixes of credentials."""

_TELEGRAM_TOKEN = re.compile(r"[0-9]+:\S+|\$.*")  # a token or an unset variable

_USER_IDS = {
    SlackConfig: ("[UW][A-Z0-9]+", "U012AB3CD"),
    TelegramConfig: ("-?[0-9]+", "123456789"),
    FeishuConfig: ("ou_.+", "ou_7d8a6e6df7621556ce0d21922b676706"),
}
"""The format of people's IDs on each platform, with an example."""


def find_reference_problems(config: Config) -> Iterator[str]:
    """Yield one line for each broken reference and each credential of the wrong kind."""
    for path, session in _sessions(config):
        yield from _find_session_problems(config, path, session)
    yield from _find_choice_problems(config)
    yield from _find_platform_problems(config)
    skills = Path(config.agent.skills.path)
    if skills.is_absolute() and not skills.is_dir():
        yield f"skills.path: there is no folder {skills}"
    if "models" not in config.dropped:
        yield from _find_model_problems(config.agent, config.environment)
    yield from _find_missing_channels(config)
    yield from _find_hook_problems(config)
    yield from _find_group_problems(config)
    yield from (line for line, is_certain in compare_tool_names(config) if is_certain)


def _find_group_problems(config: Config) -> Iterator[str]:
    """Yield unknown tool groups."""
    groups = {group.name for group in config.agent.tool_groups}
    for index, tool in enumerate(config.agent.tools):
        if groups and not matches(tool.group, groups) and "tool_groups" not in config.dropped:
            yield f"tools[{index}].group: there is no tool group {tool.group!r}{_guess(tool.group, groups)}"


def compare_tool_names(config: Config) -> Iterator[tuple[str, bool]]:
    """Yield a line for each name in lists of tools that matches no tool, and whether this is certain.

    It is uncertain if an MCP server may have such a tool, because servers are not started. Imports configured tools.
    """
    if not config.dropped.isdisjoint({"tools", "guardrails", "subagents"}):
        return
    tools = set[str]()
    for entry in config.agent.tools:
        try:
            tools.update(tool.name for tool in configured_tools([entry]))
        except AgentError:
            tools.add(entry.name)  # reported with the other tools
    servers = ExtensionsFile(*config.extensions).read().mcp_servers
    for one in find_unmatched_names(config.agent, tools, servers):
        guess = "" if one.servers else _guess(one.name, {*BUILT_IN_TOOLS, *tools})
        yield f"{one}{guess}", not one.servers


def _find_platform_problems(config: Config) -> Iterator[str]:
    for name, section in config.bots.platforms.items():
        if section.enabled:
            yield from _find_credential_problems(f"channels.{name}", section)
            yield from _find_access_problems(f"channels.{name}", section)
            for key in PLATFORM_ADDRESSES:
                address = getattr(section, key, None)
                yield from find_address_problem(f"channels.{name}.{key}", address)


def _find_missing_channels(config: Config) -> Iterator[str]:
    enabled = {name for name, section in config.bots.sections.items() if section.enabled}
    for name in config.gateway.required_channels:
        is_dropped = any(f"{key}.".startswith(f"channels.{name}.") for key in config.dropped)
        if name not in enabled and not is_dropped:
            yield f"gateway.required_channels: there is no enabled channel {name!r}{_guess(name, enabled)}"


def _find_hook_problems(config: Config) -> Iterator[str]:
    """Yield hooks whose channel does not run. A terminal is open only sometimes."""
    enabled = {name for name, section in config.bots.platforms.items() if section.enabled}
    for name, hook in config.hooks.items():
        is_dropped = any(
            f"{key}.".startswith(f"channels.{hook.channel}.") for key in config.dropped
        )
        if hook.channel not in enabled and not is_dropped:
            yield (
                f"hooks.{name}.channel: there is no enabled channel {hook.channel!r}"
                f"{_guess(hook.channel, enabled)}"
            )


def _sessions(config: Config) -> Iterator[tuple[str, SessionConfig]]:
    """Yield the sessions of enabled channels, including nested ones, with their paths."""
    open_sessions = [("channels.session", config.bus.session)]
    open_sessions += [
        (f"channels.{name}.session", section.session)
        for name, section in config.bots.sections.items()
        if section.enabled
    ]
    while open_sessions:
        path, session = open_sessions.pop(0)
        yield path, session
        open_sessions += [(f"{path}.chats.{key}", one) for key, one in session.chats.items()]
        open_sessions += [(f"{path}.users.{key}", one) for key, one in session.users.items()]


def _graph_names(config: Config) -> Collection[str]:
    try:
        return find_graphs(config.graphs, config.folder)
    except GraphUnusable:
        return config.graphs  # the check of the graphs reports it


def _find_session_problems(config: Config, path: str, session: SessionConfig) -> Iterator[str]:
    is_remote = (
        config.bus.langgraph_url is not None
    )  # the other server has its own assistants and models
    agents = CustomAgentStore(config.files).stored_names()
    assistant = session.assistant_id
    if assistant and not is_remote and not is_uuid(assistant):
        known = {str(DEFAULT_SESSION.assistant_id), *agents, *_graph_names(config)}
        if assistant not in known and _stored_name(assistant) not in agents:
            yield (
                f"{path}.assistant_id: there is no assistant {assistant!r}{_guess(assistant, known)}"
            )
    yield from find_unknown_run_keys(path, session)
    context = {**(session.config.get("configurable") or {}), **session.context}
    for key in context:
        guess = closest_match(key, CONTEXT_KEYS, cutoff=_TYPO_CUTOFF)
        if key not in CONTEXT_KEYS and guess:
            yield f"{path}.context.{key}: unknown key; did you mean `{guess}`?"
    model, agent = context.get("model_name"), context.get("agent_name")
    is_known = "models" in config.dropped or is_remote
    if isinstance(model, str) and not is_known and config.agent.model_named(model) is None:
        models = {entry.name for entry in config.agent.chat_models}
        yield f"{path}.context.model_name: there is no model {model!r}{_guess(model, models)}"
    if isinstance(agent, str) and not is_remote and _stored_name(agent) not in agents:
        yield f"{path}.context.agent_name: there is no agent {agent!r}{_guess(agent, agents) or _NO_AGENT_YET}"


def _find_choice_problems(config: Config) -> Iterator[str]:
    """Yield missing models and agents that people may choose on a channel."""
    if config.bus.langgraph_url is not None:
        return
    models = {entry.name for entry in config.agent.chat_models}
    agents = {*CustomAgentStore(config.files).stored_names(), *_graph_names(config)}
    for name, section in config.bots.sections.items():
        for model in section.models or () if "models" not in config.dropped else ():
            if model not in models:
                yield f"channels.{name}.models: there is no model {model!r}{_guess(model, models)}"
        for agent in section.agents or ():
            if agent not in agents:
                yield f"channels.{name}.agents: there is no agent {agent!r}{_guess(agent, agents)}"


def _find_credential_problems(path: str, section: PlatformConfig) -> Iterator[str]:
    match section:
        case SlackConfig():
            expected = {"bot_token": "xoxb-", "app_token": "xapp-"}
        case FeishuConfig():
            expected = {"app_id": "cli_", "app_secret": ""}
        case TelegramConfig():
            expected = {"bot_token": ""}
        case _:
            expected = {}
    for key, prefix in expected.items():
        value = str(getattr(section, key) or "")
        kind = next((one for one in _KINDS if value.startswith(one)), None)
        if kind is not None and kind != prefix:
            wanted = f", not {_KINDS[prefix]} ({prefix}...)" if prefix else ""
            yield f"{path}.{key}: is {_KINDS[kind]} ({kind}...){wanted}"
        elif isinstance(section, TelegramConfig) and value and not _TELEGRAM_TOKEN.fullmatch(value):
            yield f"{path}.{key}: is not a bot token from @BotFather (123456789:...)"


def _find_access_problems(path: str, section: PlatformConfig) -> Iterator[str]:
    """Yield entries that are not user IDs. Platforms send IDs, not names."""
    for kind, (form, example) in _USER_IDS.items():
        if isinstance(section, kind):
            lists = {"allowed_users": section.allowed_users, "admin_users": section.admin_users}
            for key, people in lists.items():
                for one in people:
                    if re.fullmatch(form, one) is None:
                        yield f"{path}.{key}: {one!r} is not a user ID such as {example}"


def _find_model_problems(config: AgentConfig, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield models without a key, or a price that limits need, or with settings that their class rejects.

    Opens no connections.
    """
    for index, model in enumerate(config.models):
        variable, keys = API_KEY_VARIABLES.get(model.use, ("", ()))
        given = model.model_extra or {}
        for key in MODEL_ADDRESSES & given.keys():
            yield from find_address_problem(f"models[{index}].{key}", given[key])
        if config.usage.limits.has_costs and not has_price(model):
            yield (
                f"models[{index}].price: the model {model.name} has no known price, "
                "so the limits of costs (usage.limits) would not hold for it: set it"
            )
        if variable and not environment.get(variable) and not any(given.get(key) for key in keys):
            yield f"models[{index}].api_key: the model {model.name} has no key: set it, or {variable}"
        elif is_importable(model.use) and not unknown_arguments(model):
            try:
                create_chat_model(config, model.name)
            except AgentError as error:
                yield error.user_message


def _guess(name: str, known: set[str]) -> str:
    guess = closest_match(name, sorted(known))
    return f"; did you mean {guess!r}?" if guess else ""


def _stored_name(name: str) -> str:
    """Return an agent's name in its stored form. SDKs write `_` for `-`."""
    return name.lower().replace("_", "-")
