"""Builds the sandbox provider that the `sandbox` section configures."""

import logging
from collections.abc import Callable
from typing import cast

from agent.config import SandboxConfig
from agent.errors import AgentError, ObjectNotImportable, SandboxUnusable
from agent.importer import import_object
from agent.sandbox.aio_api import find_provisioner_problem
from agent.sandbox.bubblewrap import BubblewrapSandboxProvider, probe_bubblewrap
from agent.sandbox.bubblewrap_args import BubblewrapOptions, ProcessLimits
from agent.sandbox.disk import disk_limits
from agent.sandbox.docker_cli import docker_problem
from agent.sandbox.local import LocalSandboxProvider
from agent.sandbox.mounts import SharedMounts, configured_mounts, no_shared_mounts
from agent.sandbox.protocol import SandboxProvider
from agent.thread_storage import ThreadStorage

log = logging.getLogger(__name__)

BUILT_IN = ("auto", "bubblewrap", "local")
"""Values of `sandbox.use` that are not class names."""

PROVIDER_CLASSES = {
    "docker": "agent.sandbox.docker:DockerSandboxProvider",
    "provisioner": "agent.sandbox.provisioner:ProvisionerSandboxProvider",
}
"""Short names of classes, which are imported only if configured."""


def build_sandbox_provider(
    config: SandboxConfig, folders: ThreadStorage, shared: SharedMounts = no_shared_mounts
) -> SandboxProvider:
    """Build the provider that `sandbox.use` names. `auto` is bubblewrap if it works here, otherwise `local`.

    A `module:Class` is called with `config`, `folders` and `shared`. Blocking: checks mounts and may run a test
    command.

    Raises:
        ObjectNotImportable: `use` is not a class, or cannot be called with these arguments.
        SandboxUnusable: `use` is bubblewrap, which does not work here.
    """
    if config.use not in BUILT_IN:
        use = PROVIDER_CLASSES.get(config.use, config.use)
        return _build_class(use, config, folders, shared)
    fault = None if config.use == "local" else probe_bubblewrap(config.bubblewrap_path)
    if config.use == "bubblewrap" and fault:
        raise SandboxUnusable(f"sandbox.use: bubblewrap does not work here: {fault}")
    mounts = configured_mounts(config.mounts)
    disk = disk_limits(config)
    if config.use == "local" or fault:
        if fault:
            log.info("commands cannot be confined here: %s", fault)
        return LocalSandboxProvider(
            folders,
            mounts=mounts,
            shared=shared,
            disk=disk,
            host_bash=config.allow_host_bash,
            environment=config.environment,
            fault=fault,
        )
    options = BubblewrapOptions(
        limits=ProcessLimits(
            memory_mb=config.memory_mb,
            cpu_s=config.cpu_seconds,
            processes=config.max_processes,
            file_mb=config.max_file_mb,
        ),
        disk=disk,
        environment=config.environment,
        program=config.bubblewrap_path,
    )
    return BubblewrapSandboxProvider(folders, mounts=mounts, shared=shared, options=options)


def sandbox_problem(config: SandboxConfig) -> str | None:
    """Return why the configured sandbox cannot be used here, or None. Blocking: may run a test command or request."""
    if config.use == "provisioner":
        return find_provisioner_problem(config.provisioner.url, config.provisioner.api_key)
    if PROVIDER_CLASSES.get(config.use, config.use) == PROVIDER_CLASSES["docker"]:
        return docker_problem(config.docker.command)
    fault = probe_bubblewrap(config.bubblewrap_path) if config.use == "bubblewrap" else None
    return f"sandbox.use: bubblewrap does not work here: {fault}" if fault else None


def _build_class(
    use: str, config: SandboxConfig, folders: ThreadStorage, shared: SharedMounts
) -> SandboxProvider:
    found = import_object(use)
    if not callable(found):
        raise ObjectNotImportable(f"sandbox.use: {use} is not a class")
    try:
        make = cast("Callable[..., SandboxProvider]", found)
        return make(config=config, folders=folders, shared=shared)
    except AgentError:
        raise
    except Exception as error:
        text = f"sandbox.use: {use} cannot be built: {type(error).__name__}: {error}"
        raise ObjectNotImportable(text) from error
