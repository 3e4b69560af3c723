"""Forked processes behave like started ones: output, exit code, environment, folder, signals."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.fork_server import (
    PROGRAM,
    ROOT,
    ParleyProcess,
    _Request,
    _server_for,
    can_fork,
    fork_parley,
    forked_program,
    forking_parley,
    run_parley,
    start_parley,
)
from tests.gateway.test_cli import environment
from tests.journeys.service import Service


@pytest.mark.parametrize(
    "arguments",
    [("--version",), ("token", "list"), ("nonsense",), ("check", "--config", "missing.yaml")],
    ids=" ".join,
)
def test_a_command_says_the_same(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    own = environment(tmp_path, PARLEY_LOG_LEVEL="info")
    forked = run_parley(arguments, own, tmp_path)
    started = subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, cwd=tmp_path, env=own, check=False
    )
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        started.returncode, started.stdout, started.stderr,
    )  # fmt: skip


def test_code_of_a_further_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "tool_of_this_test.py").write_text("raise RuntimeError('it was imported')\n")
    (tmp_path / "config.yaml").write_text(
        "tools: [{name: x, group: web, use: 'tool_of_this_test:tool'}]"
    )
    own = environment(tmp_path, PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}")
    assert can_fork(own)
    done = run_parley(("check",), own, tmp_path)
    assert (done.returncode, b"it was imported" in done.stderr) == (1, True)
    assert not can_fork(own | {"PYTHONPATH": str(tmp_path)})


@pytest.mark.parametrize("name", ["PARLEY_TEST_PORT", "https_proxy", "MODEL_KEY"])
def test_a_command_reads_its_input_and_its_environment(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.yaml").write_text(f"gateway: {{port: ${name}}}")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        own = environment(tmp_path, **{name: str(nobody.getsockname()[1])})
        assert can_fork(own)
        done = run_parley(("chat",), own, tmp_path, "grüße\n".encode())
    assert (done.returncode, done.stderr) == (0, b"")
    assert "grüße" in done.stdout.decode()


ENDING = """
import atexit, sys, threading
atexit.register(print, "at exit")
threading.Thread(target=lambda: (threading.Event().wait(0.1), print("thread"))).start()
print("main")
{end}
"""


@pytest.mark.parametrize(
    "end", ["", "sys.exit()", "sys.exit(3)", "sys.exit(300)", "sys.exit('why')", "1 / 0"]
)
def test_a_program_ends_the_same(tmp_path: Path, end: str) -> None:
    (tmp_path / "ending_of_this_test.py").write_text(ENDING.format(end=end))
    path = f"{ROOT}{os.pathsep}{tmp_path}"
    own = environment(tmp_path, PYTHONPATH=path, PYTHONUNBUFFERED="1")
    with (tmp_path / "forked").open("wb") as out, Path(os.devnull).open("rb") as nothing:
        files = (nothing.fileno(), out.fileno(), out.fileno())
        process = fork_parley([], own, tmp_path, files, module="ending_of_this_test")
        code = process.wait_blocking(20)
    with (tmp_path / "started").open("wb") as out:
        started = subprocess.run(
            [sys.executable, "-m", "ending_of_this_test"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=tmp_path, env=own, check=False,
        )  # fmt: skip
    texts = [(tmp_path / name).read_text().splitlines() for name in ("forked", "started")]
    assert code == started.returncode
    assert _without_frames(texts[0]) == _without_frames(texts[1])


def _without_frames(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith(" ")]


def test_it_goes_on_if_a_program_leaves_without_reading_its_answer(tmp_path: Path) -> None:
    own = environment(tmp_path)
    request = _Request(["check"], own, str(tmp_path), "gateway", "")
    sent = json.dumps(asdict(request)).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as program:
        program.connect(bytes.fromhex(_server_for({}).address))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs, Path(os.devnull).open("r+b") as nothing:
            socket.send_fds(program, [sent], [*3 * [nothing.fileno()], theirs.fileno()])
            assert select.select([ours], [], [], 20)[0]
    assert run_parley(("--version",), own, tmp_path).returncode == 0
    assert run_parley(("--version",), own, tmp_path).returncode == 0


async def test_a_service_ends_by_signals(tmp_path: Path) -> None:
    service = Service(tmp_path, {}, fork=True)
    await service.start()
    assert isinstance(service._process, ParleyProcess)
    assert await service.stop() == 0
    assert not service.running
    await service.start()
    await service.kill()
    assert service._process is not None
    assert service._process.returncode == -signal.SIGKILL


async def test_another_python_is_started_and_not_forked(tmp_path: Path) -> None:
    own = environment(tmp_path, PYTHONDEVMODE="0")
    with (tmp_path / "out").open("wb") as output:
        process = await start_parley(("--version",), own, tmp_path, output)
        assert not isinstance(process, ParleyProcess)
        await eventually(lambda: process.returncode == 0)
        await process.wait()


@pytest.mark.parametrize("arguments", [("--version",), ("nonsense",)], ids=" ".join)
@pytest.mark.parametrize("more", [{}, {"PYTHONDEVMODE": "0"}], ids=["forked", "started"])
def test_a_program_that_is_forked_says_the_same(
    tmp_path: Path, arguments: tuple[str, ...], more: dict[str, str]
) -> None:
    own = environment(tmp_path, **more)
    done = [
        subprocess.run(command, capture_output=True, cwd=tmp_path, env=own, check=False)
        for command in (forked_program("gateway", *arguments), [*PROGRAM, *arguments])
    ]
    said = [(one.returncode, one.stdout, one.stderr) for one in done]
    assert said[0] == said[1]


def test_what_is_forked_for_a_program_and_the_program_end_together(tmp_path: Path) -> None:
    (tmp_path / "pid_of_this_test.py").write_text(
        "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(300)\n"
    )
    own = environment(tmp_path, PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}")
    command = forked_program("pid_of_this_test")
    for kill_program in (True, False):
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=own, text=True) as program:
            assert program.stdout is not None
            pid = int(program.stdout.readline())
            os.kill(program.pid if kill_program else pid, signal.SIGKILL)
            assert program.wait() == -signal.SIGKILL
            assert program.stdout.read() == ""  # ends once no process has it open, so both are gone


def test_the_interpreter_of_a_forked_command_forks_parley_and_starts_all_else(
    tmp_path: Path,
) -> None:
    own = environment(tmp_path)
    version = subprocess.run(
        forking_parley(tmp_path, "--version"),
        capture_output=True,
        cwd=tmp_path,
        env=own,
        check=True,
    )
    shown = "import os; print(os.getpid())"
    for arguments, is_forked in (
        (("-P", "-m", "gateway", "--version"), True),
        (("-c", shown), False),
    ):
        with subprocess.Popen(
            [tmp_path / "forking-python", *arguments], stdout=subprocess.PIPE, cwd=tmp_path, env=own
        ) as process:
            said, _ = process.communicate()
        assert process.returncode == 0
        assert said == (version.stdout if is_forked else b"%d\n" % process.pid)
