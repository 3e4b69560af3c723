"""`parley service install | uninstall`: lets systemd or launchd run Parley."""

import argparse
import os
import pwd
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.command_errors import CommandFailed
from gateway.config import Config, environment_variables, load_config
from gateway.config_file import read_dotenv, read_yaml
from gateway.config_variables import resolve_variables
from gateway.setup.system_service import LAUNCHD_LABEL, UNIT_NAME, SystemService

SYSTEM_UNITS = Path("/etc/systemd/system")
MACOS = "darwin"


def run(arguments: argparse.Namespace) -> int:
    """Install or remove the service."""
    if arguments.action == "uninstall":
        return _uninstall(arguments)
    config = load_config(arguments.config)
    text = _file_content(config, arguments)
    if arguments.print:
        sys.stdout.write(text)
        return 0
    file = _service_file(is_system=arguments.system)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    except OSError as error:
        raise CommandFailed(f"{file} cannot be written: {error.strerror}") from error
    sys.stdout.write(f"Wrote {file}.\n")
    if names := _variables_of_shell(config):
        sys.stdout.write(
            f"Warning: {config.source} needs {', '.join(names)}. A service does not get the variables of this shell:"
            f" add the missing ones to {config.folder / '.env'}, then install it again.\n"
        )
    _run_manager(_start_commands(file, is_system=arguments.system))
    return 0


def _uninstall(arguments: argparse.Namespace) -> int:
    file = _service_file(is_system=arguments.system)
    if not file.exists():
        raise CommandFailed(f"{file} does not exist: Parley is not installed as a service")
    # The manager needs the file to stop the service.
    _run_manager(_stop_commands(file, is_system=arguments.system), then=[["rm", str(file)]])
    file.unlink()
    sys.stdout.write(f"Removed {file}. The data folder was not changed.\n")
    return 0


def _file_content(config: Config, arguments: argparse.Namespace) -> str:
    folder = config.source.parent if config.source else Path.cwd()
    program = [sys.executable, "-P", "-m", "gateway", "serve", "--no-chat"]
    if config.source:
        program += ["--config", str(config.source)]
    environment = {"PARLEY_HOME": str(config.home), "PYTHONUNBUFFERED": "1"}
    if path := config.environment.get("PATH"):
        environment["PATH"] = path  # finds the programs of tools and MCP servers
    service = SystemService(
        program=tuple(program),
        folder=folder,
        environment=environment,
        user=_owner(config) if arguments.system else "",
    )
    if sys.platform == MACOS:
        return service.launchd_plist(config.log_file)
    return service.systemd_unit()


def _variables_of_shell(config: Config) -> list[str]:
    """Return the variables that the configuration refers to and `.env` does not contain."""
    if config.source is None:
        return []
    tree = read_yaml(config.source).tree
    dotenv = read_dotenv(config.source.parent / ".env")
    return sorted({name for _, name in resolve_variables(tree, dotenv.variables).missing})


def _owner(config: Config) -> str:
    """Return the user who owns the data folder, or who runs this command with sudo."""
    if config.home.exists():
        return config.home.owner()
    return config.environment.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name


def _service_file(*, is_system: bool) -> Path:
    if sys.platform == MACOS:
        if is_system:
            raise CommandFailed("--system is for systemd; on macOS the service belongs to a user")
        return Path.home() / "Library" / "LaunchAgents" / f"{LAUNCHD_LABEL}.plist"
    if is_system:
        return SYSTEM_UNITS / UNIT_NAME
    folder = environment_variables(Path())[0].get("XDG_CONFIG_HOME")
    return Path(folder or Path.home() / ".config") / "systemd" / "user" / UNIT_NAME


def _start_commands(file: Path, *, is_system: bool) -> list[list[str]]:
    if sys.platform == MACOS:
        return [["launchctl", "bootstrap", f"gui/{os.getuid()}", str(file)]]
    systemctl = _systemctl(is_system=is_system)
    commands = [[*systemctl, "daemon-reload"], [*systemctl, "enable", "--now", UNIT_NAME]]
    if not is_system:
        # Otherwise the service would end when its user logs out.
        commands.append(["loginctl", "enable-linger"])
    return commands


def _stop_commands(file: Path, *, is_system: bool) -> list[list[str]]:
    if sys.platform == MACOS:
        return [["launchctl", "bootout", f"gui/{os.getuid()}", str(file)]]
    return [[*_systemctl(is_system=is_system), "disable", "--now", UNIT_NAME]]


def _systemctl(*, is_system: bool) -> list[str]:
    return ["systemctl"] if is_system else ["systemctl", "--user"]


def _run_manager(commands: list[list[str]], then: Sequence[list[str]] = ()) -> None:
    """Run commands of the service manager. If one fails, show the remaining steps, including `then`.

    Raises:
        CommandFailed: A command failed.
    """
    sys.stdout.flush()
    for number, command in enumerate(commands):
        program = shutil.which(command[0])
        done = program and subprocess.run([program, *command[1:]], check=False)  # noqa: S603 - a fixed list
        if not done or done.returncode:
            fault = f"`{shlex.join(command)}` failed" if done else f"{command[0]} is not installed"
            rest = "\n".join(f"  {shlex.join(line)}" for line in (*commands[number:], *then))
            sys.stdout.write(f"Not done yet; run it yourself:\n{rest}\n")
            sys.stdout.flush()
            raise CommandFailed(fault)
