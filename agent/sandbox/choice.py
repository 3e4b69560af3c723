"""From the `sandbox` section to the thing that makes sandboxes."""

import logging
from collections.abc import Callable
from typing import cast

from agent.config import SandboxConfig
from agent.errors import SandboxUnusable, Unresolvable
from agent.folders import Folders
from agent.reflect import resolve
from agent.sandbox.bubblewrap import BubblewrapSandboxes, probe
from agent.sandbox.docker_cli import program_fault
from agent.sandbox.jail import JailLimits, Rules
from agent.sandbox.local import LocalSandboxes
from agent.sandbox.protocol import Sandboxes
from agent.sandbox.space import Space
from agent.sandbox.tables import Shared, nothing_shared, usable_mounts

logger = logging.getLogger(__name__)

BUILT_IN = ("auto", "bubblewrap", "local")
"""Values of `sandbox.use` that name no class."""

NAMED = {"docker": "agent.sandbox.docker:DockerSandboxes"}
"""Short names of classes, which are imported only when they are wanted."""


def build_sandboxes(
    config: SandboxConfig, folders: Folders, shared: Shared = nothing_shared
) -> Sandboxes:
    """Build what `sandbox.use` names. `auto` is bubblewrap where a trial succeeds, else `local`.

    A `module:Class` is called with `config`, `folders` and `shared`. Blocking: it looks at the mounts and runs a trial.

    Raises:
        Unresolvable: `use` names no class, or one that cannot be called like this.
        SandboxUnusable: It names bubblewrap, which does not work here.
    """
    if config.use not in BUILT_IN:
        return _built(NAMED.get(config.use, config.use), config, folders, shared)
    fault = None if config.use == "local" else probe(config.bubblewrap_path)
    if config.use == "bubblewrap" and fault:
        raise SandboxUnusable(f"sandbox.use: bubblewrap does not work here: {fault}")
    if config.use == "local" or fault:
        if fault:
            logger.info("commands cannot be confined here: %s", fault)
        return LocalSandboxes(
            folders,
            mounts=usable_mounts(config.mounts),
            shared=shared,
            host_bash=config.allow_host_bash,
            environment=config.environment,
            fault=fault,
        )
    return BubblewrapSandboxes(
        folders, mounts=usable_mounts(config.mounts), shared=shared, rules=_rules(config)
    )


def sandbox_fault(config: SandboxConfig) -> str | None:
    """Return why the configured sandbox cannot be used here, or None. Blocking: it may run a trial."""
    if NAMED.get(config.use, config.use) == NAMED["docker"]:
        return program_fault(config.docker.command)
    fault = probe(config.bubblewrap_path) if config.use == "bubblewrap" else None
    return f"sandbox.use: bubblewrap does not work here: {fault}" if fault else None


def _rules(config: SandboxConfig) -> Rules:
    return Rules(
        limits=JailLimits(
            memory_mb=config.memory_mb,
            cpu_s=config.cpu_seconds,
            processes=config.max_processes,
            file_mb=config.max_file_mb,
        ),
        space=Space(quota_mb=config.disk_quota_mb, free_mb=config.min_free_disk_mb),
        environment=config.environment,
        program=config.bubblewrap_path,
    )


def _built(use: str, config: SandboxConfig, folders: Folders, shared: Shared) -> Sandboxes:
    found = resolve(use)
    if not callable(found):
        raise Unresolvable(f"sandbox.use: {use} is not a class")
    try:
        make = cast("Callable[..., Sandboxes]", found)
        return make(config=config, folders=folders, shared=shared)
    except TypeError as error:
        raise Unresolvable(f"sandbox.use: {use} cannot be built: {error}") from error
