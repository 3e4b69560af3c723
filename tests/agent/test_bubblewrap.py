"""Commands in bubblewrap, through the whole agent. Files and commands share folders."""

import logging
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from langchain_core.messages import AnyMessage, ToolMessage

from agent.config import AgentConfig, SandboxConfig
from agent.errors import ObjectNotImportable, SandboxUnusable
from agent.paths import ACP_WORKSPACE, OUTPUTS, UPLOADS, WORKSPACE
from agent.paths import Mount as Folder
from agent.sandbox import bubblewrap_args
from agent.sandbox.bubblewrap import BubblewrapSandboxProvider, probe_bubblewrap
from agent.sandbox.bubblewrap_args import BubblewrapOptions, ProcessLimits
from agent.sandbox.disk import DiskLimits, measure_usage
from agent.sandbox.factory import build_sandbox_provider, sandbox_problem
from agent.sandbox.local import LocalSandboxProvider
from agent.sandbox.seccomp import seccomp_filter
from agent.thread_storage import ThreadStorage
from agent.tools.bash import MAX_COMMAND_BYTES
from tests.agent.agent_harness import open_agent
from tests.agent.plain_agent import THREAD
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

FAULT = probe_bubblewrap()
needs_bubblewrap = pytest.mark.skipif(FAULT is not None, reason=f"bubblewrap: {FAULT}")
LONG_S = 60.0


def calling(*commands: str) -> ScriptedChatModel:
    """Return a model that runs commands one after another, then answers."""
    turns = [
        ModelReply(
            calls=(ToolCall(name="bash", args={"description": "try", "command": one}, id=f"c{at}"),)
        )
        for at, one in enumerate(commands)
    ]
    return ScriptedChatModel.playing(*turns, ModelReply(text="Done."))


def results(messages: Sequence[AnyMessage]) -> list[str]:
    return [message.text for message in messages if isinstance(message, ToolMessage)]


@needs_bubblewrap
async def test_the_agent_runs_commands_in_its_folders(tmp_path: Path) -> None:
    model = calling(
        "pwd; echo one > a.txt; mkdir -p sub; cat a.txt",
        f"cp a.txt {OUTPUTS}/b.txt; ls {OUTPUTS}; cat nowhere",
        "cat /etc/shadow; head -c 3 /dev/zero | dd of=zeros 2>/dev/null; wc -c zeros",
        "echo a\0b",
        "echo " + "x" * MAX_COMMAND_BYTES,
    )
    async with open_agent(tmp_path, model, {"sandbox": {"use": "bubblewrap"}}) as harness:
        said = results(await harness.say("go"))
        state = await harness.state()
        assert (harness.folders().outputs / "b.txt").read_text() == "one\n"
    assert said[0] == f"{WORKSPACE}\none\n"
    assert said[1].startswith("b.txt\n\nStd Error:\ncat: nowhere: No such file")
    assert said[1].endswith("\n\nExit Code: 1")
    assert said[2].startswith("3 zeros\n\nStd Error:\ncat: /etc/shadow: No such file")
    assert said[3] == "a\ufffdb\n"
    assert said[4].startswith("Error: a command can have at most 100000 bytes: write a script")
    assert state["sandbox"] == {"sandbox_id": f"bubblewrap:{THREAD}"}


HARMLESS_IN_A_SANDBOX = (
    "dd if=/dev/zero of=zeros bs=1k count=3 && dd if=zeros of=/dev/null && dd if=/dev/urandom count=1 | wc -c",
    "cd / && ls && find / -maxdepth 1 && cd - && cat ../uploads/../workspace/zeros | wc -c",
    "cat /proc/cpuinfo /proc/meminfo /etc/passwd | head -3; df -h /; mount | head -1; uname -a",
    "mkfifo pipe; (echo through > pipe &) ; cat pipe; ln -s zeros link; truncate -s 1M sparse; rm -rf ./* /tmp/*",
    "eval 'echo $(echo nested)'; exec 3<>/tmp/x; echo y >&3; for f in /usr/*; do :; done; kill -0 $$; nice true",
    'python3 -c \'import subprocess as s, sqlite3; s.run(["true"]); sqlite3.connect("x.db").execute("select 1")\'',
    "tar cf - -C /tmp . | tar tf - >/dev/null; nohup sleep 0 >/dev/null & wait; chmod +x . ; umask 077; sudo -V; true",
)


