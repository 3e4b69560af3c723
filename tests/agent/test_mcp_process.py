"""Processes of MCP servers: messages, stderr, termination."""

import os
from pathlib import Path

import anyio
import pytest
from mcp.shared.message import SessionMessage

from agent.mcp.process import TAIL_CHARS, StderrTail, run_server_process
from agent.mcp.response_limits import MAX_MESSAGE_BYTES
from agent.mcp.server_config import McpServerConfig
from tests.eventually import eventually

STUBBORN = "trap '' TERM; sleep 300 & echo $! > {file}; wait; sleep 300"


def shell(script: str) -> McpServerConfig:
    return McpServerConfig(command="sh", args=("-c", script))


async def written(file: Path) -> int:
    await eventually(lambda: file.exists() and file.read_text().strip())
    return int(file.read_text())  # noqa: ASYNC240 - as above


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # A zombie does not count as alive.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


async def test_a_server_that_ignores_signals_is_killed(tmp_path: Path) -> None:
    async def left(file: Path) -> None:
        async with run_server_process(shell(STUBBORN.format(file=file)), StderrTail()):
            pids.append(await written(file))

    async def cancelled(file: Path) -> None:
        with anyio.CancelScope() as scope:
            async with run_server_process(shell(STUBBORN.format(file=file)), StderrTail()):
                pids.append(await written(file))
                scope.cancel()
                await anyio.sleep_forever()

    pids: list[int] = []
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(left, tmp_path / "left")
            tasks.start_soon(cancelled, tmp_path / "cancelled")
        await eventually(lambda: not any(is_alive(pid) for pid in pids))
    assert len(pids) == 2


async def test_messages_among_other_lines() -> None:
    script = """printf 'Listening...\\n\\n{"jsonrpc":"2.0",'; printf '"id":1,"result":{}}\\n{"jsonrpc":"2.0"'"""
    async with run_server_process(shell(script), StderrTail()) as (reader, _):
        got = [type(message) async for message in reader]
    assert got[1:] == [SessionMessage]
    assert issubclass(got[0], ValueError)


async def test_stderr_tail() -> None:
    words = StderrTail()
    script = "head -c 300000 /dev/zero | tr '\\0' x >&2; echo 'no token' >&2"
    async with run_server_process(shell(script), words) as (reader, _):
        assert [message async for message in reader] == []
        await eventually(lambda: words.text.endswith("no token\n"))
    assert len(words.text) == TAIL_CHARS


async def test_an_endless_line() -> None:
    script = f"head -c {MAX_MESSAGE_BYTES + 70000} /dev/zero"
    with pytest.raises(ExceptionGroup) as caught:
        async with run_server_process(shell(script), StderrTail()):
            await anyio.sleep_forever()
    assert "too long" in str(caught.value.exceptions[0])


async def test_a_server_that_exits_without_reading() -> None:
    async with run_server_process(shell("exec <&-; exit 0"), StderrTail()) as (reader, _):
        assert [message async for message in reader] == []
