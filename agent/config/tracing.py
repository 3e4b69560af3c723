"""TracingConfig, read from LangSmith's and Langfuse's environment variables. Pure.

The variables of LangSmith and Langfuse have the meaning that their documentation gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_PROJECT = "parley"
LANGSMITH_URL = "https://api.smith.langchain.com"
LANGFUSE_URL = "https://cloud.langfuse.com"

SWITCHES = ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2", "LANGCHAIN_TRACING")
"""Variables that switch LangSmith on or off. The first one that is set decides."""

_TRUE = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LangSmithConfig:
    """LangSmith's address and credentials."""

    api_key: str = field(repr=False)
    project: str = DEFAULT_PROJECT
    endpoint: str = LANGSMITH_URL


@dataclass(frozen=True, slots=True, kw_only=True)
class LangfuseConfig:
    """Langfuse's address and credentials."""

    public_key: str
    secret_key: str = field(repr=False)
    base_url: str = LANGFUSE_URL


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingConfig:
    """Tracing as configured by the environment. Off by default. `label` names the environment in tags."""

    langsmith: LangSmithConfig | None = None
    langfuse: LangfuseConfig | None = None
    label: str = ""


def load_tracing_config(environment: Mapping[str, str]) -> TracingConfig:
    """Read the switches and the credentials.

    Raises:
        ValueError: A tracer is switched on without its credentials. The message says what to do.

    >>> load_tracing_config({"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "true"}).langsmith is None
    True
    """
    return TracingConfig(
        langsmith=_langsmith(environment),
        langfuse=_langfuse(environment),
        label=environment.get("PARLEY_ENVIRONMENT", ""),
    )


def is_langsmith_enabled(environment: Mapping[str, str]) -> bool:
    """Return whether LangSmith is switched on.

    >>> is_langsmith_enabled({"LANGCHAIN_TRACING": "Yes"}), is_langsmith_enabled({})
    (True, False)
    """
    set_to = next((environment[name] for name in SWITCHES if environment.get(name)), "")
    return set_to.strip().lower() in _TRUE


def _langsmith(environment: Mapping[str, str]) -> LangSmithConfig | None:
    if not is_langsmith_enabled(environment):
        return None
    key = _first(environment, "LANGSMITH_API_KEY", "LANGCHAIN_API_KEY")
    if not key:
        raise ValueError(
            "LangSmith tracing is on, but LANGSMITH_API_KEY is not set: set it, or LANGSMITH_TRACING to false"
        )
    return LangSmithConfig(
        api_key=key,
        project=_first(environment, "LANGSMITH_PROJECT", "LANGCHAIN_PROJECT") or DEFAULT_PROJECT,
        endpoint=_url(environment, LANGSMITH_URL, "LANGSMITH_ENDPOINT", "LANGCHAIN_ENDPOINT"),
    )


def _langfuse(environment: Mapping[str, str]) -> LangfuseConfig | None:
    if environment.get("LANGFUSE_TRACING", "").strip().lower() not in _TRUE:
        return None
    for name in ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"):
        if not environment.get(name):
            raise ValueError(
                f"Langfuse tracing is on, but {name} is not set: set it, or LANGFUSE_TRACING to false"
            )
    return LangfuseConfig(
        public_key=environment["LANGFUSE_PUBLIC_KEY"],
        secret_key=environment["LANGFUSE_SECRET_KEY"],
        base_url=_url(environment, LANGFUSE_URL, "LANGFUSE_BASE_URL"),
    )


def _url(environment: Mapping[str, str], default: str, *names: str) -> str:
    url = _first(environment, *names) or default
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{names[0]} must start with http:// or https://")
    return url


def _first(environment: Mapping[str, str], *names: str) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")