@needs_bubblewrap
@pytest.mark.parametrize("command", HARMLESS_IN_A_SANDBOX)
async def test_nothing_is_forbidden_that_the_sandbox_makes_safe(
    tmp_path: Path, command: str
) -> None:
    async with open_agent(tmp_path, calling(f"{{ {command}; }} && echo worked")) as harness:
        harness.folders().create()
        (harness.folders().workspace / "zeros").write_bytes(bytes(3))
        (said,) = results(await harness.say("go"))
    assert "worked\n" in said, said


@needs_bubblewrap
async def test_files_and_commands_share_folders(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(
        ModelReply(
            calls=(
                call("write_file", path="a.sh", content="echo 1\n"),
                call("bash", command="sleep 0"),
            )
        ),
        ModelReply(
            calls=(call("bash", command="sed -i s/1/2/ a.sh; bash a.sh; mkdir d; echo x > d/f"),)
        ),
        ModelReply(calls=(call("str_replace", path="a.sh", old_str="2", new_str="3"),)),
        ModelReply(calls=(call("write_file", path="d/f", content="y\n"),)),
        ModelReply(calls=(call("bash", command="bash a.sh; cat d/f; rm -r d a.sh; ls -A"),)),
        ModelReply(text="Done."),
    )
    async with open_agent(tmp_path, model, {"sandbox": {"use": "bubblewrap"}}) as harness:
        assert results(await harness.say("go")) == [
            "OK",
            "(no output)",
            "2\n",
            "@@ -1 +1 @@\n-echo 2\n+echo 3",
            "OK",
            "3\ny\n",
        ]


def call(name: str, **args: str) -> ToolCall:
    return ToolCall(
        name=name, args=args, id=f"{name}-{args.get('path', '')}-{len(args.get('command', ''))}"
    )


async def test_without_commands_bash_is_missing_and_calls_name_the_setting(
    tmp_path: Path,
) -> None:
    model = calling("ls")
    async with open_agent(tmp_path, model, {"sandbox": {"use": "local"}}) as harness:
        (told,) = results(await harness.say("go"))
        state = await harness.state()
    assert "sandbox.allow_host_bash" in told
    assert state["sandbox"] == {"sandbox_id": f"local:{THREAD}"}


async def test_host_bash_if_allowed(tmp_path: Path) -> None:
    sandbox = {"use": "local", "allow_host_bash": True, "environment": {"NAME": "you"}}
    async with open_agent(tmp_path, calling("echo hello $NAME"), {"sandbox": sandbox}) as harness:
        assert results(await harness.say("go")) == ["hello you\n"]


@needs_bubblewrap
async def test_configured_limits_apply(tmp_path: Path) -> None:
    sandbox = {
        "use": "bubblewrap",
        "bash_command_timeout": 5,
        "bash_output_max_chars": 200,
        "max_file_mb": 1,
        "max_processes": 33,
    }
    model = calling("sleep 60", "seq 1000", "head -c 2000000 /dev/zero > f; ls -s f; ulimit -u")
    async with open_agent(tmp_path, model, {"sandbox": sandbox}) as harness:
        slow, long, large = results(await harness.say("go"))
    assert "longer than 5 s" in slow
    assert len(long) <= 500
    assert long.startswith("1\n2\n")
    assert "the result (3893 characters) is in" in long
    assert long.endswith("999\n1000")
    assert large.startswith("1024 f\n33\n")


@needs_bubblewrap
async def test_commands_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "agent.tools.bash")
    async with open_agent(tmp_path, calling("echo é\ntrue")) as harness:
        await harness.say("go")
    logged = [one.getMessage() for one in caplog.records if one.name == "agent.tools.bash"]
    assert logged == [f"thread {THREAD} runs the command 'echo é\\ntrue'"]


