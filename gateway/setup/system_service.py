"""Files that let the operating system run the service: a systemd unit or a launchd property list. Pure."""

import plistlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.command_errors import EXIT_BAD_CONFIG

UNIT_NAME = "parley.service"
LAUNCHD_LABEL = "chat.parley"

STOP_S = 20
"""How long the service may take to stop, seconds: `channels.drain_s` and a few seconds to close."""

OPEN_FILES = 65_536
"""Maximum number of open connections and files of the service."""

_UNIT = """\
[Unit]
Description=Parley
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
WorkingDirectory={folder}
ExecStart={program}
{settings}Restart=always
RestartSec=2
# Do not restart with an invalid configuration.
RestartPreventExitStatus={bad_config}
TimeoutStopSec={stop_s}
# The service ends its own children.
KillMode=mixed
LimitNOFILE={open_files}
UMask=0077

[Install]
WantedBy={target}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemService:
    """The command that the service manager runs.

    Attributes:
        program: The command line; its first word is an absolute path.
        folder: The working directory.
        environment: Variables that the service needs.
        user: The user of a machine-wide service; "" = a service of the installing user, from their login on.
    """

    program: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    user: str = ""

    def systemd_unit(self) -> str:
        """Return the unit file."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        settings = [f"Environment={_quoted(variable)}\n" for variable in variables]
        if self.user:
            settings.insert(0, f"User={self.user}\n")
        return _UNIT.format(
            folder=_escaped(str(self.folder)),
            program=" ".join(map(_quoted, self.program)),
            settings="".join(settings),
            bad_config=EXIT_BAD_CONFIG,
            stop_s=STOP_S,
            open_files=OPEN_FILES,
            target="multi-user.target" if self.user else "default.target",
        )

    def launchd_plist(self, log: Path) -> str:
        """Return the property list. launchd keeps no log, so the output goes to a file."""
        entries = {
            "Label": LAUNCHD_LABEL,
            "ProgramArguments": list(self.program),
            "WorkingDirectory": str(self.folder),
            "EnvironmentVariables": dict(self.environment),
            "RunAtLoad": True,
            "KeepAlive": True,
            "ExitTimeOut": STOP_S,
            "SoftResourceLimits": {"NumberOfFiles": OPEN_FILES},
            "Umask": 0o077,
            "StandardErrorPath": str(log),
            "StandardOutPath": str(log),
        }
        return plistlib.dumps(entries, sort_keys=False).decode()


def _escaped(text: str) -> str:
    """Return a text escaped for systemd, where `%` starts a specifier.

    >>> _escaped("/srv/100%")
    '/srv/100%%'
    """
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    r"""Return a command-line word quoted for systemd.

    >>> _quoted("/opt/my bot/$x")
    '"/opt/my bot/$$x"'
    """
    if shlex.quote(word) == word:
        return _escaped(word)
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{_escaped(escaped)}"'
