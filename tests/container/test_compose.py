"""docker-compose.yaml, run by the real Compose: its profiles answer, and keep conversations.

`.ci/container` sets PARLEY_TEST_COMPOSE (the command). Where no registry has these images, it also sets PARLEY_POSTGRES
and PARLEY_NGINX. The ports are those of the file.
"""

import os
import shlex
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import anyio
import httpx
import pytest
import yaml

from tests.eventually import eventually
from tests.fakes.nginx import write_certificate
from tests.journeys.service import ROOT

COMPOSE = shlex.split(os.environ.get("PARLEY_TEST_COMPOSE", ""))
TOKEN = "a-token-of-the-administrator"
UP_S = 120

pytestmark = pytest.mark.skipif(
    not COMPOSE, reason="PARLEY_TEST_COMPOSE is not set: `ENGINE=docker .ci/container` sets it"
)


class Project:
    """The repository's compose file in a separate folder."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self._name = f"parley-test-{uuid4().hex[:8]}"
        self._options = options

    async def run(self, *arguments: str) -> str:
        """Run a command of Compose, and return its output. If it fails, the error contains the output."""
        command = [
            *COMPOSE, "--project-name", self._name, "--project-directory", str(self.folder),
            *self._options, *arguments,
        ]  # fmt: skip
        with anyio.fail_after(UP_S):
            done = await anyio.run_process(command, check=False, stderr=subprocess.STDOUT)
        output = done.stdout.decode()
        assert done.returncode == 0, output
        return output

    async def up(self, *arguments: str) -> None:
        """Start everything. Return when it is healthy."""
        await self.run("up", "--detach", "--no-build", "--wait", *arguments)


@asynccontextmanager
async def project(folder: Path, *options: str) -> AsyncIterator[Project]:
    """Prepare the folder as described in docs/howto/run-in-docker.md. Remove the containers and volumes at the end."""
    copy_files(folder)
    found = Project(folder, *options)
    try:
        yield found
    finally:
        with anyio.CancelScope(shield=True):
            await found.run("down", "--volumes", "--timeout", "15")


def copy_files(folder: Path) -> None:
    """Copy the files that Compose reads, and write the file with the secrets."""
    folder.chmod(0o755)
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    shutil.copy(ROOT / "docker-compose.yaml", folder)
    (folder / ".env").write_text(f"PARLEY_ADMIN_TOKEN={TOKEN}\n")


def client(url: str, verify: ssl.SSLContext | bool = True) -> httpx.AsyncClient:
    """Return a client of a service, as the administrator."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.AsyncClient(
        base_url=url, headers=headers, verify=verify, trust_env=False, timeout=30
    )


async def say(service: httpx.AsyncClient, text: str, thread_id: str | None = None) -> str:
    """Send a message to the agent through the LangGraph API, and return the thread's ID."""
    if thread_id is None:
        created = (await service.post("/api/langgraph/threads", json={})).raise_for_status()
        thread_id = str(created.json()["thread_id"])
    body = {
        "assistant_id": "lead_agent",
        "input": {"messages": [{"role": "human", "content": text}]},
    }
    answer = await service.post(f"/api/langgraph/threads/{thread_id}/runs/wait", json=body)
    assert text in answer.raise_for_status().json()["messages"][-1]["content"]
    return thread_id


async def said(service: httpx.AsyncClient, thread_id: str) -> list[str]:
    """Return what people said in a thread."""
    found = await service.get(f"/api/langgraph/threads/{thread_id}/state")
    messages = found.raise_for_status().json()["values"]["messages"]
    return [message["content"] for message in messages if message["type"] == "human"]


def write_config(folder: Path, config: Mapping[str, object]) -> None:
    """Write config.yaml and mount it, as described in the compose file's comment."""
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({"config_version": 1, **config}))
    file.chmod(0o644)
    compose = folder / "docker-compose.yaml"
    text = compose.read_text()
    assert "# - ./config.yaml" in text
    compose.write_text(text.replace("# - ./config.yaml", "- ./config.yaml"))


async def test_the_service_answers_behind_tls_and_keeps_its_conversations(tmp_path: Path) -> None:
    async with project(tmp_path, "--profile", "proxy") as compose:
        trusted = {"trusted_proxies": ["172.16.0.0/12"], "allowed_hosts": ["127.0.0.1"]}
        write_config(tmp_path, {"gateway": trusted})
        (tmp_path / "tls").mkdir()
        certificate = write_certificate(tmp_path / "tls")
        await compose.up()
        context = ssl.create_default_context(cafile=certificate)
        async with client("https://127.0.0.1", context) as proxied:
            thread_id = await say(proxied, "Remember the ferry.")
        await compose.run("down", "--timeout", "15")
        await compose.up()
        async with client("http://127.0.0.1:8001") as direct:
            assert await said(direct, thread_id) == ["Remember the ferry."]
        assert "Traceback" not in await compose.run("logs", "parley")
        assert "No problems found." in await compose.run("exec", "-T", "parley", "parley", "check")


async def test_two_nodes_share_their_work(tmp_path: Path) -> None:
    async with (
        project(tmp_path, "--profile", "scale") as compose,
        client("http://localhost:8011") as first,
        client("http://localhost:8012") as second,
    ):
        await compose.up("--scale", "parley=0")
        thread_id = await say(first, "Remember the ferry.")
        await say(second, "And the island.", thread_id)
        await compose.run("kill", "--signal", "SIGKILL", "node-1")

        async def goes_on() -> bool:
            response = await second.get("/health/ready")
            return response.status_code == httpx.codes.OK

        await eventually(goes_on, bool)
        await say(second, "Go on.", thread_id)
        texts = await said(second, thread_id)
        assert texts == ["Remember the ferry.", "And the island.", "Go on."]
        assert "Traceback" not in await compose.run("logs", "node-2")
