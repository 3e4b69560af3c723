"""Parley as a service of the operating system: the files, and the commands of the service manager."""

import os
import plistlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.setup.system_service import SystemService

ROOT = Path(__file__).parents[2]
VERIFY = shutil.which("systemd-analyze")
FAKE_MANAGER = '#!/bin/sh\necho "$(basename "$0") $*" >> "$MANAGER_LOG"\nexit ${MANAGER_EXIT:-0}\n'


def service(folder: Path, user: str = "") -> SystemService:
    return SystemService(
        program=("/bin/echo", "-P", "a b", "100%", "$HOME", 'say "x\\y"'),
        folder=folder,
        environment={"PARLEY_HOME": f"{folder}/da ta", "PATH": "/usr/bin:/bin"},
        user=user,
    )


@pytest.mark.skipif(VERIFY is None, reason="systemd-analyze is not installed (package systemd)")
@pytest.mark.parametrize("user", ["", "root"])
def test_systemd_accepts_the_unit(tmp_path: Path, user: str) -> None:
    assert VERIFY is not None
    folder = tmp_path / "my 100% bot"
    folder.mkdir()
    unit = tmp_path / "parley.service"
    unit.write_text(service(folder, user).systemd_unit())
    done = subprocess.run(
        [VERIFY, "verify", str(unit)], check=False, capture_output=True, text=True
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (
        0,
        [],
    )


def test_arguments_in_the_unit_are_quoted_and_a_wrong_configuration_is_not_retried() -> None:
    unit = service(Path("/srv/100%")).systemd_unit()
    assert 'ExecStart=/bin/echo -P "a b" 100%% "$$HOME" "say \\"x\\\\y\\""\n' in unit
    assert "WorkingDirectory=/srv/100%%\n" in unit
    assert 'Environment="PARLEY_HOME=/srv/100%%/da ta"\n' in unit
    assert "RestartPreventExitStatus=2\n" in unit
    assert "User=" not in unit
    assert "User=bot\n" in service(Path("/srv"), "bot").systemd_unit()


def test_launchd_reads_the_property_list() -> None:
    entries = plistlib.loads(service(Path("/srv")).launchd_plist(Path("/srv/log")).encode())
    assert entries["ProgramArguments"] == list(service(Path("/srv")).program)
    assert (entries["KeepAlive"], entries["StandardErrorPath"]) == (True, "/srv/log")


def run(
    folder: Path, *arguments: str, exits: int = 0, variables: Mapping[str, str] | None = None
) -> tuple[int, str, list[str]]:
    """Run `parley service ...` with service managers that only record their calls."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("systemctl", "loginctl", "launchctl"):
        (tools / name).write_text(FAKE_MANAGER)
        (tools / name).chmod(0o755)
    log = folder / "manager.log"
    log.write_text("")
    environment: Mapping[str, str] = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PARLEY_HOME": str(folder / "data"),
        "PYTHONPATH": str(ROOT),
        "MANAGER_LOG": str(log),
        "MANAGER_EXIT": str(exits),
        **(variables or {}),
    }
    program = [sys.executable, "-P", "-m", "gateway", "service", *arguments]
    done = subprocess.run(
        program, cwd=folder, env=environment, check=False, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr, log.read_text().splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="systemd runs on Linux")
def test_install_starts_the_service_and_uninstall_removes_it(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("log_level: info\n")
    unit = tmp_path / ".config/systemd/user/parley.service"
    code, out, asked = run(tmp_path, "install")
    assert (code, f"Wrote {unit}" in out) == (0, True), out
    assert asked == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now parley.service",
        "loginctl enable-linger",
    ]
    assert f"--config {tmp_path}/config.yaml" in unit.read_text()
    assert f"Environment=PARLEY_HOME={tmp_path}/data" in unit.read_text()
    code, out, asked = run(tmp_path, "uninstall")
    assert (code, asked) == (0, ["systemctl --user disable --now parley.service"]), out
    assert not unit.exists()
    code, out, _ = run(tmp_path, "uninstall")
    assert (code, "not installed" in out) == (1, True)


@pytest.mark.skipif(sys.platform != "linux", reason="systemd runs on Linux")
def test_errors_of_the_service_manager_are_shown(tmp_path: Path) -> None:
    unit = tmp_path / ".config/systemd/user/parley.service"
    code, out, asked = run(tmp_path, "install", exits=1)
    assert (code, asked) == (1, ["systemctl --user daemon-reload"])
    assert "parley: `systemctl --user daemon-reload` failed\n" in out
    assert ":\n  systemctl --user daemon-reload\n  systemctl --user enable --now parley" in out
    # Without the file, the commands shown to the user could not stop the service.
    code, out, asked = run(tmp_path, "uninstall", exits=1)
    assert (code, asked) == (1, ["systemctl --user disable --now parley.service"])
    assert f"\n  systemctl --user disable --now parley.service\n  rm {unit}\n" in out
    assert unit.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="systemd runs on Linux")
def test_a_service_manager_that_is_missing_is_named(tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, "install", variables={"PATH": str(tmp_path)})
    assert (code, "parley: systemctl is not installed\n" in out) == (1, True), out


@pytest.mark.skipif(sys.platform != "linux", reason="systemd runs on Linux")
def test_variables_that_only_the_shell_has_are_named(tmp_path: Path) -> None:
    model = "{name: m, use: 'langchain_openai:ChatOpenAI', model: m, api_key: $MODEL_KEY}"
    (tmp_path / "config.yaml").write_text(
        f"models: [{model}]\ngateway: {{admin_token: $GATEWAY_KEY}}\n"
    )
    (tmp_path / ".env").write_text(f"GATEWAY_KEY={'k' * 40}\n")
    code, out, _ = run(tmp_path, "install", variables={"MODEL_KEY": "sk-0123456789"})
    assert code == 0, out
    assert "needs MODEL_KEY. A service does not get the variables of this shell: add" in out
    assert f"{tmp_path}/.env" in out
    with (tmp_path / ".env").open("a") as file:
        file.write("MODEL_KEY=sk-0123456789\n")
    assert "Warning" not in run(tmp_path, "install")[1]


def test_print_changes_nothing(tmp_path: Path) -> None:
    code, out, asked = run(tmp_path, "install", "--print", "--system")
    assert (code, asked, (tmp_path / ".config").exists()) == (0, [], False)
    assert "serve" in out


def test_a_wrong_configuration_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("gateway: {port: many}\n")
    code, out, asked = run(tmp_path, "install")
    assert (code, asked, "gateway.port" in out) == (2, [], True)
