"""The image is read-only, unprivileged and healthy on any port. It answers, runs commands where allowed, and stops
cleanly.

`.ci/container` builds an image and runs these tests with it. PARLEY_TEST_IMAGE names the image. PARLEY_TEST_ENGINE is
the command of the container engine with the options that this machine needs, such as `podman --runtime runc`. For the
Docker sandbox, PARLEY_TEST_SOCKET is the engine's socket, PARLEY_TEST_DOCKER is a `docker` program that runs in the
image, and PARLEY_TEST_SANDBOX_IMAGE is an image with bash.
"""

import os
import shlex
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import httpx
import pytest
import yaml

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.journeys.service import ROOT, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers
from tests.ports import free_port

IMAGE = os.environ.get("PARLEY_TEST_IMAGE", "")
ENGINE = shlex.split(os.environ.get("PARLEY_TEST_ENGINE", "docker"))
RUN_OPTIONS = shlex.split(os.environ.get("PARLEY_TEST_RUN_OPTIONS", ""))

SOCKET = os.environ.get("PARLEY_TEST_SOCKET", "")
DOCKER = os.environ.get("PARLEY_TEST_DOCKER", "")
SOCKET_GROUP = str(Path(SOCKET).stat().st_gid) if SOCKET else ""
SANDBOX_IMAGE = os.environ.get("PARLEY_TEST_SANDBOX_IMAGE", "")

pytestmark = pytest.mark.skipif(
    not IMAGE, reason="PARLEY_TEST_IMAGE names no image: .ci/container builds one"
)

HARDENED = (
    "--read-only", "--tmpfs=/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
)  # fmt: skip
"""The same as in docker-compose.yaml."""

UNMASKED = "systempaths=unconfined" if Path(ENGINE[0]).name == "docker" else "unmask=ALL"
RELAXED = ("--security-opt", "seccomp=unconfined", "--security-opt", UNMASKED)
"""The options of Docker or podman that bubblewrap needs."""


class Container:
    """A running container."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port

    async def execute(self, *command: str) -> tuple[int, str]:
        """Run a command in the container, and return its exit code and output."""
        done = await engine("exec", self.name, *command)
        return done.returncode, (done.stdout + done.stderr).decode()

    async def logs(self) -> str:
        done = await engine("logs", self.name)
        return (done.stdout + done.stderr).decode()

    async def is_healthy(self) -> bool:
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
                found = await client.get(f"http://127.0.0.1:{self.port}/api/models")
        except httpx.TransportError:
            return False
        return found.status_code == 401


async def engine(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the container engine."""
    return await anyio.run_process([*ENGINE, *arguments], check=False)


def write_readable(file: Path, text: str) -> None:
    """Write a file that every user can read."""
    file.write_text(text)
    file.chmod(0o644)
    for folder in (file.parent, *file.parents[1:3]):
        folder.chmod(0o755)


@asynccontextmanager
async def container(
    folder: Path, config: dict[str, Any], *options: str
) -> AsyncIterator[Container]:
    """Run the image with a configuration, on this machine's network."""
    running = Container(f"parley-test-{uuid4().hex[:12]}", free_port())
    gateway = {"host": "127.0.0.1", "port": running.port}
    file = folder / "config.yaml"
    write_readable(file, yaml.safe_dump({"config_version": 1, **config, "gateway": gateway}))
    started = await engine(
        "run", "--detach", "--name", running.name, "--network", "host", *RUN_OPTIONS, *HARDENED, *options,
        "--volume", f"{file}:/app/config.yaml:ro", IMAGE, "serve",
    )  # fmt: skip
    assert started.returncode == 0, started.stderr.decode()
    try:
        await eventually(running.is_healthy, bool, within_s=60)
        yield running
    finally:
        with anyio.CancelScope(shield=True):
            await engine("rm", "--force", "--volumes", running.name)


def telegram_user(platforms: PlatformServers) -> ChatUser:
    return next(user for user in platforms.users if user.channel == "telegram")


