"""The command line: help, exit codes, and one clear line for each problem."""

import os
import socket
import sqlite3
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from agent.sandbox.bubblewrap import probe_bubblewrap
from gateway.cli import COMMANDS, main
from gateway.command_errors import CommandFailed, flatten_errors, format_errors
from store.errors import StoreLocked
from tests.fork_server import run_parley
from tests.ports import free_port

ROOT = Path(__file__).parents[2]


def parley(
    folder: Path, *arguments: str, stdin: str = "", config: str | None = None, **environ: str
) -> tuple[int, str, str]:
    """Run a command in a new process. Return exit code, stdout, stderr."""
    if config is not None:
        (folder / "config.yaml").write_text(config)
    done = run_parley(arguments, environment(folder, **environ), folder, stdin.encode())
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def environment(folder: Path, **environ: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PARLEY_HOME": str(folder / "home"),
        "PYTHONPATH": str(ROOT),
        "PYTHONSAFEPATH": "1",
        **environ,
    }


def one_line(text: str) -> str:
    (line,) = text.splitlines()
    assert line.startswith("parley: ")
    assert "Traceback" not in line
    return line


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["config", "upgrade"], ["slack", "manifest"]), *([name] for name in COMMANDS),
        *(["pairing", name] for name in ("list", "approve", "revoke")),
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_command_has_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "usage: parley" in text
    assert "--config" in text


@pytest.mark.parametrize("arguments", [[], ["dance"], ["pairing"], ["chat", "--nonsense"]])
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["chta"], "chat"), (["severe"], "serve"), (["pairing", "aprove"], "approve"),
        (["serve", "--prot", "1"], "--port"), (["chat", "--sesion=x"], "--session"),
    ],
)  # fmt: skip
def test_a_misspelled_command_or_option_suggests_the_right_one(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert f"did you mean '{meant}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["send", "telegram", "7", "\udcff"], ["send", "telegram", "\ud800", "hi"],
        ["broadcast", "--yes", "hi", "--file", "a\udcff.txt"], ["check", "--config", "\udcff"],
    ],
)  # fmt: skip
def test_arguments_that_are_not_utf_8_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "is not valid text" in capsys.readouterr().err


@pytest.mark.parametrize("days", ["nan", "inf", "-inf", "x"])
def test_a_number_of_days_is_a_number(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["broadcast", f"--days={days}", "--yes", "hi"])
    assert ended.value.code == 2
    assert "argument --days: must be a number" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["send", "telegram", "7"], ["broadcast", "--yes"]])
@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_standard_input_that_is_not_utf_8_is_refused(
    tmp_path: Path, command: list[str], locale: str
) -> None:
    done = run_parley(command, environment(tmp_path, LC_ALL=locale), tmp_path, b"\xff\xfe\0")
    assert done.returncode == 1
    assert one_line(done.stderr.decode()) == "parley: standard input is not text in UTF-8"


@pytest.mark.parametrize("command", [["send", "telegram", "7"], ["broadcast", "--yes"]])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing", "missing: No such file or directory"),
        (".", ".: is not a file"),
        ("", ": is not a file"),
        ("/dev/zero", "/dev/zero: is not a file"),
        ("pipe", "pipe: is not a file"),
    ],
)
def test_only_files_are_sent(tmp_path: Path, command: list[str], name: str, why: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    code, _, err = parley(tmp_path, *command, "hi", "--file", name)
    assert (code, one_line(err)) == (1, f"parley: {why}")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[" * 100_000, "recursion depth"),
        ('{"version": 1, "actions": [{"at_s": NaN}], "seen": {}}', "an action has no time"),
        ('{"version": 1, "actions": [{"at_s": 1e999}], "seen": {}}', "an action has no time"),
        ('{"version": 1, "actions": [], "seen": {"a": 5}}', "not lines of text"),
        ('{"version": 1, "actions": [], "seen": {"a": [5]}}', "not lines of text"),
        ("", "Expecting value"),
    ],
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "recording.json").write_text(content)
    code, _, err = parley(tmp_path, "replay", "recording.json")
    assert code == 1
    assert why in one_line(err)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 2024-13-45\n", "line 1, column 4: the value is impossible"),
        ("a: &a [*a]\n", "line 1, column 4: a section contains an alias of itself"),
        ("a: " + "[" * 100_000, "nested too deeply"),
        ("a: [" + "[" * 300 + "]" * 300 + "]\n", "nested too deeply"),
    ],
)
def test_a_configuration_that_is_not_yaml_is_not_upgraded(
    tmp_path: Path, text: str, why: str
) -> None:
    _, _, err = parley(tmp_path, "config", "upgrade", config=text)
    assert why in one_line(err)
    assert (tmp_path / "config.yaml").read_text() == text


