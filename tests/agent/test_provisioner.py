"""Commands in a provisioner's sandboxes, against fake servers of its API and of the sandbox API, which run commands."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from agent.config import SandboxConfig
from agent.errors import SandboxError, SandboxLost
from agent.paths import OUTPUTS, UPLOADS, WORKSPACE, Mount
from agent.sandbox.bubblewrap import probe_bubblewrap
from agent.sandbox.factory import build_sandbox_provider, sandbox_problem
from agent.sandbox.protocol import maintained
from agent.sandbox.provisioner import ProvisionerSandboxProvider
from agent.sandbox.result import OutputTail
from agent.thread_storage import ThreadFolders, ThreadStorage
from store.files.mirror import thread_area
from tests.agent.agent_harness import open_agent
from tests.agent.plain_agent import THREAD
from tests.agent.test_saved_texts import Bucket
from tests.eventually import eventually
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.provisioner import API_KEY, FakeProvisioner, open_provisioner
from tests.fakes.scripted import ScriptedChatModel

FAULT = probe_bubblewrap()
pytestmark = pytest.mark.skipif(FAULT is not None, reason=f"bubblewrap: {FAULT}")


@pytest.fixture
async def provisioner(tmp_path: Path) -> AsyncIterator[FakeProvisioner]:
    async with open_provisioner(tmp_path / "cluster") as opened:
        yield opened


def section(url: str, **further: Any) -> dict[str, Any]:  # noqa: ANN401 - configuration
    keys = {"url": url, "api_key": API_KEY, **further.pop("keys", {})}
    return {"use": "provisioner", "provisioner": keys, **further}


def storage(provisioner: FakeProvisioner) -> ThreadStorage:
    return ThreadStorage(provisioner.folder.parent / "home")


def folders(provisioner: FakeProvisioner, thread: str = "t1") -> ThreadFolders:
    return storage(provisioner).folders(thread)


@asynccontextmanager
async def sandboxes(
    cluster: FakeProvisioner,
    shared: tuple[Mount, ...] = (),
    **further: Any,  # noqa: ANN401 - configuration
) -> AsyncIterator[ProvisionerSandboxProvider]:
    config = SandboxConfig.model_validate(section(cluster.url, **further))
    built = build_sandbox_provider(config, storage(cluster), lambda: shared)
    assert isinstance(built, ProvisionerSandboxProvider)
    try:
        with anyio.fail_after(90):
            yield built
    finally:
        await built.aclose()


async def run(
    of: ProvisionerSandboxProvider, command: str, *, thread: str = "t1", timeout_s: float = 60
) -> str:
    sandbox = await of.acquire(thread)
    return await sandbox.execute(command, timeout_s=timeout_s)


# --- through the agent ---------------------------------------------------------------------------------------------


async def test_the_agents_commands_and_file_tools_see_the_same_files(
    provisioner: FakeProvisioner, tmp_path: Path
) -> None:
    def calling(number: int, tool: str, **args: object) -> ModelReply:
        return ModelReply(calls=(ToolCall(name=tool, args=args, id=f"c{number}"),))

    model = ScriptedChatModel.playing(
        calling(1, "write_file", path="in.txt", content="one\n"),
        calling(2, "bash", command="pwd; cat in.txt; echo two > out.txt; rm in.txt"),
        calling(3, "read_file", path="out.txt"),
        calling(4, "ls", path=WORKSPACE),
        calling(5, "bash", command=f"cp out.txt {OUTPUTS}/report.txt; cat nowhere"),
        calling(6, "present_files", filepaths=[f"{OUTPUTS}/report.txt"]),
        ModelReply(text="Done."),
    )
    # Written as in a DeerFlow configuration.
    config = {
        "use": "deerflow.community.aio_sandbox:AioSandboxProvider",
        "provisioner_url": provisioner.url,
        "provisioner_api_key": API_KEY,
    }
    async with open_agent(tmp_path, model, {"sandbox": config}) as harness:
        messages = await harness.say("go")
        said = [message.text for message in messages if message.type == "tool"]
        assert (harness.folders().outputs / "report.txt").read_text() == "two\n"
        state = await harness.state()
    assert said[1] == f"{WORKSPACE}\none\n"
    assert "two" in said[2]
    assert "in.txt" not in said[3]
    assert said[4].startswith("Std Error:\ncat: nowhere")
    assert said[4].endswith("Exit Code: 1")
    assert state["artifacts"] == [f"{OUTPUTS}/report.txt"]
    assert state["sandbox"] == {"sandbox_id": f"provisioner:{THREAD}"}
    assert [one["thread_id"] for one in provisioner.created] == [THREAD]
    assert list(provisioner.deleted) == [one["sandbox_id"] for one in provisioner.created]


async def test_a_result_that_is_left_out_names_the_file_unless_the_sandbox_changed_it(
    provisioner: FakeProvisioner, tmp_path: Path
) -> None:
    def calling(number: int, tool: str, **args: object) -> ModelReply:
        return ModelReply(calls=(ToolCall(name=tool, args=args, id=f"c{number}"),))

    model = ScriptedChatModel.playing(
        calling(1, "bash", command="seq -w 9000 9999 | tee kept.txt > changed.txt"),
        calling(2, "read_file", path="kept.txt", start_line=11),
        calling(3, "read_file", path="changed.txt"),
        calling(4, "bash", command="echo 9000 > changed.txt"),
        calling(5, "read_file", path="kept.txt"),
        ModelReply(text="Read."),
    )
    config = section(provisioner.url)
    summaries = {"keep": {"value": 2}, "max_input_tokens": 8_000}
    async with open_agent(
        tmp_path, model, {"sandbox": config, "summarization": summaries}
    ) as harness:
        await harness.say("go")
        await harness.say("And now?")
        state = await harness.state()
        copies = list((harness.folders().outputs / ".tool-results").iterdir())
    shown = [message.text for message in model.prompts[-1] if message.type == "tool"]
    kept, changed = shown[1:3]
    assert f"lines 11 to 1000 of {WORKSPACE}/kept.txt had this text" in kept
    assert f"the whole text is in {OUTPUTS}/.tool-results/{copies[0].name}" in changed
    assert copies[0].read_text().startswith("1\t9000\n2\t9001\n")
    assert len(copies) == len(state["left_out"]["in_files"]) == 1


# --- life of a sandbox ---------------------------------------------------------------------------------------------


async def test_a_thread_keeps_its_sandbox_and_threads_have_one_each(
    provisioner: FakeProvisioner,
) -> None:
    async with sandboxes(provisioner) as provider:
        assert await run(provider, "echo a > /tmp/kept; pwd") == f"{WORKSPACE}\n"
        assert await run(provider, "cat /tmp/kept") == "a\n"
        assert "No such file" in await run(provider, "cat /tmp/kept", thread="t2")
        assert [one["thread_id"] for one in provisioner.created] == ["t1", "t2"]
        assert not any(box.sessions for box in provisioner.sandboxes.values())
    assert not provisioner.sandboxes


async def test_a_sandbox_is_used_once_its_shell_works(provisioner: FakeProvisioner) -> None:
    provisioner.errors = 2
    provisioner.prepared = {"unready": 2, "unready_shell": 2}
    async with sandboxes(provisioner) as provider:
        assert await run(provider, "echo up") == "up\n"
    assert len(provisioner.created) == 1


async def test_a_sandbox_that_does_not_start_is_deleted(provisioner: FakeProvisioner) -> None:
    provisioner.prepared = {"unready": 10_000}
    async with sandboxes(provisioner, keys={"start_timeout_seconds": 1}) as provider:
        with pytest.raises(SandboxError, match="not ready within 1 s"):
            await run(provider, "echo up")
        assert not provisioner.sandboxes
        provisioner.status = "Failed"
        with pytest.raises(SandboxError, match="cannot be started"):
            await run(provider, "echo up")
        assert not provisioner.sandboxes


async def test_a_lost_sandbox_is_replaced_before_the_next_command(
    provisioner: FakeProvisioner,
) -> None:
    async with sandboxes(provisioner) as provider:
        await run(provider, "echo a > a.txt")
        (sandbox_id,) = provisioner.sandboxes
        await provisioner.lose(sandbox_id)
        assert await run(provider, "cat a.txt") == "a\n"
        assert len(provisioner.created) == 2


async def test_a_sandbox_lost_during_a_command_is_an_error_that_runs_nothing_twice(
    provisioner: FakeProvisioner,
) -> None:
    async with sandboxes(provisioner) as provider:
        await run(provider, "echo a > a.txt")
        (sandbox_id, box), *_ = provisioner.sandboxes.items()

        async def lose() -> None:
            await eventually(lambda: box.commands[-1] == "sleep 60")
            await provisioner.lose(sandbox_id)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lose)
            with pytest.raises(SandboxLost):
                await run(provider, "sleep 60")
        assert await run(provider, "cat a.txt") == "a\n"


@pytest.mark.parametrize("refused", ["/v1/file/download", "/v1/file/upload"])
async def test_output_is_kept_if_the_files_cannot_be_fetched(
    provisioner: FakeProvisioner, refused: str
) -> None:
    async with sandboxes(provisioner) as provider:
        await run(provider, "true")
        provisioner.sandbox.refused = refused
        text = await run(provider, "echo a > a.txt; echo done")
        assert text.startswith("done\n\nFiles that this command changed may be lost")
        provisioner.sandbox.refused = ""
        assert await run(provider, "true") == "(no output)"
        assert (folders(provisioner).workspace / "a.txt").read_text() == "a\n"


async def test_idle_sandboxes_are_deleted_and_files_stay(provisioner: FakeProvisioner) -> None:
    idle: dict[str, Any] = {"keys": {"idle_timeout_seconds": 0.5}, "bash_command_timeout": 1}
    async with sandboxes(provisioner, **idle) as provider, maintained(provider):
        await run(provider, "echo a > a.txt")
        await eventually(lambda: not provisioner.sandboxes)
        assert await run(provider, "cat a.txt") == "a\n"
        # A running command keeps its sandbox.
        assert await run(provider, "sleep 3; echo still here") == "still here\n"


async def test_a_sandbox_left_by_a_process_that_died_is_deleted_and_strange_ones_stay(
    provisioner: FakeProvisioner,
) -> None:
    idle: dict[str, Any] = {"keys": {"idle_timeout_seconds": 0.5}, "bash_command_timeout": 1}
    async with sandboxes(provisioner) as died:
        await run(died, "echo a > a.txt")
        (left,) = provisioner.sandboxes
        await died._provisioner.create("another-installations", "t1")
        async with sandboxes(provisioner, **idle) as provider, maintained(provider):
            await eventually(lambda: left in provisioner.deleted)
        assert set(provisioner.sandboxes) == {"another-installations"}


async def test_a_sandbox_that_another_node_uses_stays(provisioner: FakeProvisioner) -> None:
    idle: dict[str, Any] = {"keys": {"idle_timeout_seconds": 1}, "bash_command_timeout": 3}
    async with sandboxes(provisioner, **idle) as first, sandboxes(provisioner) as second:
        await run(first, "true")
        async with maintained(first):
            for _ in range(5):
                assert await run(second, "sleep 1; echo a") == "a\n"
            assert not provisioner.deleted
    assert len(provisioner.created) == 1


async def test_the_sandbox_of_a_deleted_thread_is_deleted(provisioner: FakeProvisioner) -> None:
    async with sandboxes(provisioner) as provider:
        await run(provider, "echo secret > a.txt")
        await anyio.to_thread.run_sync(storage(provisioner).delete, "t1")
        async with maintained(provider):
            await eventually(lambda: not provisioner.sandboxes)


# --- commands ------------------------------------------------------------------------------------------------------


async def test_a_command_that_takes_too_long_is_killed_and_its_files_are_kept(
    provisioner: FakeProvisioner,
) -> None:
    async with sandboxes(provisioner) as provider:
        text = await run(provider, "echo a > a.txt; echo begun; sleep 600", timeout_s=3)
        assert text.startswith("begun\n")
        assert text.endswith("The command was stopped: it took longer than 3 s.")
        assert (folders(provisioner).workspace / "a.txt").read_text() == "a\n"
        assert not provisioner.sandbox.sessions


async def test_a_cancelled_command_is_killed(provisioner: FakeProvisioner) -> None:
    async with sandboxes(provisioner) as provider:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                run, provider, "touch begun; while :; do date +%N > /mnt/beat; sleep 0.05; done"
            )
            beat = provisioner.folder
            await eventually(lambda: bool(list(beat.glob("*/mnt/beat"))))
            tasks.cancel_scope.cancel()
        look = 'then=$(cat /mnt/beat); sleep 1; [ "$then" = "$(cat /mnt/beat)" ] && echo quiet'
        assert await run(provider, look) == "quiet\n"
        assert not provisioner.sandbox.sessions


async def test_the_output_of_a_background_command_arrives_while_it_runs(
    provisioner: FakeProvisioner,
) -> None:
    async with sandboxes(provisioner) as provider:
        sandbox, output = await provider.acquire("t1"), OutputTail()
        command = (
            "echo begun; until [ -e go ]; do sleep 0.05; done; echo oops >&2; echo ended; exit 3"
        )
        texts: list[str] = []

        async def background() -> None:
            texts.append(await sandbox.execute(command, timeout_s=60, output=output))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(background)
            assert await eventually(output.take) == "begun\n"
            assert not texts
            provisioner.sandbox.path(f"{WORKSPACE}/go").touch()
        assert output.take() in ("ended\noops\n", "oops\nended\n")
        assert texts == ["Exit Code: 3"]
        assert (folders(provisioner).workspace / "go").exists()
        assert not provisioner.sandbox.sessions


async def test_a_background_command_is_stopped(provisioner: FakeProvisioner) -> None:
    async with sandboxes(provisioner) as provider:
        sandbox, output = await provider.acquire("t1"), OutputTail()
        text = await sandbox.execute("echo a; sleep 600", timeout_s=1, output=output)
        assert text == "Exit Code: 124\nThe command was stopped: it took longer than 1 s."
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(sandbox.execute, "sleep 600", timeout_s=600, output=output))
            await eventually(lambda: provisioner.sandbox.commands[-1] == "sleep 600")
            tasks.cancel_scope.cancel()
        assert not provisioner.sandbox.sessions


async def test_file_tools_see_what_a_running_command_has_written(
    provisioner: FakeProvisioner,
) -> None:
    async with sandboxes(provisioner) as provider:
        sandbox, output = await provider.acquire("t1"), OutputTail()
        async with anyio.create_task_group() as tasks:
            command = "echo one > one.txt; echo begun; sleep 600"
            tasks.start_soon(partial(sandbox.execute, command, timeout_s=600, output=output))
            assert await eventually(output.take) == "begun\n"
            assert (await (await provider.acquire("t1")).read_file("one.txt")).text == "one\n"
            there = provisioner.sandbox.path(WORKSPACE)
            (there / "two.txt").write_text("two\n")
            # A command that sends files must not mark another command's files as already fetched.
            (folders(provisioner).workspace / "sent.txt").write_text("sent\n")
            await sandbox.execute("cat sent.txt", timeout_s=60)
            assert (folders(provisioner).workspace / "two.txt").read_text() == "two\n"
            (there / "three.txt").write_text("three\n")
            tasks.cancel_scope.cancel()
        assert (await (await provider.acquire("t1")).read_file("three.txt")).text == "three\n"


async def test_what_a_command_wrote_is_kept_when_the_service_ends(
    provisioner: FakeProvisioner, tmp_path: Path
) -> None:
    bucket = Bucket()
    config = {"sandbox": section(provisioner.url)}
    model = ScriptedChatModel.playing()
    async with open_agent(tmp_path, model, config, mirror=bucket) as harness:
        sandbox = await harness.services.sandboxes.acquire(THREAD)
        await harness.services.background.start(
            THREAD, sandbox, "echo a > a.txt; touch up; sleep 600"
        )
        there = provisioner.folder
        await eventually(lambda: bool(list(there.glob("*/mnt/user-data/workspace/up"))))
        assert not bucket.stored
    assert (harness.folders().workspace / "a.txt").read_text() == "a\n"
    assert bucket.stored == [thread_area(THREAD)]


async def test_commands_of_one_thread_run_side_by_side(provisioner: FakeProvisioner) -> None:
    async with sandboxes(provisioner) as provider:
        results: list[str] = []

        async def wait_for(mine: str, other: str) -> None:
            command = f"touch /tmp/{mine}; until [ -e /tmp/{other} ]; do sleep 0.05; done; echo {mine} > {mine}.txt"
            results.append(await run(provider, command, timeout_s=30))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for, "a", "b")
            tasks.start_soon(wait_for, "b", "a")
        assert results == ["(no output)"] * 2
        assert sorted(file.name for file in folders(provisioner).workspace.iterdir()) == [
            "a.txt",
            "b.txt",
        ]


async def test_commands_get_the_configured_variables(provisioner: FakeProvisioner) -> None:
    async with sandboxes(provisioner, environment={"COLOR": "red"}) as provider:
        assert await run(provider, 'echo "$COLOR"') == "red\n"


# --- files ---------------------------------------------------------------------------------------------------------


async def test_changes_go_both_ways_and_nothing_is_sent_twice(provisioner: FakeProvisioner) -> None:
    async with sandboxes(provisioner) as provider:
        here = folders(provisioner)
        here.create()
        (here.uploads / "photo 1.jpg").write_bytes(b"\xff\xd8" * 300_000)
        (here.workspace / "old.txt").write_text("old")
        assert await run(provider, f"wc -c < '{UPLOADS}/photo 1.jpg'") == "600000\n"
        uploads = provisioner.sandbox.requests.count("/v1/file/upload")
        assert await run(provider, "cat old.txt") == "old"
        assert provisioner.sandbox.requests.count("/v1/file/upload") == uploads
        (here.workspace / "old.txt").unlink()
        await run(
            provider,
            "mkdir -p deep/empty; printf 'x\\n' > deep/run.sh; chmod +x deep/run.sh; ls old.txt",
        )
        assert (here.workspace / "deep/empty").is_dir()
        assert (here.workspace / "deep/run.sh").stat().st_mode & 0o100
        assert not provisioner.sandbox.path(f"{WORKSPACE}/old.txt").exists()
        await run(provider, "rm -r deep")
        assert not list(here.workspace.iterdir())


async def test_a_new_sandbox_gets_the_files_and_only_those(provisioner: FakeProvisioner) -> None:
    """The first process died before it could fetch the files of its last command."""
    async with sandboxes(provisioner) as died:
        await run(died, "echo a > a.txt")
        provisioner.sandbox.path(f"{WORKSPACE}/b.txt").write_text("never fetched")
        async with sandboxes(provisioner) as provider:
            assert await run(provider, "ls") == "a.txt\n"


async def test_links_and_files_elsewhere_never_come_back(provisioner: FakeProvisioner) -> None:
    async with sandboxes(provisioner) as provider:
        here = folders(provisioner)
        secret = provisioner.folder.parent / "secret.txt"
        secret.write_text("secret")
        await run(
            provider,
            f"ln -s {secret} link; mkfifo pipe; mkdir real; echo new > real/a.txt; ln -s real linked; echo b > b.txt",
        )
        assert sorted(path.name for path in here.workspace.iterdir()) == ["b.txt", "real"]
        # When a command writes to a path that is a link on this machine, the link is not followed.
        (here.workspace / "out").symlink_to(provisioner.folder.parent)
        await run(provider, "mkdir -p out; echo evil > out/secret.txt")
        assert secret.read_text() == "secret"


async def test_an_archive_with_other_members_writes_only_what_was_asked_for(
    provisioner: FakeProvisioner,
) -> None:
    """Commands can replace the sandbox's programs and so control what it sends."""
    async with sandboxes(provisioner) as provider:
        here = folders(provisioner)
        await run(provider, "true")
        box = provisioner.sandbox
        evil = box.path("/mnt/evil.tar")
        await run(
            provider,
            "mkdir -p /tmp/e/mnt/user-data/workspace /tmp/e/mnt/user-data/outputs; cd /tmp/e; "
            "echo fine > mnt/user-data/workspace/a.txt; echo no > mnt/user-data/outputs/b.txt; "
            "ln -s /etc mnt/user-data/workspace/etc; echo no > up.txt; "
            "tar -cPf /mnt/evil.tar --transform 's,^up.txt,/../../up.txt,' mnt up.txt",
        )
        assert evil.exists()
        fake = "#!/bin/sh\\nexec cp /mnt/evil.tar /tmp/.parley/pull.tar\\n"
        await run(provider, f"printf '{fake}' > /tmp/tar; chmod +x /tmp/tar")
        box.programs = "/tmp"  # noqa: S108 - in the sandbox
        text = await run(provider, f"echo longer text > {WORKSPACE}/a.txt")
        assert text == "(no output)"
        assert (here.workspace / "a.txt").read_text() == "fine\n"
        assert sorted(path.name for path in here.user_data.rglob("*") if path.is_file()) == [
            "a.txt"
        ]
        assert not list(provisioner.folder.parent.rglob("up.txt"))[1:]


