"""Builds the adapters of all enabled instances. Imports only the SDKs of platforms in use, because some take seconds.

Each platform's `bots/<platform>/adapter.py` defines `build(name, config, commands)`, which returns the adapter of one
section.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bots.common.adapter import BaseAdapter
from bots.common.installation import (
    CredentialVault,
    InstallationEndpoint,
    SupportsInstallation,
)
from bots.common.webhooks import SupportsWebhook, WebhookEndpoint
from bots.config import BotsConfig, PlatformConfig
from bots.terminal.adapter import TerminalAdapter
from bus.platform import Adapter, CommandInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltAdapters:
    """The adapters of the enabled instances, by name.

    Attributes:
        terminal: The adapter behind `parley chat`, if enabled.
        faults: What to do about each enabled instance that cannot be built.
        webhooks: Endpoints of instances whose platforms send HTTP requests.
        installations: Endpoints of instances whose app can be installed in workspaces.
    """

    adapters: Mapping[str, Adapter]
    terminal: TerminalAdapter | None
    faults: Mapping[str, str]
    webhooks: Mapping[str, WebhookEndpoint]
    installations: Mapping[str, InstallationEndpoint]


def build_adapters(
    config: BotsConfig,
    commands: Sequence[CommandInfo],
    *,
    files: Path,
    vault: CredentialVault | None = None,
) -> BuiltAdapters:
    """Build the adapters of the enabled instances. One that cannot be built does not affect the others.

    Args:
        config: The sections.
        commands: The commands for platforms with command menus.
        files: The folder in which the terminal saves files.
        vault: Stores the tokens that adapters receive when their app is installed in a workspace; None = apps cannot be
            installed.
    """
    adapters: dict[str, Adapter] = {}
    faults: dict[str, str] = {}
    for name, section in config.platforms.items():
        if not section.enabled:
            continue
        built = missing_keys(name, section) or _build(name, section, commands)
        if isinstance(built, str):
            faults[name] = built
        else:
            adapters[name] = built
    terminal = TerminalAdapter(files=files) if config.terminal.enabled else None
    if terminal is not None:
        adapters[terminal.name] = terminal
    webhooks = {
        name: adapter.webhook
        for name, adapter in adapters.items()
        if isinstance(adapter, SupportsWebhook) and adapter.webhook is not None
    }
    return BuiltAdapters(
        adapters=adapters,
        terminal=terminal,
        faults=faults,
        webhooks=webhooks,
        installations=_installations(adapters, vault),
    )


def _build(name: str, section: PlatformConfig, commands: Sequence[CommandInfo]) -> Adapter | str:
    """Return the adapter of a section, or why it cannot be built."""
    try:
        adapter: Adapter = importlib.import_module(f"bots.{section.platform}.adapter").build(
            name, section, commands
        )
    except ImportError as error:
        return f"its SDK is not installed ({error.name}): run `make install`"
    return adapter


def find_settings_problem(name: str, section: PlatformConfig) -> str:
    """Return why an instance cannot work with its settings, as a line for the operator; "" = it can."""
    if fault := missing_keys(name, section):
        return f"{fault}: set the missing keys, or set channels.{name}.enabled to false"
    built = _build(name, section, ())
    if isinstance(built, str):
        return f"channels.{name}: {built}"
    return built.config_problem() if isinstance(built, BaseAdapter) else ""


def _installations(
    adapters: Mapping[str, Adapter], vault: CredentialVault | None
) -> Mapping[str, InstallationEndpoint]:
    return {
        name: endpoint
        for name, adapter in adapters.items()
        if vault is not None
        and isinstance(adapter, SupportsInstallation)
        and (endpoint := adapter.enable_installation(vault)) is not None
    }


def missing_keys(name: str, section: PlatformConfig) -> str | None:
    """Return a line for the operator with the missing required keys of a section; None if none is missing."""
    keys = section.missing_keys()
    if not keys:
        return None
    *others, last = (f"channels.{name}.{key}" for key in keys)
    paths = f"{', '.join(others)} and {last}" if others else last
    return f"{paths} {'are' if len(keys) > 1 else 'is'} not set"
