"""Runs commands in this machine's own shell, unconfined."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from agent.paths import USER_DATA, MountTable
from agent.sandbox.host_paths import check_host_paths
from agent.sandbox.process import ProcessSpec, run_process
from agent.thread_storage import ThreadFolders

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of commands, unless `sandbox.environment` sets another."""

_SHELL = shutil.which("bash", path=PATH) or "/bin/sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShell:
    """Runs commands in one thread's workspace, as the service's own user.

    Attributes:
        folders: The thread's folders.
        table: The mounts that the agent sees.
        environment: Variables of the commands; nothing is inherited from the service.
    """

    folders: ThreadFolders
    table: MountTable
    environment: Mapping[str, str]

    async def run(self, command: str, timeout_s: float) -> str:
        """Run a command; virtual paths in it become host paths, and host paths in its output virtual ones.

        Raises:
            PathNotAllowed: It names a path outside the mounts.
            SandboxError: There is no shell.
        """
        check_host_paths(command, self.table)
        spec = ProcessSpec(
            argv=[_SHELL, "-c", "--", translate_paths(command, self.table)],
            environment={
                "PATH": PATH,
                "HOME": str(self.folders.workspace),
                "LANG": "C.UTF-8",
                "TERM": "dumb",
                **self.environment,
            },
            cwd=self.folders.workspace,
        )
        text = (await run_process(spec, timeout_s=timeout_s)).text()
        return self.table.mask_host_paths(text).replace(str(self.folders.user_data), USER_DATA)


def translate_paths(command: str, table: MountTable) -> str:
    """Replace virtual paths in a command with host paths, at path boundaries only."""
    hosts = {mount.virtual: str(mount.host) for mount in table.mounts}
    names = "|".join(re.escape(virtual) for virtual in hosts)  # longest first
    path = re.compile(rf"(?<![\w./-])(?:{names})(?![\w-]|\.\w)")
    return path.sub(lambda found: hosts[found.group()], command)
