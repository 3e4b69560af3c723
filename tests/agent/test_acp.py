"""External agents over ACP: a real process and protocol, called through the tool."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from langchain_core.messages import AnyMessage

import agent.acp.session  # noqa: F401 - takes a second, spent before the workers are forked
from agent.acp.process import run_agent_process
from agent.config import AgentConfig
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.agent.plain_agent import THREAD
from tests.eventually import eventually
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

ROOT = Path(__file__).parents[2]
LINES = ROOT / "tests" / "fakes" / "acp_lines.py"
REAL = ("echo", "ask", "peek")
"""Behaviors tested with an agent built on the real SDK. The other tests use a fake that starts faster."""


def entry(kind: str, **further: object) -> dict[str, Any]:
    real = kind in REAL
    script = ["-m", "tests.fakes.acp_agent"] if real else ["-I", "-S", str(LINES)]
    path = {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"} if real else {}
    env = further.pop("env", {})
    assert isinstance(env, dict)
    return {
        "command": sys.executable,
        "args": [*script, kind],
        "description": "A helper.",
        "timeout_seconds": 60,
        **further,
        "env": {**path, **env},
    }


def asking(agent: str, prompt: str = "hello") -> ScriptedChatModel:
    call = ToolCall(name="invoke_acp_agent", args={"agent": agent, "prompt": prompt}, id="call-1")
    return ScriptedChatModel.playing(ModelReply(calls=(call,)), "Done.")


def told(messages: list[AnyMessage]) -> str:
    (answer,) = [message for message in messages if message.type == "tool"]
    return str(answer.content)


async def answer_of(home: Path, kind: str, prompt: str = "hello", **further: object) -> str:
    agents = {"helper": entry(kind, **further)}
    with anyio.fail_after(90):
        async with open_agent(home, asking("helper", prompt), {"acp_agents": agents}) as opened:
            messages = await opened.say("Ask the helper.")
    assert messages[-1].content == "Done."
    return told(messages)


def workspace(home: Path) -> Path:
    return home / "threads" / THREAD / "acp-workspace"


def given(home: Path) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads((workspace(home) / "given.json").read_text("utf-8"))
    return found


async def test_the_agents_text_is_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARLEY_ADMIN_TOKEN", "a-secret-of-ours")
    answer = await answer_of(
        tmp_path, "echo", "grüß dich", env={"AGENT_KEY": "its own"}, model="large"
    )
    assert answer == "You said: grüß dich"
    seen = given(tmp_path)
    assert seen["cwd"] == str(workspace(tmp_path))
    assert seen["model"] == "large"
    assert seen["env"]["AGENT_KEY"] == "its own"
    assert "PARLEY_ADMIN_TOKEN" not in seen["env"]
    assert "a-secret-of-ours" not in json.dumps(seen)


async def test_acp_files_are_readable_and_read_only(tmp_path: Path) -> None:
    path = "/mnt/acp-workspace/made.txt"
    model = ScriptedChatModel.playing(
        ModelReply(
            calls=(
                ToolCall(
                    name="invoke_acp_agent", args={"agent": "helper", "prompt": "text"}, id="call-1"
                ),
            )
        ),
        ModelReply(
            calls=(
                ToolCall(name="read_file", args={"path": path}, id="call-2"),
                ToolCall(name="write_file", args={"path": path, "content": "x"}, id="call-3"),
            )
        ),
        "Done.",
    )
    async with open_agent(tmp_path, model, {"acp_agents": {"helper": entry("file")}}) as opened:
        messages = await opened.say("Ask the helper.")
    answers = [str(message.content) for message in messages if message.type == "tool"]
    assert answers[0] == f"See {path}."  # the host path is not shown
    assert answers[1] == "1\ttext"
    assert answers[2].startswith("Error: write access")


@pytest.mark.parametrize(("approve", "chosen"), [(False, "never"), (True, "once")])
async def test_permissions_are_rejected_unless_auto_approved(
    tmp_path: Path, approve: bool, chosen: str
) -> None:
    answer = await answer_of(tmp_path, "ask", auto_approve_permissions=approve)
    assert answer.startswith(f"You chose {chosen}.")
    assert ("auto_approve_permissions" in answer) is not approve


async def test_no_files_or_terminals_are_provided(tmp_path: Path) -> None:
    answer = await answer_of(tmp_path, "peek", auto_approve_permissions=True)
    assert answer == "refused; refused; refused"


async def test_the_model_is_set_by_config_option(tmp_path: Path) -> None:
    answer = await answer_of(tmp_path, "option", model="large")
    assert answer == "You said: hello"
    assert (workspace(tmp_path) / "option").read_text("utf-8") == "the-model=large"


@pytest.mark.parametrize(
    ("kind", "answered"),
    [
        (
            "silent",
            "(the agent returned no text)\n\n[Note: it stopped early: it refused to continue.]",
        ),
        ("chatty", "You said: hello"),
        ("login", "Error: The agent helper needs a login."),
        ("fail", "Error: The agent helper returned an error (code -32603)."),
        ("crash", "Error: The agent helper ended or did not respond."),
        ("other", "Error: The agent helper ended or did not respond."),
    ],
)
async def test_agent_failures_do_not_end_the_turn(tmp_path: Path, kind: str, answered: str) -> None:
    answer = await answer_of(tmp_path, kind)
    assert answer.startswith(answered)
    assert str(tmp_path) not in answer


async def test_long_answers_are_saved_to_a_file(tmp_path: Path) -> None:
    config = {"acp_agents": {"helper": entry("flood")}, "tool_output": {"enabled": False}}
    async with open_agent(tmp_path, asking("helper"), config) as opened:
        answer = told(await opened.say("Ask the helper."))
        (file,) = (opened.folders().outputs / ".tool-results").iterdir()
        assert file.name in answer
        assert file.read_text("utf-8") == "x" * 300_000
    assert len(answer) < 200_000


async def test_an_answer_beyond_all_bounds_is_cut_with_a_note(tmp_path: Path) -> None:
    agents = {"acp_agents": {"helper": entry("deluge")}}
    async with open_agent(tmp_path, asking("helper"), agents) as opened:
        answer = told(await opened.say("Ask the helper."))
        (file,) = (opened.folders().outputs / ".tool-results").iterdir()
        size = file.stat().st_size
    assert "[Note: only the first 12000000 characters of its answer were kept.]" in answer
    assert 11_990_000 < size < 12_001_000


@pytest.mark.parametrize(
    ("command", "answered"),
    [
        ("no-such-program", "is not installed"),
        ("/etc/passwd", "cannot be run"),
        ("true", "must be an Agent Client Protocol server"),
    ],
)
async def test_unusable_programs_are_reported_with_a_fix(
    tmp_path: Path, command: str, answered: str
) -> None:
    answer = await answer_of(tmp_path, "plain", command=command)
    assert answered in answer
    assert "`acp_agents.helper.command`" in answer


async def test_codex_without_adapter_is_reported(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\nexit 2\n")
    program.chmod(0o755)
    answer = await answer_of(home, "plain", command=str(program))
    assert "`codex` needs an adapter" in answer
    assert str(tmp_path) not in answer


async def test_unknown_agents_list_the_available_ones(tmp_path: Path) -> None:
    agents = {"helper": entry("plain"), "other": entry("plain")}
    async with open_agent(tmp_path, asking("nobody"), {"acp_agents": agents}) as opened:
        answer = told(await opened.say("Ask."))
    assert answer == "Error: There is no agent 'nobody'. Available agents: helper, other."


# --- cleanup ---------------------------------------------------------------------------------------------------


async def pids(home: Path) -> list[int]:
    path = workspace(home) / "pids"
    await eventually(path.exists, within_s=60)
    return [int(part) for part in path.read_text().split()]


async def gone(processes: list[int]) -> None:
    def alive(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    await eventually(lambda: not any(alive(pid) for pid in processes))


async def test_a_deadline_ends_the_agent_and_its_children(tmp_path: Path) -> None:
    answer = await answer_of(tmp_path, "hang", timeout_seconds=3)
    assert answer == "Error: The agent helper did not finish within 3 seconds and was stopped."
    await gone(await pids(tmp_path))


async def test_a_run_that_is_cancelled_ends_the_agent_and_its_children(tmp_path: Path) -> None:
    agents = {"helper": entry("hang")}
    running: list[asyncio.Task[Any] | None] = []

    async def say(opened: AgentHarness) -> None:
        running.append(asyncio.current_task())
        await opened.say("Ask the helper.")

    async with (
        open_agent(tmp_path, asking("helper"), {"acp_agents": agents}) as opened,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(say, opened)
        left = await pids(tmp_path)
        (task,) = running
        assert task is not None
        task.cancel()  # once, as the runtime does; an anyio scope would also cancel the wait
    await gone(left)


async def test_leftover_processes_are_killed(tmp_path: Path) -> None:
    await answer_of(tmp_path, "leave")
    await gone(await pids(tmp_path))


async def test_a_program_that_ignores_eof_is_killed(tmp_path: Path) -> None:
    command = ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]
    with anyio.fail_after(60):
        async with run_agent_process(
            command, folder=tmp_path, env={"PATH": "/usr/bin:/bin"}
        ) as lines:
            await lines.send({"hello": 1})


# --- off unless configured -------------------------------------------------------------------------------------


async def test_without_a_configured_agent_there_is_no_tool(tmp_path: Path) -> None:
    async with open_agent(tmp_path, asking("helper")) as opened:
        answer = told(await opened.say("Ask."))
    assert "invoke_acp_agent is not a valid tool" in answer


def test_the_environment_of_an_agent_is_not_shown() -> None:
    config = AgentConfig.model_validate(
        {"acp_agents": {"a": {"command": "a", "env": {"K": "s3cret"}}}}
    )
    assert "s3cret" not in repr(config)