async def test_a_command_that_writes_more_than_the_quota_is_told(
    provisioner: FakeProvisioner,
) -> None:
    async with sandboxes(provisioner, disk_quota_mb=1) as provider:
        text = await run(provider, "head -c 3000000 /dev/zero > big; echo done")
        assert text.startswith("done\n")
        assert (
            "Not all files of this command could be kept: this conversation is out of disk space"
            in text
        )
        assert not (folders(provisioner).workspace / "big").exists()
        assert await run(provider, "rm big; echo small > a.txt") == "(no output)"
        assert (folders(provisioner).workspace / "a.txt").read_text() == "small\n"


async def test_skills_are_sent_and_never_fetched(
    provisioner: FakeProvisioner, caplog: pytest.LogCaptureFixture
) -> None:
    skill = provisioner.folder.parent / "skill"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("How to")
    shared = (Mount(virtual="/mnt/skills/custom/a", host=skill, read_only=True),)
    async with sandboxes(provisioner, shared) as provider:
        assert await run(
            provider, "cat /mnt/skills/custom/a/SKILL.md; echo bad > /mnt/skills/custom/a/SKILL.md"
        )
        assert (skill / "SKILL.md").read_text() == "How to"
    blocked = provisioner.folder.parent / "file"
    blocked.write_text("")
    async with sandboxes(provisioner, shared) as provider:
        await run(provider, "true", thread="t2")
    with caplog.at_level(logging.WARNING):
        async with sandboxes(provisioner, shared) as provider:
            await run(provider, "true", thread="t3")
            provisioner.sandbox.path("/mnt/skills").rename(provisioner.sandbox.path("/mnt/moved"))
            provisioner.sandbox.path("/mnt/skills").write_text("mounted by the provisioner")
            (skill / "SKILL.md").write_text("How else")
            assert await run(provider, "echo works", thread="t3") == "works\n"
    assert "read-only folders cannot be copied into the sandbox" in caplog.text


