"""The arguments that turn a model's thinking on or off. Pure."""

from collections.abc import Mapping
from typing import Any

from agent.config import ModelConfig


def deep_merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `above` into a copy of `below`, recursively.

    >>> deep_merge({"a": {"x": 1}, "b": 1}, {"a": {"y": 2}})
    {'a': {'x': 1, 'y': 2}, 'b': 1}
    """
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = deep_merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def thinking_settings(entry: ModelConfig, *, enabled: bool) -> dict[str, Any]:
    """Return the arguments that turn a model's thinking on or off.

    Without `when_thinking_disabled`, "off" is derived from the enabled form by the providers' conventions.
    """
    on = deep_merge(
        entry.when_thinking_enabled, {"thinking": entry.thinking} if entry.thinking else {}
    )
    if enabled:
        return on
    if entry.when_thinking_disabled is not None:
        return dict(entry.when_thinking_disabled)
    return _derive_disabled(on)


def _derive_disabled(on: Mapping[str, Any]) -> dict[str, Any]:
    body = _as_mapping(on.get("extra_body"))
    if "thinking" in body:
        # Gateways to several models accept both; "minimal" is omitted if effort is not supported.
        return {"extra_body": {"thinking": {"type": "disabled"}}, "reasoning_effort": "minimal"}
    template = _as_mapping(body.get("chat_template_kwargs"))
    switches = [key for key in ("thinking", "enable_thinking") if key in template]
    if switches:
        return {"extra_body": {"chat_template_kwargs": dict.fromkeys(switches, False)}}
    if "enable_thinking" in body:
        return {"extra_body": {"enable_thinking": False}}
    return {"thinking": {"type": "disabled"}} if "thinking" in on else {}


def _as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
