"""Builds a LangChain chat model from an entry of `models`."""

from typing import Any

from langchain_core.language_models import BaseChatModel
from pydantic import ValidationError

from agent.config import AgentConfig, ModelConfig
from agent.errors import ModelNotFound, ModelUnusable, ObjectNotImportable
from agent.importer import import_class, import_object
from agent.langgraph_internals import listening_model
from agent.models.counted import UsageCallback, counted_class
from agent.models.http_client import ModelHttpClient
from agent.models.thinking import deep_merge, thinking_settings
from agent.usage.prices import load_prices
from agent.usage.recorder import UsageRecorder


def create_chat_model(
    config: AgentConfig,
    name: str | None = None,
    *,
    thinking_enabled: bool = False,
    reasoning_effort: str | None = None,
    overrides: dict[str, Any] | None = None,
    http_client: ModelHttpClient | None = None,
    usage: UsageRecorder | None = None,
) -> BaseChatModel:
    """Build a configured model. Blocking: the first time it imports the provider's package.

    Args:
        config: The agent's configuration.
        name: An entry of `models`; None = the first.
        thinking_enabled: Whether the model should think.
        reasoning_effort: For models that support it; omitted otherwise.
        overrides: Class arguments that override the entry's.
        http_client: Shared HTTP client for classes that accept one; None = they create their own.
        usage: Counts the model's calls, and refuses calls that exceed a limit; None = no counting.

    Raises:
        ModelNotFound: No entry has this name.
        ModelUnusable: The entry cannot be used. The text says what to change, and quotes none of its values.
    """
    entry = _entry(config, name)
    settings = model_arguments(
        entry, thinking_enabled=thinking_enabled, reasoning_effort=reasoning_effort
    )
    settings.update(overrides or {})
    try:
        model_class = import_class(entry.use, BaseChatModel)  # type: ignore[type-abstract]
    except ObjectNotImportable as error:
        raise ModelUnusable(f"models: {entry.name}: {error}") from error
    _add_defaults(settings, model_class, http_client)
    if any(kind.__name__ == "BaseChatOpenAI" for kind in model_class.__mro__):
        compatible_class: Any = import_object("agent.models.openai_chat:compatible_class")
        model_class = compatible_class(model_class)
    if usage is None:
        return _construct(entry, model_class, settings)
    load_prices(entry)
    model = _construct(entry, counted_class(model_class), settings)
    return listening_model(model, UsageCallback(usage, entry))


def model_arguments(
    entry: ModelConfig, *, thinking_enabled: bool, reasoning_effort: str | None
) -> dict[str, Any]:
    """Return the arguments for the entry's class.

    Raises:
        ModelUnusable: Thinking is enabled but not supported.
    """
    if thinking_enabled and not entry.supports_thinking:
        raise ModelUnusable(
            f"models: {entry.name} does not support thinking; set supports_thinking if it does"
        )
    settings = {key: value for key, value in entry.extra_keys().items() if value is not None}
    settings = deep_merge(settings, thinking_settings(entry, enabled=thinking_enabled))
    if reasoning_effort is not None:
        settings["reasoning_effort"] = reasoning_effort
    if not entry.supports_reasoning_effort:
        settings.pop("reasoning_effort", None)
    return {"model": entry.model, **settings}


def _entry(config: AgentConfig, name: str | None) -> ModelConfig:
    if name is None:
        return config.chat_models[0]
    entry = config.model_named(name)
    if entry is None:
        raise ModelNotFound(f"Model {name} not found in config")
    return entry


def _add_defaults(
    settings: dict[str, Any], model_class: type[BaseChatModel], http_client: ModelHttpClient | None
) -> None:
    """Add defaults for arguments that the class accepts and the entry does not set."""
    fields = model_class.model_fields
    if "stream_usage" in fields and (settings.get("base_url") or settings.get("openai_api_base")):
        # By default ChatOpenAI requests usage numbers from OpenAI's servers only.
        settings.setdefault("stream_usage", True)
    if "use_responses_api" in fields and _is_compatible_server(settings):
        # By default ChatOpenAI uses OpenAI's newer API for some model names; few other servers have it.
        settings.setdefault("use_responses_api", False)
    if "stream_chunk_timeout" in fields:
        # It uses asyncio.wait_for. Before Python 3.12, that loses a cancellation that arrives with a chunk, so a
        # canceled run continues. The HTTP client's read timeout applies instead.
        settings.setdefault("stream_chunk_timeout", None)
    if http_client is not None and "http_async_client" in fields and "openai_proxy" not in settings:
        settings.setdefault("http_async_client", http_client.client())


def _is_compatible_server(settings: dict[str, Any]) -> bool:
    """Return whether the server is not OpenAI's and no option needs the newer API."""
    url = str(settings.get("base_url") or settings.get("openai_api_base") or "")
    asks_newer = settings.keys() & {"reasoning", "output_version", "include", "truncation"}
    return bool(url) and "api.openai.com" not in url and not asks_newer


def _construct(
    entry: ModelConfig, model_class: type[BaseChatModel], settings: dict[str, Any]
) -> BaseChatModel:
    try:
        return model_class(**settings)
    except ValidationError as error:
        # The error's text quotes values, including keys and tokens.
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'entry'}: {problem['msg']}"
            for problem in error.errors(include_input=False, include_context=False)
        )
        raise ModelUnusable(f"models: {entry.name}: {problems}") from None
    except Exception as error:  # noqa: BLE001 - every provider's class raises its own types
        raise ModelUnusable(
            f"models: {entry.name}: {entry.use} cannot be built: {_first_line(error)}"
        ) from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
