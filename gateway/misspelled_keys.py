"""Finds misspelled keys that only other code knows: arguments of model classes, `RunnableConfig`, MCP servers."""

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from agent.config import ModelConfig
from agent.errors import ObjectNotImportable
from agent.extensions import INTERCEPTORS, SERVERS, SKILLS, ExtensionsFile
from agent.importer import import_class
from agent.mcp.server_config import McpOAuthConfig, McpServerConfig
from bus.config import SessionConfig
from gateway.config import Config
from gateway.config_file import join_path
from gateway.config_validation import (
    closest_match,
    is_likely_typo,
    unknown_key_line,
)

_RUN_KEYS = list(RunnableConfig.__annotations__)
_SERVER_KEYS = [*McpServerConfig.model_fields, "transport"]


def find_unknown_model_keys(config: Config, *, imports: bool) -> Iterator[str]:
    """Yield a line for each key of `models` that the model's class does not know. Blocking.

    Likely misspellings of Parley's own keys are omitted: the configuration reports them itself.

    Args:
        config: The configuration.
        imports: Whether to import the packages of all models, instead of the default model's only.
    """
    if "models" in config.dropped:
        return
    for index, model in enumerate(config.agent.models):
        if not (imports or index == 0 or model.use.partition(":")[0] in sys.modules):
            continue
        for where, key in unknown_arguments(model):
            if where or not is_likely_typo(key, ModelConfig.model_fields):
                path = f"models[{index}]"
                line = _argument_line(key, join_path(path, where) if where else path, model)
                yield f"{config.source}: {line}"


def unknown_arguments(model: ModelConfig) -> list[tuple[str, str]]:
    """Return the keys that are passed to a model's class but that it does not know: (section of the entry, key)."""
    arguments = _arguments(model)
    given: dict[str, Mapping[str, Any]] = {
        "": model.extra_keys(),
        "when_thinking_enabled": model.when_thinking_enabled,
        "when_thinking_disabled": model.when_thinking_disabled or {},
    }
    return [
        (where, key)
        for where, keys in given.items()
        for key in keys
        if arguments and key not in arguments
    ]


def _arguments(model: ModelConfig) -> set[str]:
    """Return the arguments of a model's class; empty if they are unknown."""
    try:
        model_class = import_class(model.use, BaseChatModel)  # type: ignore[type-abstract]
    except ObjectNotImportable:
        return set()  # reported with the other classes
    if model_class.model_config.get("extra") == "allow":
        return set()
    aliases = {field.alias for field in model_class.model_fields.values() if field.alias}
    return {*model_class.model_fields, *aliases}


def _argument_line(key: str, path: str, model: ModelConfig) -> str:
    arguments = _arguments(model)
    name = model.use.partition(":")[2]
    known = sorted({*arguments, *ModelConfig.model_fields})
    line = unknown_key_line(key, path, known, what=f"unknown key, not an argument of {name}")
    if closest_match(key, known) is None and "model_kwargs" in arguments:
        line += "; if the provider's API knows it, put it below `model_kwargs` or `extra_body`"
    return line


def find_unknown_run_keys(path: str, session: SessionConfig) -> Iterator[str]:
    """Yield a line for each key of a session's `config` that LangGraph does not know."""
    for key in session.config:
        if key not in _RUN_KEYS:
            yield unknown_key_line(key, f"{path}.config", _RUN_KEYS)


def find_unknown_extensions(file: ExtensionsFile) -> Iterator[str]:
    """Yield a line for each key of the extensions file that looks misspelled. Other programs share the file. Blocking.

    Call it after `file.read()`, which reports a file that is not JSON.
    """
    try:
        document = json.loads(file.path.read_bytes())
    except (OSError, ValueError):
        return
    if not isinstance(document, dict):
        return
    yield from _likely_typos(
        document, "", [SERVERS, "mcp_servers", SKILLS, INTERCEPTORS, "mcp_interceptors"]
    )
    servers = document.get(SERVERS) or document.get("mcp_servers")
    for name, entry in servers.items() if isinstance(servers, dict) else ():
        path = f"{SERVERS}.{name}"
        yield from _likely_typos(entry, path, _SERVER_KEYS)
        if isinstance(entry, dict):
            yield from _likely_typos(
                entry.get("oauth"), f"{path}.oauth", list(McpOAuthConfig.model_fields)
            )


def _likely_typos(data: object, path: str, known: list[str]) -> Iterator[str]:
    for key in data if isinstance(data, dict) else ():
        if key not in known and is_likely_typo(key, known):
            yield unknown_key_line(key, path, known)
