"""The platforms by name. An SDK is imported only when its platform is configured: some cost seconds and megabytes."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bots.common.webhooks import SupportsWebhook, WebhookEndpoint
from bots.config import BotsConfig
from bots.terminal.adapter import TerminalAdapter
from bus.config import ChannelPolicy
from bus.platform import Adapter, CommandInfo

PLATFORMS: Mapping[str, str] = {
    "slack": "bots.slack.adapter",
    "telegram": "bots.telegram.adapter",
    "feishu": "bots.feishu.adapter",
}
"""Name of the section in `channels` -> module with `build(name, config, commands) -> Adapter`."""

REQUIRED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "slack": {"socket": ("bot_token", "app_token"), "http": ("bot_token", "signing_secret")},
    "telegram": {
        "polling": ("bot_token",),
        "webhook": ("bot_token", "webhook_url", "webhook_secret"),
    },
    "feishu": {
        "websocket": ("app_id", "app_secret"),
        "webhook": ("app_id", "app_secret", "encrypt_key", "verification_token"),
    },
}
"""Keys without which a platform cannot be connected to, by its mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltAdapters:
    """The adapters of the enabled platforms.

    Attributes:
        terminal: The one of `adapters` behind `parley chat`, if enabled.
        faults: Platforms that are enabled and cannot be connected to: name -> what to do.
        webhooks: Platforms that deliver by HTTP, and the door of each.
    """

    adapters: Mapping[str, Adapter]
    terminal: TerminalAdapter | None
    faults: Mapping[str, str]
    webhooks: Mapping[str, WebhookEndpoint]


def build_adapters(
    config: BotsConfig, commands: Sequence[CommandInfo], *, files: Path
) -> BuiltAdapters:
    """Make the adapters of the enabled platforms; one that cannot be made harms no other.

    Args:
        config: The platforms' sections.
        commands: What platforms that can register commands are told.
        files: Where the terminal keeps files handed over.
    """
    adapters: dict[str, Adapter] = {}
    faults: dict[str, str] = {}
    for name, module in PLATFORMS.items():
        section: ChannelPolicy = getattr(config, name)
        if not section.enabled:
            continue
        fault = missing_keys(name, section)
        if fault:
            faults[name] = fault
            continue
        try:
            adapters[name] = importlib.import_module(module).build(name, section, commands)
        except ImportError as error:
            faults[name] = f"its SDK is not installed ({error.name}): run `make install`"
    terminal = TerminalAdapter(files=files) if config.terminal.enabled else None
    if terminal is not None:
        adapters[terminal.name] = terminal
    webhooks = {
        name: adapter.webhook
        for name, adapter in adapters.items()
        if isinstance(adapter, SupportsWebhook) and adapter.webhook is not None
    }
    return BuiltAdapters(adapters=adapters, terminal=terminal, faults=faults, webhooks=webhooks)


def missing_keys(name: str, section: ChannelPolicy) -> str | None:
    """Return which keys of an enabled platform are not set, as a line that says what to do, or None."""
    required = REQUIRED.get(name, {}).get(getattr(section, "mode", ""), ())
    keys = [key for key in required if not getattr(section, key)]
    if not keys:
        return None
    *others, last = (f"channels.{name}.{key}" for key in keys)
    paths = f"{', '.join(others)} and {last}" if others else last
    return f"{paths} {'are' if len(keys) > 1 else 'is'} not set"
