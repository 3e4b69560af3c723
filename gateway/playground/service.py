"""The service of the playground: a `parley serve` with its own folder, which can be killed and started again."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from secrets import token_urlsafe
from subprocess import DEVNULL, STDOUT
from typing import Any

import anyio
import anyio.abc
import httpx
import yaml

from agent.config import DEMO_MODEL_CLASS
from bus.config import BusConfig
from gateway.config import Config
from gateway.config_file import read_yaml
from gateway.playground import child
from gateway.playground.model import DEFAULT_URLS
from gateway.playground.ports import free_port

DATA = "playground-data"
"""The data folder of the service, below the playground's folder."""

COPIED = ("agents", "skills")
"""Folders of the data folder that belong to the operator's agents."""

LEFT_OUT = ("database", "storage", "node", "gateway", "channels", "log_format")
"""Sections of the operator's configuration that the playground does not use."""

NOT_INHERITED = frozenset({"PARLEY_CONFIG", "PARLEY_ADMIN_TOKEN"})

POLL_S = 0.25
_STOP_S = 12.0

Line = Mapping[str, Any]


class PlaygroundService:
    """One folder and configuration with a process.

    Args:
        folder: A new folder.
        config: The operator's configuration.
        on_line: Called with each line of the log.
        changed: Called after each change of `state`.

    Attributes:
        state: starting, running, stopped, killed, or ended with its exit code.
        channels: The state of each channel.
        upstreams: The base URL of each of the operator's models that can be passed on to.
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        *,
        on_line: Callable[[Line], object],
        changed: Callable[[], object],
    ) -> None:
        self.token = token_urlsafe(24)
        self.port = free_port()
        self.state = "stopped"
        self.channels: dict[str, str] = {}
        self.upstreams: dict[str, str] = {}
        self._folder = folder
        self._operator = config
        self._on_line = on_line
        self._changed = changed
        self._process: anyio.abc.Process | None = None

    @property
    def url(self) -> str:
        """The address of the service."""
        return f"http://127.0.0.1:{self.port}"

    def write_config(self, channels: Mapping[str, Any], model_url: str) -> None:
        """Write the configuration. Blocking.

        Args:
            channels: The sections of the simulated platforms.
            model_url: The address under which models are called, without their names.
        """
        source = self._operator.source
        tree = read_yaml(source).tree if source else {}
        own = tree.get("channels") or {}
        kept = {key: value for key, value in own.items() if key in BusConfig.model_fields}
        kept = {key: value for key, value in kept.items() if not key.endswith("_url")}
        whole = {key: value for key, value in tree.items() if key not in LEFT_OUT}
        whole["config_version"] = 1
        whole["log_format"] = "json"
        whole["gateway"] = {"port": self.port, "admin_token": self.token}
        whole["channels"] = {**kept, **channels}
        whole |= self._models(tree, model_url)
        if source is not None:
            self._link(source)
        for name in COPIED:
            if (self._operator.files / name).is_dir():
                shutil.copytree(self._operator.files / name, self._folder / DATA / name)
        text = yaml.safe_dump(whole, allow_unicode=True, sort_keys=False)
        (self._folder / "config.yaml").write_text(text, "utf-8")

    def _models(self, tree: Mapping[str, Any], model_url: str) -> dict[str, Any]:
        """Return the models. The playground is put in front of models that are called over HTTP."""
        entries = [dict(one) for one in tree.get("models") or ()]
        if not entries or entries[0].get("use") == DEMO_MODEL_CLASS:
            demo = {
                "name": "demo", "display_name": "Demo", "use": "langchain_openai:ChatOpenAI", "model": "demo",
                "api_key": "playground", "base_url": f"{model_url}/demo",
            }  # fmt: skip
            return {"models": [demo], "memory": {"enabled": False}}
        for entry in entries:
            use = str(entry.get("use"))
            url = entry.get("base_url") or DEFAULT_URLS.get(use)
            if url:
                self.upstreams[str(entry["name"])] = self._resolved(str(url))
                entry["base_url"] = f"{model_url}/{entry['name']}"
        return {"models": entries}

    def _resolved(self, url: str) -> str:
        return self._operator.environment.get(url[1:], url) if url.startswith("$") else url

    def _link(self, source: Path) -> None:
        """Link the files beside the operator's configuration: graphs, skills, `.env`, the file of MCP servers."""
        for found in source.parent.iterdir():
            is_taken = found.name in {source.name, "config.yaml", DATA}
            if not is_taken and found != self._operator.home:
                (self._folder / found.name).symlink_to(found)

    async def start(self) -> None:
        """Start the process."""
        if self._process is not None and self._process.returncode is None:
            return
        environment = {
            **{k: v for k, v in self._operator.environment.items() if k not in NOT_INHERITED},
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "PARLEY_HOME": str(self._folder / DATA),
            "PYTHONUNBUFFERED": "1",
        }
        # A killed playground must not leave its service behind.
        command = [sys.executable, "-I", "-S", child.__file__, str(os.getpid())]
        command += [sys.executable, "-P", "-m", "gateway", "serve", "--no-chat"]
        command += ["--config", str(self._folder / "config.yaml")]
        self._set("starting")
        self._process = await anyio.open_process(
            command, env=environment, cwd=self._folder, stdin=DEVNULL, stderr=STDOUT
        )

    async def kill(self) -> None:
        """Kill the process, as a crash does."""
        await self._end(signal.SIGKILL, "killed")

    async def stop(self) -> None:
        """Stop the process, as an operator does."""
        await self._end(signal.SIGTERM, "stopped")

    async def _end(self, how: signal.Signals, state: str) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        self._process.send_signal(how)
        with anyio.move_on_after(_STOP_S):
            await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
        self._set(state)

    async def run(self) -> None:
        """Read the log and ask for the state until canceled. Then kill the process."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch)
                while True:
                    await self._read_log()
                    await anyio.sleep(POLL_S)
        finally:
            with anyio.CancelScope(shield=True):
                await self.kill()

    async def _read_log(self) -> None:
        process = self._process
        if process is None or process.stdout is None or process.returncode is not None:
            return
        rest = b""
        async for piece in process.stdout:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self._on_line(_parsed(line))
        await process.wait()
        if process.returncode not in {0, -signal.SIGKILL, -signal.SIGTERM}:
            self._set(f"ended with exit code {process.returncode}")

    async def _watch(self) -> None:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=5, trust_env=False
        ) as client:
            while True:
                await anyio.sleep(POLL_S)
                if self._process is not None and self._process.returncode is None:
                    await self._ask(client)
                elif self.channels:
                    self.channels = {}
                    self._changed()

    async def _ask(self, client: httpx.AsyncClient) -> None:
        try:
            response = await client.get("/api/channels")
            found = response.json()["channels"]
        except (httpx.HTTPError, ValueError, KeyError):
            return
        channels = {name: one["state"] for name, one in found.items() if one["enabled"]}
        if channels != self.channels:
            self.channels = channels
            self._changed()
        self._set("running")

    def _set(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self._changed()


def _parsed(line: bytes) -> Line:
    text = line.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except ValueError:
        return {"message": text}
    return found if isinstance(found, dict) else {"message": text}