@needs_bubblewrap
async def test_the_prompt_mentions_bash_if_available(tmp_path: Path) -> None:
    for use, is_told in (("bubblewrap", True), ("local", False)):
        model = ScriptedChatModel.playing(ModelReply(text="Hi."))
        async with open_agent(tmp_path, model, {"sandbox": {"use": use}}) as harness:
            await harness.say("hello")
        assert ("<shell>" in model.prompts[0][0].text) is is_told


@needs_bubblewrap
async def test_mounts_and_shared_folders_are_visible(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").write_text("1,2\n")
    (tmp_path / "skill").mkdir()
    (tmp_path / "skill/SKILL.md").write_text("# Charts\n")
    box = await BubblewrapSandboxProvider(
        ThreadStorage(tmp_path / "home"),
        mounts=[Folder(virtual="/srv/data", host=tmp_path / "data", read_only=True)],
        shared=lambda: [
            Folder(virtual="/mnt/skills/public/c", host=tmp_path / "skill", read_only=True)
        ],
    ).acquire(THREAD)
    said = await box.execute("cat /srv/data/a.csv; ls -R /mnt/skills", timeout_s=LONG_S)
    assert (
        said
        == "1,2\n/mnt/skills:\npublic\n\n/mnt/skills/public:\nc\n\n/mnt/skills/public/c:\nSKILL.md\n"
    )
    assert (await box.read_file("/srv/data/a.csv")).text == "1,2\n"


@needs_bubblewrap
async def test_uploads_and_acp_files_are_readable(tmp_path: Path) -> None:
    folders = ThreadStorage(tmp_path).folders(THREAD)
    folders.create()
    for folder in (folders.uploads, folders.acp_workspace):
        (folder / "in.txt").write_text("for you\n")
        (folder / "in.txt").chmod(0o600)
    box = await BubblewrapSandboxProvider(ThreadStorage(tmp_path)).acquire(THREAD)
    said = await box.execute(f"cat {UPLOADS}/in.txt {ACP_WORKSPACE}/in.txt", timeout_s=LONG_S)
    assert said == "for you\nfor you\n"


@needs_bubblewrap
async def test_commands_of_one_and_of_several_threads_run_at_the_same_time(tmp_path: Path) -> None:
    sandboxes = BubblewrapSandboxProvider(ThreadStorage(tmp_path))
    said: list[str] = []

    async def meet(thread: str, mine: str, other: str) -> None:
        box = await sandboxes.acquire(thread)
        command = f"touch {mine}; until [ -e {other} ]; do sleep 0.01; done; echo met"
        said.append(await box.execute(command, timeout_s=LONG_S))

    async with anyio.create_task_group() as group:
        for thread in ("t-1", "t-2"):
            group.start_soon(meet, thread, "a", "b")
            group.start_soon(meet, thread, "b", "a")
    assert said == ["met\n"] * 4


@needs_bubblewrap
async def test_threads_with_hostile_files_can_be_deleted(tmp_path: Path) -> None:
    folders = ThreadStorage(tmp_path)
    box = await BubblewrapSandboxProvider(folders).acquire(THREAD)
    deep = "for n in 1 2 3; do mkdir -p $(printf 'd/%.0s' $(seq 400)); cd $(printf 'd/%.0s' $(seq 400)); done"
    await box.execute(f"mkdir closed; touch closed/f; chmod 000 closed; {deep}", timeout_s=LONG_S)
    assert await anyio.to_thread.run_sync(folders.delete, THREAD)
    assert not folders.folders(THREAD).root.exists()


@needs_bubblewrap
async def test_common_tools_work_inside(tmp_path: Path) -> None:
    box = await BubblewrapSandboxProvider(ThreadStorage(tmp_path)).acquire(THREAD)
    said = await box.execute(
        "whoami; hostname; date +%Z >/dev/null && echo date; printf 'b\\na\\n' | sort | head -1;"
        "cat <(echo sub); echo $HOME; umask >/dev/null; f() { echo fun; }; f; sleep 0 & wait; echo $?",
        timeout_s=LONG_S,
    )
    assert said == f"agent\nsandbox\ndate\na\nsub\n{WORKSPACE}\nfun\n0\n"


def test_auto_selects_a_working_sandbox(tmp_path: Path) -> None:
    folders = ThreadStorage(tmp_path)
    local = build_sandbox_provider(SandboxConfig(use="local"), folders)
    assert isinstance(local, LocalSandboxProvider)
    assert local.description == "local: the thread's own folders, no shell"
    allowed = build_sandbox_provider(SandboxConfig(use="local", allow_host_bash=True), folders)
    assert "bash unconfined" in allowed.description
    found = build_sandbox_provider(SandboxConfig(), folders)
    if FAULT is None:
        assert isinstance(found, BubblewrapSandboxProvider)
        assert "no network" in found.description
        assert found.can_execute
    else:
        assert FAULT in found.description
        assert not found.can_execute
    with pytest.raises(ObjectNotImportable):
        build_sandbox_provider(SandboxConfig(use="agent.sandbox.nowhere:X"), folders)


def test_broken_bubblewrap_is_an_error_only_if_configured(
    tmp_path: Path,
) -> None:
    program = tmp_path / "bwrap"
    assert probe_bubblewrap(str(program)) == "bubblewrap is not installed"
    program.write_text("#!/bin/sh\necho no rights for you >&2\nexit 1\n")
    program.chmod(0o755)
    assert probe_bubblewrap(str(program), container_marks=()) == "no rights for you"
    contained = probe_bubblewrap(str(program), container_marks=[str(program)]) or ""
    assert contained.startswith("no rights for you; the container's profile must allow it")
    found = build_sandbox_provider(
        SandboxConfig(bubblewrap_path=str(program)), ThreadStorage(tmp_path)
    )
    assert found.description.startswith(
        "local: the thread's own folders, no shell (no rights for you"
    )
    asked = SandboxConfig(use="bubblewrap", bubblewrap_path=str(program))
    assert "no rights for you" in (sandbox_problem(asked) or "")
    with pytest.raises(SandboxUnusable, match="no rights for you"):
        build_sandbox_provider(asked, ThreadStorage(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change a file's owner")
def test_measuring_changes_owners_but_follows_no_links(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "deep").mkdir(parents=True)
    outside.write_text("x")
    (inside / "deep/file").write_text("x")
    (inside / "link").symlink_to(outside)
    os.link(outside, inside / "second-name")
    owner = bubblewrap_args.sandbox_uid("a")
    usage = measure_usage(inside, owner)
    assert usage.entries == 4  # deep, file, link, second-name
    assert (inside / "deep/file").stat().st_uid == owner
    assert (inside / "link").lstat().st_uid == owner
    assert outside.stat().st_uid == 0


def test_each_thread_has_its_own_uid() -> None:
    if os.geteuid() != 0:
        assert bubblewrap_args.sandbox_uid("a") is None
        return
    owners = {bubblewrap_args.sandbox_uid(f"thread-{n}") for n in range(100)}
    assert len(owners) == 100
    assert all(owner is not None and 1_879_048_192 <= owner < 2**31 for owner in owners)


def test_disk_usage_exceeds_limits(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(3 * 2**20))
    usage = measure_usage(tmp_path)
    assert usage.size >= 3 * 2**20
    assert usage.problem(DiskLimits(quota_mb=2))
    assert not usage.problem(DiskLimits(quota_mb=4))


def test_seccomp_filter_for_two_architectures() -> None:
    for machine in ("x86_64", "aarch64"):
        code = seccomp_filter(machine)
        assert code is not None
        assert len(code) % 8 == 0
        assert len(code) // 8 < 4096  # BPF_MAXINSNS
    assert seccomp_filter("riscv64") is None
    assert platform.machine() not in ("x86_64", "aarch64") or seccomp_filter(platform.machine())


def test_default_limits_are_consistent() -> None:
    config = AgentConfig().sandbox
    assert config.max_file_mb <= config.disk_quota_mb
    assert BubblewrapOptions().limits == ProcessLimits(
        memory_mb=config.memory_mb,
        cpu_s=config.cpu_seconds,
        processes=config.max_processes,
        file_mb=config.max_file_mb,
    )
