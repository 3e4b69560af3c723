"""Runs commands in this machine's own shell, unconfined."""

import re
import shutil
from collections.abc import Mapping

import anyio.to_thread

from agent.paths import USER_DATA, MountTable
from agent.sandbox.host_paths import check_host_paths
from agent.sandbox.process import ProcessSpec, run_process
from agent.sandbox.result import OutputTail
from agent.thread_storage import ThreadFolders

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of commands, unless `sandbox.environment` sets another."""

_SHELL = shutil.which("bash", path=PATH) or "/bin/sh"


async def run_on_host(
    folders: ThreadFolders,
    table: MountTable,
    environment: Mapping[str, str],
    command: str,
    timeout_s: float,
    output: OutputTail | None = None,
) -> str:
    """Run a command in the thread's workspace as the service's user; see `Sandbox.execute`.

    Virtual paths in the command become host paths, and host paths in the output become virtual paths.

    Args:
        folders: The thread's folders.
        table: The mounts that the agent sees.
        environment: Variables of the command; nothing is inherited from the service.
        command: Shell text.
        timeout_s: Time limit, seconds.
        output: Receives the output while the command runs.

    Raises:
        PathNotAllowed: The command names a path outside the mounts.
        SandboxError: There is no shell.
    """
    check_host_paths(command, table)
    home = {"PATH": PATH, "HOME": str(folders.workspace), "LANG": "C.UTF-8", "TERM": "dumb"}
    spec = ProcessSpec(
        argv=[_SHELL, "-c", "--", translate_paths(command, table)],
        environment={**home, **environment},
        cwd=folders.workspace,
    )

    def mask(text: str) -> str:
        return table.mask_host_paths(text).replace(str(folders.user_data), USER_DATA)

    if output is not None:
        output.mask = mask
    result = await run_process(spec, timeout_s=timeout_s, output=output)
    # Not on the event loop: outputs may be several megabytes.
    return await anyio.to_thread.run_sync(lambda: mask(result.text()))


def translate_paths(command: str, table: MountTable) -> str:
    """Replace virtual paths in a command with host paths, at path boundaries only."""
    hosts = {mount.virtual: str(mount.host) for mount in table.mounts}
    names = "|".join(re.escape(virtual) for virtual in hosts)  # longest first
    path = re.compile(rf"(?<![\w./-])(?:{names})(?![\w-]|\.\w)")
    return path.sub(lambda found: hosts[found.group()], command)
