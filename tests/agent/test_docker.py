"""Commands in Docker containers, against a fake docker program that starts real processes."""

import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from agent.config import SandboxConfig
from agent.errors import ObjectNotImportable, SandboxError, SandboxUnusable
from agent.paths import Mount
from agent.sandbox.docker import DockerSandboxProvider
from agent.sandbox.docker_cli import ContainerSpec, installation_id
from agent.sandbox.factory import build_sandbox_provider
from agent.sandbox.protocol import maintained
from agent.thread_storage import ThreadStorage
from tests.agent.agent_harness import open_agent
from tests.eventually import eventually
from tests.fakes.docker import FakeDocker, machine
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

SECRET = "s3cret-value"


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[FakeDocker]:
    with machine(tmp_path / "docker") as made:
        yield made


def section(docker: FakeDocker, **further: Any) -> dict[str, Any]:  # noqa: ANN401 - configuration
    sandbox = further.pop("sandbox", {})
    keys = {"command": str(docker.program), **further}
    return {"use": "docker", "docker": keys, **sandbox}


@asynccontextmanager
async def sandboxes(docker: FakeDocker, **further: Any) -> AsyncIterator[DockerSandboxProvider]:  # noqa: ANN401
    config = SandboxConfig.model_validate(section(docker, **further))
    built = build_sandbox_provider(config, ThreadStorage(docker.folder.parent / "home"))
    assert isinstance(built, DockerSandboxProvider)
    try:
        with anyio.fail_after(90):
            yield built
    finally:
        await built.aclose()


async def run(
    of: DockerSandboxProvider, command: str, *, thread: str = "t1", timeout_s: float = 60
) -> str:
    sandbox = await of.acquire(thread)
    return await sandbox.execute(command, timeout_s=timeout_s)


