"""Runs each console block of the documentation in a shell, next to a running service."""

import io
import os
import re
import shlex
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx
import pytest

from gateway.playground.telegram.server import TelegramServer
from tests.eventually import eventually
from tests.fork_server import forked_program
from tests.journeys.service import ROOT, Service, serving
from tests.journeys.test_strangers import code_of
from tests.people.platforms import PlatformServers
from tests.people.telegram import TelegramPrivateUser

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NEEDS = {
    r"make ": "installs from registries: .ci/install and .ci/run",
    r"git ": "changes the checkout",
    r"python3 -m venv|/opt/parley/|uv |parley serve": "installs a wheel: .ci/install",
    r"\.venv/bin/python -m pip ": "installs from registries",
    r"\.venv/bin/python -m pytest": "the suite itself",
    r"docker ": "a container engine: .ci/container",
    r"systemctl|journalctl|\.venv/bin/parley service": "systemd: tests/gateway/test_system_service.py",
    r"(export TELEGRAM.*|\.venv/bin/parley )init": "the platforms themselves: tests/gateway/test_init.py",
    r"export TELEGRAM_BOT_TOKEN": "what `parley init` reads: tests/gateway/test_init.py",
    r"\.venv/bin/parley restore": "a service that is stopped: tests/journeys/test_backup.py",
    r"curl .*batch=BATCH": "the batch of a discard: tests/gateway/test_delivery_routes.py",
    r"curl .*/takeover": "the ID of a thread: tests/gateway/test_takeover_routes.py",
    r".*parley playground": "it runs until it is stopped: tests/journeys/test_playground.py",
    r".*parley replay": "it needs a recording of the page: tests/journeys/test_playground.py",
    r".*parley migrate": "PostgreSQL: tests/journeys/test_migrate.py",
    r".*\.venv-peers/": "LangGraph's own server: tests/journeys/test_langgraph_dev.py",
}
"""Prefixes of commands that are not run here, with the reason."""


def blocks(page: Path) -> list[list[str]]:
    """Return the commands in each console block of a page."""
    found = re.findall(r"^```console\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    return [re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.M) for block in found]


def left_out(line: str) -> str | None:
    return next((pattern for pattern in NEEDS if re.match(pattern, line)), None)


def test_commands_that_are_not_run_are_still_documented() -> None:
    lines = [line for page in PAGES for block in blocks(page) for line in block]
    assert {left_out(line) for line in lines} - {None} == set(NEEDS)
    assert sum(left_out(line) is None for line in lines) > 30


@dataclass
class Reader:
    """A person who types a page's commands in a folder like a checkout."""

    service: Service
    telegram: TelegramServer
    client: httpx.AsyncClient
    strangers: int = 7000

    @property
    def folder(self) -> Path:
        return self.service.home.parent

    @property
    def typed(self) -> Path:
        return self.folder / "typed.txt"

    @property
    def program(self) -> Path:
        return self.folder / ".venv/bin/parley"

    def prepare(self) -> None:
        """Restore the folders to their state in a checkout."""
        self.program.parent.mkdir(parents=True)
        forked = shlex.join(forked_program("gateway"))
        self.program.write_text(f'#!/bin/sh\nexec {forked} "$@"\n')
        self.program.chmod(0o755)
        (self.folder / ".parley").symlink_to(self.service.home)
        self.typed.write_text("write a file notes.txt saying buy milk\n")

    async def type(self, lines: list[str], exports: list[str]) -> None:
        """Run the lines of a block. Each must succeed."""
        for line in lines:
            if left_out(line):
                continue
            ours = await self._as_here(line)
            if line.startswith("export "):
                exports.append(ours)
                continue
            with self.typed.open("rb") as typed:
                done = await anyio.run_process(
                    ["sh", "-ec", "\n".join([*exports, ours])],
                    stdin=typed,  # A file, not a pipe, because most commands end without reading it.
                    check=False,
                    cwd=self.folder,
                    env={
                        "PATH": os.environ["PATH"],
                        "HOME": str(self.folder),
                        "PYTHONPATH": str(ROOT),
                    },
                )
            assert done.returncode == 0, (line, done.stdout.decode(), done.stderr.decode())

    async def _as_here(self, line: str) -> str:
        """Return a line in which existing names replace the page's examples."""
        examples: dict[str, Callable[[], object]] = {
            "K7MW3XQZ": self._pairing_code,
            "outbox/17": self._failed_delivery,
            "telegram 123456789": self._approved_person,
            '"THREAD"': self._thread_with_a_skill,
        }
        for example, make in examples.items():
            if example in line:
                line = line.replace(example, str(await make()))  # type: ignore[misc]
        line = line.replace("127.0.0.1:8001", f"127.0.0.1:{self.service.port}")
        return line.replace("/var/backups/", "").replace("curl ", "curl -sS --fail-with-body ")

    async def _pairing_code(self) -> str:
        self.strangers += 1
        stranger = TelegramPrivateUser(self.telegram, user=self.strangers)
        await stranger.send("hello")
        return await code_of(stranger)

    async def _approved_person(self) -> str:
        await self.client.post(f"/api/channels/pairings/{await self._pairing_code()}/approve")
        return f"telegram {self.strangers}"

    async def _failed_delivery(self) -> str:
        await self._approved_person()
        self.telegram.fail("sendMessage", status=400, description="Bad Request: no rights")
        await TelegramPrivateUser(self.telegram, user=self.strangers).send("hello")

        async def failed() -> list[int]:
            answer = await self.client.get("/api/channels/outbox", params={"state": "failed"})
            return [row["id"] for row in answer.json()["rows"]]

        return f"outbox/{(await eventually(failed))[0]}"

    async def _thread_with_a_skill(self) -> str:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as content:
            text = "---\nname: release-notes\ndescription: Writes them.\n---\nWrite them.\n"
            content.writestr("SKILL.md", text)
        thread = (await self.client.post("/api/threads", json={})).json()["thread_id"]
        files = {"files": ("release-notes.skill", archive.getvalue())}
        sent = await self.client.post(f"/api/threads/{thread}/uploads", files=files)
        assert sent.is_success, sent.text
        return f'"{thread}"'


@pytest.mark.timeout(300)
async def test_documented_commands_work(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is missing")
    async with PlatformServers() as platforms:
        platforms.slack.workspace.channel("C012AB3CD", kind="channel", members=set())
        telegram = {k: v for k, v in platforms.channels["telegram"].items() if k != "dm_policy"}
        config = {
            "skills": {"scan": "none"},  # The demo model cannot review a skill.
            "channels": {"slack": platforms.channels["slack"], "telegram": telegram},
        }
        async with (
            serving(tmp_path, config, "slack", "telegram") as service,
            service.client() as client,
        ):
            reader = Reader(service, platforms.telegram, client)
            reader.prepare()
            await reader.type(
                [".venv/bin/parley chat"], []
            )  # This is how the first tutorial begins.
            for page in PAGES:
                exports: list[str] = []
                for block in blocks(page):
                    await reader.type(block, exports)
