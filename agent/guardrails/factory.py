"""From the `guardrails` section to the provider that decides."""

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from agent.config import GuardrailsConfig
from agent.errors import GuardrailUnusable, ObjectNotImportable
from agent.guardrails.protocol import GuardrailProvider
from agent.importer import import_object

SHORT_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "allowlist": "agent.guardrails.allowlist:AllowlistProvider",
        "oap": "agent.guardrails.oap_passport:OapPassportProvider",
    }
)

FRAMEWORK: Final = "deerflow"
"""What providers made for several frameworks call the one whose contract this is."""


def build_guardrail_provider(config: GuardrailsConfig) -> GuardrailProvider | None:
    """Return who decides; None = nobody is asked. Blocking: it imports and reads files.

    A class that takes `framework` or `passport` is given them where the configuration of the provider has none.

    Raises:
        GuardrailUnusable: The section names no such class, or it cannot be built; one line, no value quoted.
    """
    entry = config.provider
    if not config.enabled or entry is None:
        return None
    use = SHORT_NAMES.get(entry.use, entry.use)
    try:
        made_by = import_object(use)
    except ObjectNotImportable as error:
        raise GuardrailUnusable(f"guardrails.provider.use: {error}") from error
    if not callable(made_by):
        raise GuardrailUnusable(f"guardrails.provider.use: {use} is not a class")
    given = _completed(dict(entry.config), made_by, config.passport)
    try:
        provider = made_by(**given)
    except GuardrailUnusable:
        raise
    except (TypeError, ValueError, OSError) as error:
        # A text of our own providers names keys only; one of another's may quote a secret.
        said = f": {error}" if use in SHORT_NAMES.values() else ""
        raise GuardrailUnusable(
            f"guardrails.provider.config: {use} cannot be built with it ({type(error).__name__}{said})"
        ) from error
    return _checked(use, provider)


def _completed(
    given: dict[str, Any], made_by: Callable[..., object], passport: str | None
) -> dict[str, Any]:
    offered = {"framework": FRAMEWORK, "passport": passport}
    try:
        taken = inspect.signature(made_by).parameters
    except (TypeError, ValueError):
        return given
    for key, value in offered.items():
        if key in taken and value is not None:
            given.setdefault(key, value)
    return given


def _checked(use: str, provider: object) -> GuardrailProvider:
    """Return the provider when it has the shape of one."""
    lacking = [m for m in ("evaluate", "aevaluate") if not callable(getattr(provider, m, None))]
    if not isinstance(getattr(provider, "name", None), str):
        lacking.append("name")
    if lacking:
        raise GuardrailUnusable(f"guardrails.provider.use: {use} has no {' and no '.join(lacking)}")
    return cast("GuardrailProvider", provider)