def test_the_version_is_the_projects(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert capsys.readouterr().out == f"parley {project['version']}\n"


def test_the_config_option_may_be_anywhere(tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("gateway: {port: x}")
    for arguments in (
        ["--config", str(file), "check"],
        ["check", "--config", str(file)],
        ["pairing", "--config", str(file), "list"],
        ["pairing", "list", "--config", str(file)],
    ):
        assert main(arguments) == 2


def test_check_says_what_is_on_and_what_is_missing(tmp_path: Path) -> None:
    code, out, err = parley(tmp_path, "check", config="{}")
    assert (code, err) == (0, "")
    for part in (
        "./config.yaml",
        "./home",
        "demo",
        "slack",
        "off",
        "No chat platform yet: parley init",
    ):
        assert part in out
    assert not (tmp_path / "home").exists()


def test_check_says_what_confines_commands(tmp_path: Path) -> None:
    _, out, _ = parley(tmp_path, "check", config="sandbox: {bubblewrap_path: /no/bwrap}")
    assert "no shell (bubblewrap is not installed)" in out
    _, out, _ = parley(tmp_path, "check", config="sandbox: {use: local, allow_host_bash: true}")
    assert "bash unconfined on this machine" in out
    fault = probe_bubblewrap()
    _, out, _ = parley(tmp_path, "check", config="")
    assert (fault or "bubblewrap: bash with") in out


@pytest.mark.parametrize(
    ("config", "parts", "code"),
    [
        ("gateway: {port: x}", ["config.yaml", "gateway.port", "whole number"], 2),
        ("gateway: {admin_token: $NO_SUCH_TOKEN}", ["gateway.admin_token", "NO_SUCH_TOKEN"], 2),
        ("sandbox: {use: bubblewrap, bubblewrap_path: /no/bwrap}", ["sandbox.use", "not installed"], 1),
        ("models: [{name: a, use: 'no_such_package:Chat', model: m}]", ["models[0].use", "no_such_package"], 1),
        ("tools: [{name: a, group: g, use: 'nonsense'}]", ["tools[0].use", "module:name"], 1),
        ("channels: {telegram: {enabled: true}}", ["channels.telegram.bot_token"], 1),
    ],
)  # fmt: skip
def test_check_complains_in_one_line(
    tmp_path: Path, config: str, parts: list[str], code: int
) -> None:
    result, _, err = parley(tmp_path, "check", config=config)
    assert result == code
    line = one_line(err)
    for part in parts:
        assert part in line


def test_a_port_in_use_is_reported_before_anything_is_opened(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = parley(tmp_path, "serve", config=f"gateway: {{port: {port}}}")
    assert code == 1
    assert str(port) in one_line(err)
    assert "in use" in err
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("command", ["serve", "chat"])
def test_a_data_folder_that_cannot_be_written_is_reported(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("")
    home = str(tmp_path / "file" / "home")
    code, _, err = parley(tmp_path, command, config="gateway: {port: 0}", PARLEY_HOME=home)
    assert code != 0
    assert home in one_line(err)


def test_a_damaged_database_is_reported_and_kept(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "parley.db").write_bytes(b"not a database" * 1000)
    code, _, err = parley(tmp_path, "threads", config="gateway: {port: 1}")
    assert code == 1
    assert "damaged" in one_line(err)
    assert (home / "parley.db").read_bytes() == b"not a database" * 1000


def test_a_database_of_a_newer_version_is_reported(tmp_path: Path) -> None:
    assert parley(tmp_path, "threads", config="gateway: {port: 1}")[:2] == (
        0,
        "No conversations.\n",
    )
    with sqlite3.connect(tmp_path / "home" / "parley.db") as journal:
        journal.execute("insert into parley_schema values (9999, 0)")
    journal.close()
    code, _, err = parley(tmp_path, "threads")
    assert code == 1
    assert "newer" in one_line(err)


def test_another_program_at_the_port_is_reported(tmp_path: Path) -> None:
    (tmp_path / "health").write_text("{}")
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until_listening(port)
        code, _, err = parley(tmp_path, "chat", config=f"gateway: {{port: {port}}}")
        assert code == 1
        assert "another program" in one_line(err)
    finally:
        server.kill()
        server.wait()


def until_listening(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            continue
        return
    raise AssertionError("the server did not start")


def test_pairing_and_threads_work_without_a_service(tmp_path: Path) -> None:
    config = "gateway: {port: 1}"
    assert parley(tmp_path, "pairing", "list", config=config)[:2] == (
        0,
        "No requests and no approved people.\n",
    )
    code, _, err = parley(tmp_path, "pairing", "approve", "ABCD2345")
    assert code == 1
    assert "no open" in one_line(err).lower()
    code, _, err = parley(tmp_path, "pairing", "revoke", "telegram", "42")
    assert code == 1
    assert "not approved" in one_line(err)


def test_groups_of_known_errors_are_reported_and_others_are_not() -> None:
    group = BaseExceptionGroup(
        "", [BaseExceptionGroup("", [StoreLocked("one")]), CommandFailed("two")]
    )
    assert format_errors(flatten_errors(group)) == (1, ["one", "two"])
