"""From the `sandbox` section to the thing that makes sandboxes."""

from collections.abc import Callable
from typing import cast

from agent.config import SandboxConfig
from agent.errors import Unresolvable
from agent.folders import Folders
from agent.reflect import resolve
from agent.sandbox.local import LocalSandboxes
from agent.sandbox.protocol import Sandboxes
from agent.sandbox.tables import Shared, nothing_shared, usable_mounts


def build_sandboxes(
    config: SandboxConfig, folders: Folders, shared: Shared = nothing_shared
) -> Sandboxes:
    """Build what `sandbox.use` names: `auto` and `local` are the fenced folders of this machine.

    A `module:Class` is called with `config`, `folders` and `shared`. Blocking: it looks at the mounts.

    Raises:
        Unresolvable: `use` names no class, or one that cannot be called like this.
    """
    if config.use in ("auto", "local"):
        return LocalSandboxes(
            folders,
            mounts=usable_mounts(config.mounts),
            shared=shared,
            host_bash=config.allow_host_bash,
            environment=config.environment,
        )
    found = resolve(config.use)
    if not callable(found):
        raise Unresolvable(f"sandbox.use: {config.use} is not a class")
    try:
        make = cast("Callable[..., Sandboxes]", found)
        return make(config=config, folders=folders, shared=shared)
    except TypeError as error:
        raise Unresolvable(f"sandbox.use: {config.use} cannot be built: {error}") from error
