"""Commands in the host shell: output, termination, path checks."""

from pathlib import Path

import anyio
import psutil
import pytest

from agent.errors import CommandsDisabled, PathNotAllowed
from agent.paths import OUTPUTS, WORKSPACE
from agent.sandbox.local import LocalSandboxProvider
from agent.sandbox.protocol import Sandbox
from agent.sandbox.result import OutputBuffer
from agent.thread_storage import ThreadStorage
from agent.tools.bash import bash_tools
from tests.agent.test_file_tools import FileToolsHarness
from tests.eventually import eventually

THREAD = "t-1"
LONG_S = 60.0
ZOMBIE = psutil.STATUS_ZOMBIE


async def on_host(home: Path, **environment: str) -> Sandbox:
    sandboxes = LocalSandboxProvider(ThreadStorage(home), host_bash=True, environment=environment)
    return await sandboxes.acquire(THREAD)


async def test_commands_are_disabled_by_default(tmp_path: Path) -> None:
    sandboxes = LocalSandboxProvider(ThreadStorage(tmp_path))
    assert not sandboxes.can_execute
    with pytest.raises(CommandsDisabled, match=r"sandbox\.allow_host_bash"):
        await (await sandboxes.acquire(THREAD)).execute("echo hello", timeout_s=LONG_S)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("echo hello", "hello\n"),
        ("true", "(no output)"),
        ("exit 3", "Exit Code: 3"),
        ("echo a; echo b >&2; exit 4", "a\n\nStd Error:\nb\n\nExit Code: 4"),
        ("echo b >&2", "Std Error:\nb\n"),
        ("cat", "(no output)"),
        ("-x 2>/dev/null", "Exit Code: 127"),
        ("kill -TERM $$", "Exit Code: 143"),
        ("printf 'caf\\351'", "caf\ufffd"),
    ],
)
async def test_command_output_format(tmp_path: Path, command: str, answer: str) -> None:
    assert await (await on_host(tmp_path)).execute(command, timeout_s=LONG_S) == answer


async def test_paths_are_the_same_for_commands_and_for_file_tools(tmp_path: Path) -> None:
    box = await on_host(tmp_path)
    answer = await box.execute(f"pwd; echo hi > {OUTPUTS}/a.txt; ls {OUTPUTS}", timeout_s=LONG_S)
    assert answer == f"{WORKSPACE}\na.txt\n"
    assert (await box.read_file(f"{OUTPUTS}/a.txt")).text == "hi\n"
    assert str(tmp_path) not in await box.execute(
        "ls /usr/nowhere ./x; pwd -P; ls $PWD/y", timeout_s=9
    )


async def test_only_configured_variables_are_set(tmp_path: Path) -> None:
    box = await on_host(tmp_path, GREETING="good morning")
    names = {
        line.partition("=")[0] for line in (await box.execute("env", timeout_s=9)).splitlines()
    }
    assert names <= {"PATH", "HOME", "LANG", "TERM", "GREETING", "PWD", "SHLVL", "_", "OLDPWD"}
    assert await box.execute("echo $GREETING", timeout_s=9) == "good morning\n"


@pytest.mark.parametrize(
    "command",
    [
        *("cat /etc/passwd", "ls /", "ls /home/x", "cat /proc/self/environ", "cp /root/a b"),
        *(
            "cd",
            "cd -",
            "cd ~",
            "cd $HOME",
            "cd $(pwd)",
            "cd /",
            "cd ..",
            "cd a/../..",
            "pushd /etc",
        ),
        *("ls; cd ..", "ls && cd ~", "ls\ncd", "ls | (cd ..; ls)", "bash -c 'cat /etc/passwd'"),
        *("cat ../../x", "cat a/../../x", "cat --file=/etc/passwd", "cat <../x", "echo x > /srv/y"),
        *(
            "curl file:///etc/passwd",
            "curl FILE://x",
            "echo $(cat /etc/passwd)",
            "cat '/etc/passwd'",
        ),
        "ls /mnt/user-data-2",
    ],
)
async def test_commands_with_outside_paths_are_refused(tmp_path: Path, command: str) -> None:
    with pytest.raises(PathNotAllowed):
        await (await on_host(tmp_path)).execute(command, timeout_s=LONG_S)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("echo cd /tmp", "cd /tmp\n"),
        ("echo http://x.test/../a HTTPS://y/..", "http://x.test/../a HTTPS://y/..\n"),
        ("/bin/echo /usr/bin/env > /dev/null; echo x 2>/dev/null", "x\n"),
        ("mkdir -p a && cd a && pwd", f"{WORKSPACE}/a\n"),
        (f"cd {WORKSPACE} && pwd", f"{WORKSPACE}\n"),
        ("echo 'no path: /etc and ..'", "no path: /etc and ..\n"),
        ("echo 1..3 a...b", "1..3 a...b\n"),
        ("echo a/b=c", "a/b=c\n"),
    ],
)
async def test_commands_with_inside_paths_run(tmp_path: Path, command: str, answer: str) -> None:
    assert await (await on_host(tmp_path)).execute(command, timeout_s=LONG_S) == answer


async def test_the_deadline_ends_a_command_and_its_children(tmp_path: Path) -> None:
    box = await on_host(tmp_path)
    answer = await box.execute("echo first; sleep 300 & echo $!; sleep 300", timeout_s=3)
    assert answer.startswith("first\n")
    assert "Exit Code: 124" in answer
    assert "longer than 3 s" in answer
    await gone(int(answer.splitlines()[1]))


async def test_the_agent_can_ask_for_an_earlier_deadline_and_not_for_a_later_one(
    tmp_path: Path,
) -> None:
    sandboxes = LocalSandboxProvider(ThreadStorage(tmp_path), host_bash=True)
    for limit, asked in ((LONG_S, 0.5), (0.5, LONG_S), (0.5, None)):
        bench = FileToolsHarness(tmp_path)
        (bench.tools["bash"],) = bash_tools(sandboxes, limit, None)
        answer = await bench.text("bash", command="sleep 300", timeout_s=asked)
        assert "longer than 0.5 s" in answer


async def test_background_children_do_not_block_or_outlive_the_call(tmp_path: Path) -> None:
    box = await on_host(tmp_path)
    with anyio.fail_after(LONG_S):
        answer = await box.execute("sleep 300 & echo $!", timeout_s=LONG_S * 2)
    await gone(int(answer))


async def test_cancelling_the_call_ends_the_command(tmp_path: Path) -> None:
    box = await on_host(tmp_path)
    workspace = ThreadStorage(tmp_path).folders(THREAD).workspace
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: box.execute("echo $$ > pid; sleep 300", timeout_s=LONG_S))
        await eventually(lambda: (workspace / "pid").exists() and (workspace / "pid").read_text())
        group.cancel_scope.cancel()
    await gone(int((workspace / "pid").read_text()))


async def test_endless_output_is_bounded(tmp_path: Path) -> None:
    answer = await (await on_host(tmp_path)).execute("yes | head -c 9000000", timeout_s=LONG_S)
    assert len(answer) < 4_100_000
    assert "bytes left out" in answer


def test_output_buffer_keeps_both_ends() -> None:
    whole = bytes(range(65, 91)) * 10
    for size in (1, 3, 7, 100, 260):
        tape = OutputBuffer(kept_bytes=20)
        for start in range(0, len(whole), size):
            tape.append(whole[start : start + size])
        head, _, tail = tape.text().partition("\n... [240 bytes left out]\n")
        assert (head, tail) == (whole[:10].decode(), whole[-10:].decode())


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    await eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == ZOMBIE)