def running_programs() -> str:
    """Return the arguments of all processes of this machine."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found.append(file.read_text(errors="replace"))
    return "\n".join(found)


# --- what is started -------------------------------------------------------------------------------------------


def spec(**docker: object) -> ContainerSpec:
    config = SandboxConfig.model_validate({"docker": docker}).docker
    mounts = (
        Mount(virtual="/mnt/skills/a", host=Path("/srv/a,b"), read_only=True),
        Mount(virtual="/mnt/user-data/workspace", host=Path("/data/threads/t/w")),
    )
    return ContainerSpec(
        config=config, home="h", thread_id="t", mounts=mounts, environment={"A": SECRET}
    )


def test_a_container_is_confined() -> None:
    line = " ".join(spec().arguments())
    for part in (
        "--rm",
        "--memory 2048m --memory-swap 2048m",
        "--cpus 2 --pids-limit 512",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--network none",
        "type=bind,source=/data/threads/t/w,target=/mnt/user-data/workspace",
        '"source=/srv/a,b",target=/mnt/skills/a,readonly',
        "--label parley.home=h",
    ):
        assert part in line
    assert "--publish" not in line
    assert "seccomp" not in line
    assert "privileged " not in line.replace("no-new-privileges", "")
    assert "--user 1000:1000" in line
    assert spec().arguments()[-3] == "ghcr.io/agent-infra/sandbox:latest"
    assert SECRET not in line


@pytest.mark.parametrize(
    ("docker", "parts"),
    [
        ({"network": "bridge"}, ["--network bridge"]),
        ({"network": "internal"}, ["--network parley-sandbox-internal"]),
        ({"seccomp": "unconfined"}, ["--security-opt seccomp=unconfined"]),
        ({"cap_add": ["KILL"]}, ["--cap-drop ALL --cap-add KILL --security-opt"]),
        ({"memory_mb": 100, "cpus": 0.5, "pids_limit": 20}, ["100m", "--cpus 0.5 --pids-limit 20"]),
        ({"path_map": {"/data": "/outside"}}, ["source=/outside/threads/t/w,target"]),
    ],
)
def test_configuration_sets_container_arguments(
    docker: dict[str, object], parts: list[str]
) -> None:
    line = " ".join(spec(**docker).arguments())
    assert all(part in line for part in parts), line


def test_container_names_are_stable_and_unique() -> None:
    name = spec().name
    assert name == spec(memory_mb=100).name
    assert len(name.removeprefix("parley-sandbox-")) == 32
    others = [
        ContainerSpec(config=spec().config, home=home, thread_id=thread, mounts=(), environment={})
        for home, thread in (("h", "t2"), ("h2", "t"), ("ht", ""), ("", "ht"))
    ]
    assert len({name, *(other.name for other in others)}) == 5
    assert spec().fits(spec())
    assert not spec().fits(spec(memory_mb=100))
    assert installation_id(Path("/a")) != installation_id(Path("/b"))


@pytest.mark.parametrize("value", ["a\nPATH=", "a\rb"])
def test_line_breaks_in_variables_are_rejected(value: str) -> None:
    with pytest.raises(SandboxError):
        ContainerSpec(
            config=spec().config, home="h", thread_id="t", mounts=(), environment={"A": value}
        ).variables()


@pytest.mark.parametrize(
    ("docker", "named"),
    [
        ({"network": "none --privileged"}, "network"),
        ({"image": "--privileged"}, "image"),
        ({"container_prefix": "a/b"}, "container_prefix"),
        ({"replicas": 0}, "replicas"),
    ],
)
def test_invalid_docker_keys_are_rejected(docker: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        SandboxConfig.model_validate({"docker": docker})


def test_missing_docker_program_is_reported() -> None:
    config = SandboxConfig.model_validate(
        {"use": "docker", "docker": {"command": "no-docker-here"}}
    )
    with pytest.raises(SandboxUnusable, match="no-docker-here"):
        build_sandbox_provider(config, ThreadStorage(Path("/nowhere")))


def test_provider_class_path_in_configuration() -> None:
    use = "agent.sandbox.docker:DockerSandboxProvider"
    docker = {"command": "sh"}
    config = SandboxConfig.model_validate({"use": use, "docker": docker})
    provider = build_sandbox_provider(config, ThreadStorage(Path("/nowhere")))
    assert provider.can_execute
    image = config.docker.image
    assert provider.description == f"docker: bash in a container of {image}, network none"
    with pytest.raises(ObjectNotImportable):
        build_sandbox_provider(
            SandboxConfig.model_validate({"use": f"{use}2"}), ThreadStorage(Path("/nowhere"))
        )


# --- commands --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["none", "internal", "bridge"])
async def test_commands_use_the_threads_files(docker: FakeDocker, network: str) -> None:
    environment = {"environment": {"GREETING": SECRET}}
    async with sandboxes(docker, network=network, sandbox=environment) as of:
        sandbox = await of.acquire("t1")
        await sandbox.write_file("notes.txt", "one\ntwo\n")
        assert docker.calls == []  # files need no container
        text = await sandbox.execute(
            "pwd; echo $GREETING 'ü \"quoted\" $x'\nwc -l < notes.txt; echo made > made.txt; exit 3",
            timeout_s=60,
        )
        made = "/mnt/user-data/workspace/made.txt"
        assert (await sandbox.read_file(made)).text == "made\n"
        await sandbox.write_file(made, "changed")
        assert await sandbox.execute("cat made.txt; read x; echo $?", timeout_s=60) == "changed1\n"
    assert text == f'/mnt/user-data/workspace\n{SECRET} ü "quoted" $x\n2\n\nExit Code: 3'
    assert len(docker.runs) == 1
    assert docker.containers == []
    shown = json.dumps(docker.calls)
    assert SECRET not in shown
    assert ("network create" in " ".join(map(" ".join, docker.calls))) is (network == "internal")


async def test_commands_of_one_thread_and_of_others_run_concurrently(docker: FakeDocker) -> None:
    async with sandboxes(docker) as of, anyio.create_task_group() as tasks:
        texts: list[str] = []

        async def one(thread: str, command: str) -> None:
            texts.append(await run(of, command, thread=thread))

        # The first command of each thread waits until the second one has run.
        waiting = "until [ -e go ]; do sleep 0.01; done; echo waited"
        for thread in ("t1", "t2"):
            tasks.start_soon(one, thread, waiting)
            tasks.start_soon(one, thread, "touch go; echo went")
        await eventually(lambda: len(texts) == 4)
        assert sorted(texts) == ["waited\n", "waited\n", "went\n", "went\n"]
        assert len(docker.runs) == 2
        assert len(docker.containers) == 2


async def test_a_timeout_kills_the_command_and_keeps_its_output(docker: FakeDocker) -> None:
    async with sandboxes(docker) as of:
        await run(of, "echo files stay > file")
        sleep = f"sleep 600.{uuid4().int}"
        command = f"{sleep} & setsid {sleep} & echo so far; echo problem >&2; {sleep}"
        text = await run(of, command, timeout_s=3)
        assert text.startswith("so far\n\nStd Error:\nproblem\n")
        assert "took longer than 3 s" in text
        assert "Exit Code: 124" in text
        await eventually(lambda: sleep.replace(" ", "\0") not in running_programs())
        assert len(docker.containers) == 1
        assert await run(of, "cat file") == "files stay\n"


async def test_cancellation_kills_the_command_and_nothing_else(docker: FakeDocker) -> None:
    workspace = docker.folder.parent / "home/threads/t1/user-data/workspace"
    async with sandboxes(docker) as of, anyio.create_task_group() as others:
        texts: list[str] = []

        async def other() -> None:
            texts.append(await run(of, "touch other; until [ -e go ]; do sleep 0.01; done; echo 1"))

        others.start_soon(other)
        async with anyio.create_task_group() as tasks:
            sleep = f"sleep 600.{uuid4().int}"
            tasks.start_soon(run, of, f"setsid {sleep} & touch started; {sleep}")
            await eventually(
                lambda: all((workspace / one).exists() for one in ("started", "other"))
            )
            tasks.cancel_scope.cancel()
        await eventually(lambda: sleep.replace(" ", "\0") not in running_programs())
        assert await run(of, "touch go") == "(no output)"
        await eventually(lambda: texts == ["1\n"])
        assert len(docker.runs) == 1


async def test_a_cancelled_turn_does_not_keep_its_thread_in_use(docker: FakeDocker) -> None:
    async with sandboxes(docker, idle_timeout_seconds=0.2) as provider:
        async with maintained(provider), anyio.create_task_group() as tasks:
            tasks.start_soon(run, provider, "touch started; sleep 600")
            workspace = docker.folder.parent / "home/threads/t1/user-data/workspace"
            await eventually((workspace / "started").exists)
            tasks.cancel_scope.cancel()
        async with maintained(provider):
            await eventually(lambda: not provider._containers)


async def test_a_dead_container_is_reported_and_replaced(docker: FakeDocker) -> None:
    async with sandboxes(docker) as of:
        await run(of, "echo 1")
        docker.call("rm", "--force", docker.containers[0])
        with pytest.raises(SandboxError, match="files are kept, try again"):
            await run(of, "echo 2")
        assert await run(of, "echo 3") == "3\n"


# --- starting --------------------------------------------------------------------------------------------------


async def test_docker_errors_are_logged_and_not_shown(
    docker: FakeDocker, caplog: pytest.LogCaptureFixture
) -> None:
    docker.set(fails="run")
    async with sandboxes(docker) as of:
        with pytest.raises(SandboxError) as caught:
            await run(of, "echo 1")
        assert "secret-path" not in caught.value.user_message
        assert "secret-path" in caplog.text
        docker.set()
        assert await run(of, "echo 1") == "1\n"


# --- resting ---------------------------------------------------------------------------------------------------


async def test_the_least_recently_used_container_is_evicted(
    docker: FakeDocker, caplog: pytest.LogCaptureFixture
) -> None:
    async with sandboxes(docker, replicas=2) as of:
        for thread in ("t1", "t2"):
            await run(of, "echo 1", thread=thread)
        first, second = (call[call.index("--name") + 1] for call in docker.runs)
        await run(of, "echo 1", thread="t3")
        assert first not in docker.containers
        assert second in docker.containers
        assert "in use" not in caplog.text
        wait = "until [ -e go ]; do sleep 0.01; done"
        threads = docker.folder.parent / "home/threads"
        with caplog.at_level(logging.WARNING):
            async with anyio.create_task_group() as tasks:
                for thread in ("t2", "t3", "t4"):  # all are busy: starts one more, and warns
                    tasks.start_soon(partial(run, of, wait, thread=thread))
                await eventually(lambda: len(docker.containers) == 3)
                for thread in ("t2", "t3", "t4"):
                    (threads / thread / "user-data/workspace/go").touch()
        assert "in use" in caplog.text


async def test_idle_containers_are_removed_and_recreated(docker: FakeDocker) -> None:
    async with sandboxes(docker, idle_timeout_seconds=0.2) as of, maintained(of):
        assert await run(of, "echo 1") == "1\n"
        await eventually(lambda: docker.containers == [])
        assert await run(of, "echo 2") == "2\n"


async def test_disabling_a_skill_keeps_containers_and_a_new_skill_replaces_them(
    docker: FakeDocker, tmp_path: Path
) -> None:
    mounts = [
        Mount(virtual=f"/mnt/skills/public/{name}", host=tmp_path / name, read_only=True)
        for name in ("a", "b")
    ]
    for mount in mounts:
        mount.host.mkdir()
    shared: list[Mount] = mounts[:1]
    config = SandboxConfig.model_validate(section(docker))
    built = build_sandbox_provider(config, ThreadStorage(tmp_path / "home"), lambda: shared)
    assert isinstance(built, DockerSandboxProvider)
    async with maintained(built):
        for wanted, starts in ((mounts[:1], 1), ([], 1), (mounts[:1], 1), (mounts, 2), ([], 2)):
            shared[:] = wanted
            assert await run(built, "echo 1") == "1\n"
            assert len(docker.runs) == starts
    await built.aclose()


async def test_containers_of_an_earlier_process_are_removed(docker: FakeDocker) -> None:
    config = SandboxConfig.model_validate(section(docker))
    left = DockerSandboxProvider(config, ThreadStorage(docker.folder.parent / "home"))
    for thread in ("t1", "t2"):
        await run(left, "echo 1", thread=thread)  # then the process crashes
    async with sandboxes(docker) as of:
        assert await run(of, "echo 2") == "2\n"
        async with maintained(of):
            await eventually(lambda: len(docker.containers) == 1)
            assert await run(of, "echo 3") == "3\n"
        assert len(docker.runs) == 3


async def test_containers_of_other_installations_are_ignored(docker: FakeDocker) -> None:
    config = SandboxConfig.model_validate(section(docker))
    other = DockerSandboxProvider(config, ThreadStorage(docker.folder.parent / "elsewhere"))
    await run(other, "echo 1")
    async with sandboxes(docker, idle_timeout_seconds=0.05) as of, maintained(of):
        await eventually(lambda: docker.calls[-1][0] == "ps")
        assert await run(of, "echo 2") == "2\n"
        assert len(docker.containers) == 2
    assert len(docker.containers) == 1


# --- in the agent ----------------------------------------------------------------------------------------------


async def test_the_agent_has_bash_in_a_container(docker: FakeDocker, tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(
        ModelReply(
            calls=(
                ToolCall(
                    name="bash", args={"command": "echo 42 > /mnt/user-data/outputs/a"}, id="1"
                ),
            )
        ),
        ModelReply(
            calls=(
                ToolCall(
                    name="present_files", args={"filepaths": ["/mnt/user-data/outputs/a"]}, id="2"
                ),
            )
        ),
        "Done.",
    )
    home = tmp_path / "parley"
    home.mkdir()
    with anyio.fail_after(90):
        async with open_agent(home, model, {"sandbox": section(docker)}) as opened:
            messages = await opened.say("Do it.")
            state = await opened.state()
            assert len(docker.containers) == 1
    assert [m.content for m in messages if m.type == "tool"] == [
        "(no output)",
        "Successfully presented files",
    ]
    assert state["sandbox"]["sandbox_id"].startswith("docker:")
    assert docker.containers == []
