"""Builds the guardrail provider of the `guardrails` section."""

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

from agent.config import GuardrailsConfig
from agent.errors import GuardrailUnusable, ObjectNotImportable
from agent.guardrails.protocol import GuardrailProvider, ReportsProblem
from agent.importer import import_object

SHORT_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "allowlist": "agent.guardrails.allowlist:AllowlistProvider",
        "oap": "agent.guardrails.oap_passport:OapPassportProvider",
    }
)

FRAMEWORK = "deerflow"
"""The framework name passed to providers that support several frameworks."""


def build_guardrail_provider(config: GuardrailsConfig) -> GuardrailProvider | None:
    """Build the provider; None = no guardrail. Blocking: imports modules and reads files.

    A class with parameters `framework` or `passport` receives them unless its configuration sets them.

    Raises:
        GuardrailUnusable: The class does not exist or cannot be built. The message is one line and quotes no values.
    """
    entry = config.provider
    if not config.enabled or entry is None:
        return None
    use = SHORT_NAMES.get(entry.use, entry.use)
    try:
        factory = import_object(use)
    except ObjectNotImportable as error:
        raise GuardrailUnusable(f"guardrails.provider.use: {error}") from error
    if not callable(factory):
        raise GuardrailUnusable(f"guardrails.provider.use: {use} is not a class")
    given = _with_defaults(dict(entry.config), factory, config.passport)
    try:
        provider = factory(**given)
    except GuardrailUnusable:
        raise
    except Exception as error:
        # Messages of built-in providers contain only keys. Messages of other providers may quote a secret.
        detail = f": {error}" if use in SHORT_NAMES.values() else ""
        raise GuardrailUnusable(
            f"guardrails.provider.config: {use} cannot be built with it ({type(error).__name__}{detail})"
        ) from error
    return _require_protocol(use, provider)


def find_guardrail_problem(config: GuardrailsConfig) -> str | None:
    """Return why the provider cannot be built or denies every call; None = no problem. Blocking."""
    try:
        provider: object = build_guardrail_provider(config)
    except GuardrailUnusable as error:
        return error.user_message
    return provider.find_problem() if isinstance(provider, ReportsProblem) else None


def _with_defaults(
    given: dict[str, Any], factory: Callable[..., object], passport: str | None
) -> dict[str, Any]:
    offered = {"framework": FRAMEWORK, "passport": passport}
    try:
        taken = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return given
    for key, value in offered.items():
        if key in taken and value is not None:
            given.setdefault(key, value)
    return given


def _require_protocol(use: str, provider: object) -> GuardrailProvider:
    """Check that the object implements the protocol."""
    missing = [m for m in ("evaluate", "aevaluate") if not callable(getattr(provider, m, None))]
    if not isinstance(getattr(provider, "name", None), str):
        missing.append("name")
    if missing:
        raise GuardrailUnusable(f"guardrails.provider.use: {use} has no {' and no '.join(missing)}")
    return cast("GuardrailProvider", provider)