async def test_storage_that_both_mount_is_not_copied(provisioner: FakeProvisioner) -> None:
    here = folders(provisioner)
    here.create()
    (here.workspace / "a.txt").write_text("a")
    provisioner.prepared = {"shared": here.user_data}
    async with sandboxes(provisioner) as provider:
        assert await run(provider, "cat a.txt; echo b > b.txt") == "a"
        assert (here.workspace / "b.txt").read_text() == "b\n"
        assert (here.workspace / "a.txt").exists()
        assert "/v1/file/upload" not in provisioner.sandbox.requests
        assert "/v1/file/download" not in provisioner.sandbox.requests


async def test_nothing_blocks_the_event_loop(provisioner: FakeProvisioner) -> None:
    async with sandboxes(provisioner) as provider:
        here = folders(provisioner)
        here.create()
        for number in range(2_000):
            (here.workspace / f"{number}.txt").write_text("x" * 1_000)
        (here.workspace / "big").write_bytes(b"x" * 30_000_000)
        await run(provider, "cp big big2; touch *.txt")  # tests/blocking.py watches
        assert (here.workspace / "big2").stat().st_size == 30_000_000


# --- configuration -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["deerflow.community.aio_sandbox", "src.community.aio_sandbox"])
def test_the_seeds_path_of_the_aio_provider_resolves(module: str) -> None:
    use = f"{module}:AioSandboxProvider"
    keys = {"image": "i", "replicas": 5, "container_prefix": "p", "idle_timeout": 60, "port": 8080}
    docker = SandboxConfig.model_validate({"use": use, **keys})
    assert docker.use == "docker"
    assert (docker.docker.image, docker.docker.replicas) == ("i", 5)
    assert (docker.docker.container_prefix, docker.docker.idle_timeout_seconds) == ("p", 60)
    remote = SandboxConfig.model_validate({"use": use, "provisioner_url": "http://p:8002", **keys})
    assert remote.use == "provisioner"
    assert remote.provisioner.url == "http://p:8002"
    assert remote.provisioner.idle_timeout_seconds == 60
    own = {"use": use, "image": "i", "docker": {"image": "own"}}
    assert SandboxConfig.model_validate(own).docker.image == "own"


def test_the_seeds_path_of_the_local_provider_resolves() -> None:
    local = {"use": "deerflow.sandbox.local:LocalSandboxProvider", "allow_host_bash": True}
    assert SandboxConfig.model_validate(local).use == "local"
    other = "deerflow.sandbox:Other"
    assert SandboxConfig.model_validate({"use": other}).use == other


async def test_problems_of_the_provisioner_are_named(provisioner: FakeProvisioner) -> None:
    async def problem(**keys: str) -> str | None:
        config = SandboxConfig.model_validate({"use": "provisioner", "provisioner": keys})
        return await anyio.to_thread.run_sync(sandbox_problem, config)

    assert await problem(url=provisioner.url, api_key=API_KEY) is None
    assert "refuses the key" in (await problem(url=provisioner.url, api_key="other") or "")
    assert "does not respond" in (await problem(url="http://127.0.0.1:9") or "")
    assert "set the provisioner's address" in (await problem() or "")
    with pytest.raises(SandboxError, match="refused the request"):
        async with sandboxes(provisioner, keys={"api_key": "other"}) as provider:
            await run(provider, "true")
