"""Which processes a server that is written over the API may start. Pure.

A request over HTTP that can start any program is a hole. The file itself, which only people on this machine write,
may name what it likes.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from agent.errors import McpSettingsInvalid

REFUSED_VARIABLES: Final = frozenset(
    {
        "BASH_ENV", "CLASSPATH", "ENV", "GCONV_PATH", "GIT_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND", "HOME",
        "IFS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "NODE_OPTIONS", "NODE_PATH", "PATH", "PERL5LIB", "PERL5OPT",
        "PYTHONBREAKPOINT", "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "RUBYLIB", "RUBYOPT", "SHELL",
        "SSH_ASKPASS", "_JAVA_OPTIONS",
    }
)  # fmt: skip
"""Variables by which a program loads or starts others."""

REFUSED_PREFIXES: Final = ("LD_", "DYLD_", "NPM_CONFIG_", "UV_", "PIP_", "BASH_FUNC_")
"""Such variables of the loader, and of the package programs (another index, another shell)."""

REFUSED_OPTIONS: Final = frozenset(
    {
        "-c", "-e", "-i", "--call", "--config", "--config-file", "--config-setting", "--default-index", "--env-file",
        "--eval", "--exec", "--extra-index-url", "--find-links", "--globalconfig", "--import", "--index",
        "--index-url", "--init-module", "--loader", "--node-arg", "--node-options", "--prefix", "--print",
        "--python", "-r", "--registry", "--require", "--script-shell", "--shell", "--userconfig", "--with-editable",
    }
)  # fmt: skip
"""Options by which a package program runs a text, or takes packages from elsewhere."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_launch(
    where: str,
    command: str,
    args: Iterable[str],
    env: Mapping[str, str],
    allowed: Collection[str],
) -> None:
    """Refuse a process that may not be started by the API's doing.

    Args:
        where: The server, for the text.
        command: Must be one of `allowed`, letter by letter: no path, no variable.
        args: Its arguments; options are refused wherever they stand.
        env: Its variables.
        allowed: `mcp.allowed_commands`.

    Raises:
        McpSettingsInvalid: One line that says what to do.
    """
    if command not in allowed:
        names = ", ".join(allowed) or "none"
        raise McpSettingsInvalid(
            f"{where}.command: only these may be set over the API: {names}; "
            "for another, add it to mcp.allowed_commands or write the server into the extensions file"
        )
    for arg in args:
        if _CONTROL.search(arg) or _is_refused(arg):
            shown = _CONTROL.sub("?", arg.partition("=")[0])[:40]
            raise McpSettingsInvalid(
                f"{where}.args: '{shown}' may not be set over the API: write it into the extensions file"
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
                f"{where}.env.{name[:40]}: may not be set over the API: write it into the extensions file"
            )
        if "\0" in name or "\0" in value:
            raise McpSettingsInvalid(f"{where}.env: names and values hold no NUL")


def _is_refused(arg: str) -> bool:
    option = arg.partition("=")[0].lower()
    # `-cTEXT` and `-c TEXT` are the same to most programs.
    return option in REFUSED_OPTIONS or option.startswith(("-c", "-e"))
