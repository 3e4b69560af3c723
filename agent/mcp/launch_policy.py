"""Restricts the commands that MCP servers configured through the API may run. Pure.

An HTTP request must not be able to start an arbitrary program. The extensions file has no such restrictions, because
only people with access to this machine can edit it.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from agent.errors import McpSettingsInvalid

REFUSED_VARIABLES = frozenset(
    {
        "BASH_ENV", "CLASSPATH", "ENV", "GCONV_PATH", "GIT_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND", "HOME",
        "IFS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "NODE_OPTIONS", "NODE_PATH", "PATH", "PERL5LIB", "PERL5OPT",
        "PYTHONBREAKPOINT", "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "RUBYLIB", "RUBYOPT", "SHELL",
        "SSH_ASKPASS", "_JAVA_OPTIONS",
    }
)  # fmt: skip
"""Variables that make a program load or run other code."""

REFUSED_PREFIXES = ("LD_", "DYLD_", "NPM_CONFIG_", "UV_", "PIP_", "BASH_FUNC_")
"""Prefixes of such variables, for the dynamic loader and for package managers (another index, another shell)."""

REFUSED_OPTIONS = frozenset(
    {
        "-c", "-e", "-i", "--call", "--config", "--config-file", "--config-setting", "--default-index", "--env-file",
        "--eval", "--exec", "--extra-index-url", "--find-links", "--globalconfig", "--import", "--index",
        "--index-url", "--init-module", "--loader", "--node-arg", "--node-options", "--prefix", "--print",
        "--python", "-r", "--registry", "--require", "--script-shell", "--shell", "--userconfig", "--with-editable",
    }
)  # fmt: skip
"""Options that make a package manager run code, or install packages from another source."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_launch(
    where: str,
    command: str,
    args: Iterable[str],
    env: Mapping[str, str],
    allowed: Collection[str],
) -> None:
    """Reject a process that may not be configured through the API.

    Args:
        where: The server, for the error message.
        command: Must be exactly one of `allowed`: no path, no variable.
        args: Its arguments. Forbidden options are rejected in any position.
        env: Its variables.
        allowed: `mcp.allowed_commands`.

    Raises:
        McpSettingsInvalid: The message says what to do, in one line.
    """
    if command not in allowed:
        names = ", ".join(allowed) or "none"
        raise McpSettingsInvalid(
            f"{where}.command: only these can be set through the API: {names}. "
            "To use another command, add it to mcp.allowed_commands or edit the extensions file"
        )
    for arg in args:
        if _CONTROL.search(arg) or _is_refused(arg):
            shown = _CONTROL.sub("?", arg.partition("=")[0])[:40]
            raise McpSettingsInvalid(
                f"{where}.args: '{shown}' cannot be set through the API: edit the extensions file"
            )
    for name, value in env.items():
        upper = name.upper()
        if (
            upper in REFUSED_VARIABLES
            or upper.startswith(REFUSED_PREFIXES)
            or not name
            or "=" in name
        ):
            raise McpSettingsInvalid(
                f"{where}.env.{name[:40]}: cannot be set through the API: edit the extensions file"
            )
        if "\0" in name or "\0" in value:
            raise McpSettingsInvalid(f"{where}.env: names and values must not contain NUL")


def _is_refused(arg: str) -> bool:
    option = arg.partition("=")[0].lower()
    # Most programs treat `-cTEXT` like `-c TEXT`.
    return option in REFUSED_OPTIONS or option.startswith(("-c", "-e"))
