"""Fake provisioner with DeerFlow's API, and the sandboxes it starts, with the API of agent-infra's AIO sandbox.

Both are strict: an unknown field, type or key is an error. A sandbox runs real commands in bubblewrap, so it has its
own /mnt and /tmp. Needs bubblewrap.
"""

import asyncio
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiohttp import BodyPartReader, web

API_KEY = "provisioner-key"
_SANDBOX_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,49}[a-z0-9])?")
_THREAD_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

TMP = "/tmp"  # noqa: S108 - in a sandbox

_CREATE = {"sandbox_id": str, "thread_id": str, "user_id": str}
_EXEC = {
    "session_id": str,
    "command": str,
    "exec_dir": str,
    "env": dict,
    "async_mode": bool,
    "timeout": (int, float),
    "hard_timeout": (int, float),
    "max_output_length": int,
}


_OUTPUT = {
    "session_id": str,
    "command_id": str,
    "offset": int,
    "stderr_offset": int,
    "wait": bool,
    "wait_timeout": (int, float),
}


@dataclass(eq=False)
class FakeSandbox:
    """One sandbox.

    Attributes:
        root: Its /mnt and /tmp.
        shared: A folder of this machine that it mounts as /mnt/user-data; None = none.
        unready: How many more times it answers that it is not ready.
        unready_shell: How many more times its shell fails.
        refused: A path of its API that fails with 500; "" = none.
        programs: A folder of the sandbox that is first on its PATH; "" = none.
        running: Commands that were started with `async_mode`, by id.
        commands: All commands, in order.
        sessions: Open sessions, with the process of each.
        requests: The paths of all requests.
    """

    root: Path
    shared: Path | None = None
    unready: int = 0
    unready_shell: int = 0
    refused: str = ""
    running: dict[str, "_Running"] = field(default_factory=dict)
    programs: str = ""
    url: str = ""
    commands: list[str] = field(default_factory=list)
    sessions: dict[str, asyncio.subprocess.Process | None] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    runner: web.AppRunner | None = None
    is_stopped: bool = False

    def path(self, virtual: str) -> Path:
        """Return the path on this machine of a path in the sandbox."""
        return self.root / virtual.removeprefix("/")

    async def start(self) -> None:
        for name in ("mnt", "tmp"):
            (self.root / name).mkdir(parents=True)
        app = web.Application(client_max_size=2**30, middlewares=[self._record])
        app.add_routes(
            [
                web.get("/v1/sandbox", self._describe),
                web.post("/v1/bash/exec", self._exec),
                web.post("/v1/bash/output", self._output),
                web.post("/v1/bash/kill", self._kill),
                web.post("/v1/bash/sessions/{id}/close", self._close),
                web.post("/v1/file/upload", self._upload),
                web.get("/v1/file/download", self._download),
            ]
        )
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.url = site.name

    async def stop(self) -> None:
        """End all commands. Requests that wait for one lose their connection."""
        self.is_stopped = True
        for session_id in list(self.sessions):
            await self._end(session_id)
        if self.runner is not None:
            await self.runner.cleanup()
        await asyncio.to_thread(shutil.rmtree, self.root, ignore_errors=True)

    @web.middleware
    async def _record(self, request: web.Request, handler: Any) -> web.StreamResponse:  # noqa: ANN401 - aiohttp's
        self.requests.append(request.path)
        if request.path == self.refused:
            return web.Response(status=500)
        answer: web.StreamResponse = await handler(request)
        if self.is_stopped and request.transport is not None:
            request.transport.abort()
        return answer

    async def _describe(self, request: web.Request) -> web.Response:
        if self.unready > 0:
            self.unready -= 1
            return web.Response(status=503)
        return web.json_response({"success": True, "home_dir": "/home/gem", "version": "1.9"})

    async def _exec(self, request: web.Request) -> web.Response:
        asked = checked(await request.json(), _EXEC, required={"command"})
        if self.unready_shell > 0:
            self.unready_shell -= 1
            return web.json_response({"success": False, "message": "no shell"}, status=500)
        session_id = asked.get("session_id")
        if session_id is None:
            session_id = uuid4().hex
            self.sessions[session_id] = None
        elif session_id not in self.sessions:
            return web.json_response({"success": False, "message": "no session"}, status=404)
        self.commands.append(asked["command"])
        process = await self._spawn(asked)
        self.sessions[session_id] = process
        if asked.get("async_mode"):
            command_id = uuid4().hex
            self.running[command_id] = _Running(process, asked.get("hard_timeout"))
            data = {"session_id": session_id, "command_id": command_id, "status": "running"}
            return web.json_response({"success": True, "data": data})
        status = "completed"
        reading = asyncio.ensure_future(process.communicate())
        done, _ = await asyncio.wait([reading], timeout=asked.get("hard_timeout"))
        if not done:
            status = "timed_out"
            _kill_group(process)
        out, err = await reading
        code = process.returncode or 0
        if session_id not in self.sessions:
            status = "killed"
        data = {
            "session_id": session_id,
            "command_id": uuid4().hex,
            "command": asked["command"],
            "status": status,
            "stdout": out.decode("utf-8", "replace"),
            "stderr": err.decode("utf-8", "replace"),
            "exit_code": code if status == "completed" else None,
        }
        return web.json_response({"success": True, "data": data})

    async def _output(self, request: web.Request) -> web.Response:
        asked = checked(await request.json(), _OUTPUT, required={"session_id"})
        if asked["session_id"] not in self.sessions:
            return web.json_response({"success": False, "message": "no session"}, status=404)
        running = self.running[asked["command_id"]]
        out_at, err_at = asked.get("offset", 0), asked.get("stderr_offset", 0)
        if asked.get("wait"):
            await running.wait_beyond(out_at, err_at, asked["wait_timeout"])
        out, err = bytes(running.out[out_at:]), bytes(running.err[err_at:])
        is_over = running.ended.is_set()
        data = {
            "session_id": asked["session_id"],
            "stdout": out.decode("utf-8", "replace"),
            "stderr": err.decode("utf-8", "replace"),
            "offset": out_at + len(out),
            "stderr_offset": err_at + len(err),
            "command": {
                "command_id": asked["command_id"],
                "status": running.status if is_over else "running",
                "exit_code": running.process.returncode if is_over else None,
            },
        }
        return web.json_response({"success": True, "data": data})

    async def _spawn(self, asked: Mapping[str, Any]) -> asyncio.subprocess.Process:
        binds = {"/mnt": self.path("/mnt"), TMP: self.path(TMP)}
        if self.shared is not None:
            binds["/mnt/user-data"] = self.shared
        folders = [word for path, host in binds.items() for word in ("--bind", str(host), path)]
        return await asyncio.create_subprocess_exec(
            *("bwrap", "--dev-bind", "/", "/", *folders, "--proc", "/proc", "--unshare-pid"),
            *("--die-with-parent", "--chdir", asked.get("exec_dir") or "/"),
            *("bash", "-c", asked["command"]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": self._path(), "LANG": "C.UTF-8", **(asked.get("env") or {})},
            start_new_session=True,
        )

    def _path(self) -> str:
        return ":".join(filter(None, (self.programs, os.environ["PATH"])))

    async def _kill(self, request: web.Request) -> web.Response:
        asked = checked(await request.json(), {"session_id": str, "signal": str})
        if asked["session_id"] not in self.sessions:
            return web.json_response({"success": False}, status=404)
        await self._end(asked["session_id"])
        return web.json_response({"success": True})

    async def _close(self, request: web.Request) -> web.Response:
        await self._end(request.match_info["id"])
        return web.json_response({"success": True})

    async def _end(self, session_id: str) -> None:
        process = self.sessions.pop(session_id, None)
        if process is not None and process.returncode is None:
            _kill_group(process)

    async def _upload(self, request: web.Request) -> web.Response:
        fields: dict[str, bytes] = {}
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            assert part.name in ("path", "file")
            fields[part.name] = bytes(await part.read())
        target = self.path(fields["path"].decode())
        await asyncio.to_thread(target.write_bytes, fields["file"])
        size = len(fields["file"])
        data = {"file_path": fields["path"].decode(), "file_size": size, "success": True}
        return web.json_response({"success": True, "data": data})

    async def _download(self, request: web.Request) -> web.StreamResponse:
        assert set(request.query) == {"path"}
        file = self.path(request.query["path"])
        return web.FileResponse(file) if file.is_file() else web.Response(status=404)


class _Running:
    """A running command, whose output is read as it arrives."""

    def __init__(self, process: asyncio.subprocess.Process, timeout_s: float | None) -> None:
        self.process = process
        self.out, self.err = bytearray(), bytearray()
        self.status = "completed"
        self.ended, self.news = asyncio.Event(), asyncio.Event()
        self._task = asyncio.ensure_future(self._read(timeout_s))

    async def wait_beyond(self, out_at: int, err_at: int, timeout_s: float) -> None:
        """Wait for more output or the end of the command."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                seen = (out_at, err_at)
                while (len(self.out), len(self.err)) == seen and not self.ended.is_set():
                    self.news.clear()
                    await self.news.wait()

    async def _read(self, timeout_s: float | None) -> None:
        pairs = ((self.process.stdout, self.out), (self.process.stderr, self.err))
        reading = asyncio.gather(*(self._copy(*pair) for pair in pairs), self.process.wait())
        done, _ = await asyncio.wait([reading], timeout=timeout_s)
        if not done:
            self.status = "timed_out"
            _kill_group(self.process)
            await reading
        self.ended.set()
        self.news.set()

    async def _copy(self, source: asyncio.StreamReader | None, target: bytearray) -> None:
        while source is not None and (piece := await source.read(4096)):
            target += piece
            self.news.set()


@dataclass(eq=False)
class FakeProvisioner:
    """The provisioner.

    Attributes:
        folder: Holds the sandboxes' folders.
        url: Its address.
        sandboxes: The sandboxes that exist, by id.
        created: The body of each request that created a sandbox.
        deleted: The ids of deleted sandboxes.
        status: The status of each sandbox.
        errors: How many more requests fail with 500.
        prepared: Settings of the next sandboxes.
    """

    folder: Path
    url: str = ""
    sandboxes: dict[str, FakeSandbox] = field(default_factory=dict)
    created: list[dict[str, str]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    status: str = "Running"
    errors: int = 0
    prepared: dict[str, Any] = field(default_factory=dict)

    @property
    def sandbox(self) -> FakeSandbox:
        """The only sandbox."""
        (found,) = self.sandboxes.values()
        return found

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Any) -> web.StreamResponse:  # noqa: ANN401 - aiohttp's
        if request.headers.get("X-API-Key") != API_KEY:
            return web.Response(status=401, text="Unauthorized")
        if self.errors > 0:
            self.errors -= 1
            return web.json_response({"detail": "Pod creation failed"}, status=500)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _create(self, request: web.Request) -> web.Response:
        asked = checked(await request.json(), _CREATE, required={"sandbox_id"})
        sandbox_id = asked["sandbox_id"]
        if not _SANDBOX_ID.fullmatch(sandbox_id) or not _THREAD_ID.fullmatch(asked["thread_id"]):
            raise web.HTTPUnprocessableEntity
        if sandbox_id not in self.sandboxes:
            self.created.append(asked)
            root = self.folder / f"{sandbox_id}-{len(self.created)}"
            self.sandboxes[sandbox_id] = FakeSandbox(root, **self.prepared)
            await self.sandboxes[sandbox_id].start()
        return web.json_response(self._shown(sandbox_id))

    async def _get(self, request: web.Request) -> web.Response:
        sandbox_id = request.match_info["id"]
        if sandbox_id not in self.sandboxes:
            return web.json_response({"detail": "not found"}, status=404)
        return web.json_response(self._shown(sandbox_id))

    async def _delete(self, request: web.Request) -> web.Response:
        sandbox_id = request.match_info["id"]
        await self.lose(sandbox_id)
        self.deleted.append(sandbox_id)
        return web.json_response({"ok": True, "sandbox_id": sandbox_id})

    async def _list(self, request: web.Request) -> web.Response:
        shown = [self._shown(sandbox_id) for sandbox_id in self.sandboxes]
        return web.json_response({"sandboxes": shown, "count": len(shown)})

    async def lose(self, sandbox_id: str) -> None:
        """Stop a sandbox, as happens when a cluster removes a node."""
        if (sandbox := self.sandboxes.pop(sandbox_id, None)) is not None:
            await sandbox.stop()

    def _shown(self, sandbox_id: str) -> dict[str, str]:
        url = self.sandboxes[sandbox_id].url
        return {"sandbox_id": sandbox_id, "sandbox_url": url, "status": self.status}


@asynccontextmanager
async def open_provisioner(folder: Path) -> AsyncIterator[FakeProvisioner]:
    """Start a provisioner. At the end, stop it and its sandboxes."""
    made = FakeProvisioner(folder)
    app = web.Application(middlewares=[made._authorize])
    app.add_routes(
        [
            web.get("/api/sandboxes", made._list),
            web.post("/api/sandboxes", made._create),
            web.get("/api/sandboxes/{id}", made._get),
            web.delete("/api/sandboxes/{id}", made._delete),
        ]
    )
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = site.name
    try:
        yield made
    finally:
        for sandbox_id in list(made.sandboxes):
            await made.lose(sandbox_id)
        await runner.cleanup()


def checked(
    body: object, fields: Mapping[str, Any], required: set[str] | None = None
) -> dict[str, Any]:
    """Return a JSON body if it has exactly the right fields. By default, all of them are `required`."""
    if not isinstance(body, dict):
        raise web.HTTPUnprocessableEntity(text="no object")
    for key, value in body.items():
        if key not in fields or not isinstance(value, fields[key]):
            raise web.HTTPUnprocessableEntity(text=f"{key}: {value!r}")
    if missing := (set(fields) if required is None else required) - set(body):
        raise web.HTTPUnprocessableEntity(text=f"missing: {missing}")
    return dict(body)


def _kill_group(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