async def test_it_answers_as_an_unprivileged_user_and_stops_cleanly(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with container(tmp_path, config) as running:
            user = telegram_user(platforms)
            await user.send("hi")
            await user.expect_messages("You said: hi")
            assert (await running.execute("id", "-u"))[1].strip() == "10001"
            code, _ = await running.execute("touch", "/app/x")
            assert code == 1
            code, output = await running.execute("parley", "health")
            assert (code, '"healthy"' in output) == (0, True)
            # Commands are refused rather than run unprotected, and the agent is offered no shell.
            code, report = await running.execute("parley", "check")
            assert "no shell" in report
            assert "run-in-docker.md" in report
            offered = {tool["function"]["name"] for tool in model.requests[0].body["tools"]}
            assert "bash" not in offered
            assert "read_file" in offered
            stopped = await engine("stop", "--time", "15", running.name)
            assert stopped.returncode == 0
            state = await engine("inspect", "--format", "{{.State.ExitCode}}", running.name)
            assert state.stdout.strip() == b"0"
            assert "Traceback" not in await running.logs()
        assert platforms.violations == []


async def test_commands_run_in_bubblewrap_where_the_profile_allows_it(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with container(tmp_path, config, *RELAXED):
            command = "id -u; ls /proc | grep -c '^[0-9]'; cat /data/admin_token; echo done"
            model.reply(
                ModelReply(calls=(ToolCall("bash", {"command": command, "description": "look"}),)),
                ModelReply(text="Looked."),
            )
            user = telegram_user(platforms)
            await user.send("look around")
            await user.expect_messages("Looked.")
            result = str(model.requests[1].body["messages"][-1]["content"])
            assert "done" in result
            # It sees neither the container's data nor its processes.
            assert "No such file" in result
            assert int(result.split()[1]) < 10
        assert platforms.violations == []


@pytest.mark.skipif(
    not (SOCKET and DOCKER and SANDBOX_IMAGE),
    reason="PARLEY_TEST_SOCKET, PARLEY_TEST_DOCKER and PARLEY_TEST_SANDBOX_IMAGE are not set",
)
async def test_commands_run_in_containers_that_the_container_starts(tmp_path: Path) -> None:
    """As in deploy/compose/docker-sandbox.yaml, but with the `docker` program mounted instead of its image."""
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 10001, 10001)
    options = (
        *("--group-add", SOCKET_GROUP),
        *("--volume", f"{SOCKET}:/var/run/docker.sock"),
        *("--volume", f"{DOCKER}:/usr/local/bin/docker:ro"),
        *("--volume", f"{data}:/data"),
    )
    sandbox = {
        "use": "docker",
        "docker": {
            "image": SANDBOX_IMAGE,
            "path_map": {"/data": str(data), "/app/skills": str(ROOT / "skills")},
        },
    }
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {
            **with_model(model.base_url),
            "channels": platforms.channels,
            "sandbox": sandbox,
        }
        async with container(tmp_path, config, *options) as running:
            command = "id -u; ls /data /mnt/skills; echo kept > kept.txt; hostname"
            model.reply(
                ModelReply(calls=(ToolCall("bash", {"command": command, "description": "look"}),)),
                ModelReply(calls=(ToolCall("read_file", {"path": "/mnt/user-data/workspace/kept.txt",
                                                         "description": "read"}),)),
                ModelReply(text="Looked."),
            )  # fmt: skip
            user = telegram_user(platforms)
            await user.send("look around")
            await user.expect_messages("Looked.", within_s=60)
            result = str(model.requests[1].body["messages"][-1]["content"])
            assert result.splitlines()[0] == "1000", result
            assert "No such file" in result  # Parley's data
            assert "public" in result
            assert "kept" in str(model.requests[2].body["messages"][-1]["content"])
            started = await engine("ps", "--quiet", "--filter", f"ancestor={SANDBOX_IMAGE}")
            assert started.stdout.strip()
            assert (await engine("stop", "--time", "15", running.name)).returncode == 0
            left = await engine("ps", "--quiet", "--filter", f"ancestor={SANDBOX_IMAGE}")
            assert not left.stdout.strip()
        assert platforms.violations == []
