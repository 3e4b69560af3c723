"""HTTP clients of a provisioner, which starts sandboxes, and of the sandboxes it starts (agent-infra's AIO sandbox).

Everything that a sandbox sends is untrusted, because the agent's commands run in it. Responses are read up to a limit.
"""

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

import anyio
import httpx

from agent.errors import SandboxError, SandboxLost
from agent.sandbox.process import TIMED_OUT
from agent.sandbox.result import CommandResult, OutputTail

log = logging.getLogger(__name__)

CALL_S = 30.0
"""Time limit of one request, seconds. DeerFlow's provisioner waits up to 10 s for a sandbox's address."""

FOLLOW_S = 10.0
"""How long one request waits for new output of a running command, seconds."""

SCRIPT_S = 300.0
"""Time limit of a script that copies a thread's files, seconds: 2 GB at 7 MB/s."""

MAX_RESPONSE_BYTES = 16_000_000
MAX_OUTPUT_CHARS = 2_000_000
"""Maximum stdout and stderr of a command that the sandbox returns, characters. It drops the middle of longer output."""

CHUNK_BYTES = 256 * 1024

SCRATCH = "/tmp/.parley"  # noqa: S108 - inside the sandbox, which belongs to one thread
"""Parley's folder in a sandbox."""

NO_ADDRESS = (
    "sandbox.provisioner.url: set the provisioner's address, which sandbox.use: provisioner needs"
)

_TOUCH = f"mkdir -p {SCRATCH} && touch {SCRATCH}/used"
_IDLE = f'echo "$(($(date +%s) - $(stat -c %Y {SCRATCH}/used)))"'
_UNREACHABLE = "the sandbox provisioner does not respond; see the log"


def open_http_client() -> httpx.AsyncClient:
    """Return a client without proxies, because provisioners and sandboxes are in the operator's network. Blocking."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    return httpx.AsyncClient(timeout=CALL_S, limits=limits, trust_env=False)


class ProvisionerClient:
    """Starts and deletes sandboxes.

    Args:
        http: Sends the requests; the caller closes it.
        url: The provisioner's address.
        api_key: Its key; "" = none.
    """

    def __init__(self, http: httpx.AsyncClient, url: str, api_key: str) -> None:
        self._http = http
        self._url = f"{url.rstrip('/')}/api/sandboxes"
        self._headers = {"X-API-Key": api_key} if api_key else {}

    async def create(self, sandbox_id: str, thread_id: str) -> str:
        """Start a sandbox unless it exists. Return its address. The sandbox may not be ready yet.

        Raises:
            SandboxLost: No response, or a server error: try again.
            SandboxError: The provisioner refused the request.
        """
        wanted = {"sandbox_id": sandbox_id, "thread_id": thread_id}
        answer = await self._call("POST", self._url, json=wanted)
        return _address(answer)

    async def status(self, sandbox_id: str) -> str:
        """Return the status of a sandbox, such as `Pending`, `Running` or `Failed`; `NotFound` if it does not exist.

        Raises:
            SandboxError: See `create`.
        """
        answer = await self._call("GET", f"{self._url}/{sandbox_id}", if_missing={})
        return str(answer.get("status") or "NotFound")

    async def list_addresses(self) -> dict[str, str]:
        """Return the addresses of all sandboxes by id. Raises SandboxError."""
        listed = (await self._call("GET", self._url)).get("sandboxes")
        found: dict[str, str] = {}
        for one in listed if isinstance(listed, list) else ():
            with contextlib.suppress(SandboxError, AttributeError):
                found[str(one.get("sandbox_id"))] = _address(one)
        return found

    async def delete(self, sandbox_id: str) -> None:
        """Delete a sandbox, whether or not it exists. Raises SandboxError."""
        await self._call("DELETE", f"{self._url}/{sandbox_id}", if_missing={})

    async def _call(
        self,
        method: str,
        url: str,
        *,
        if_missing: Mapping[str, Any] | None = None,
        json: object = None,
    ) -> Mapping[str, Any]:
        try:
            response = await self._http.request(method, url, json=json, headers=self._headers)
        except httpx.HTTPError as error:
            log.warning("sandbox provisioner: %s %s: %r", method, url, error)
            raise SandboxLost(_UNREACHABLE) from error
        if response.status_code == httpx.codes.NOT_FOUND and if_missing is not None:
            return if_missing
        if response.is_success:
            return _object(response.content)
        log.warning(
            "sandbox provisioner: %s %s: %d %.300s",
            method,
            url,
            response.status_code,
            response.text,
        )
        error_type = SandboxLost if response.is_server_error else SandboxError
        raise error_type("the sandbox provisioner refused the request; see the log")


class AioSandboxClient:
    """Runs commands in one sandbox, and exchanges files with it.

    Args:
        http: Sends the requests; the caller closes it.
        url: The sandbox's address.
    """

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self._http = http
        self._url = f"{url.rstrip('/')}/v1"

    async def is_ready(self) -> bool:
        """Return whether its shell works. The sandbox may respond before its shell does."""
        try:
            await self._call("GET", "sandbox")
            return (await self.run_script("echo ready", timeout_s=CALL_S)).strip() == "ready"
        except SandboxError:
            return False

    async def run_script(self, script: str, *, timeout_s: float = SCRIPT_S) -> str:
        """Run one of Parley's own scripts, for at most `timeout_s` seconds. Return its stdout.

        Raises:
            SandboxLost: The sandbox does not respond.
            SandboxError: The script failed.
        """
        request = {"command": script, "hard_timeout": timeout_s}
        data = await self._execute(request, timeout_s + CALL_S)
        await self._close_session(data.get("session_id"))
        if data.get("exit_code") != 0:
            log.warning("sandbox %s: %.300s: %.300r", self._url, script, data.get("stderr"))
            raise SandboxError("the sandbox could not exchange files; see the log")
        return str(data.get("stdout") or "")

    async def idle_seconds(self) -> float:
        """Return the time since the last command of any Parley process. Raises SandboxError."""
        try:
            return float(await self.run_script(_IDLE, timeout_s=CALL_S))
        except ValueError as error:
            raise SandboxError("the sandbox did not report when it was last used") from error

    async def open_session(self) -> str:
        """Return the id of a new shell session. If this fails, nothing has run yet. Raises SandboxLost."""
        data = await self._execute({"command": _TOUCH, "hard_timeout": CALL_S}, CALL_S)
        return str(data.get("session_id") or "")

    async def run_command(
        self,
        command: str,
        *,
        session_id: str,
        folder: str,
        environment: Mapping[str, str],
        timeout_s: float,
        output: OutputTail | None = None,
    ) -> CommandResult:
        """Run a command and close its session. Kill the command if it does not end by itself or the call is canceled.

        With `output`, its output goes there while it runs, instead of into the result.

        Raises:
            SandboxLost: The sandbox does not respond. The command may have run.
        """
        request = {
            "command": command,
            "session_id": session_id,
            "exec_dir": folder,
            "env": dict(environment),
            "hard_timeout": timeout_s,
            "max_output_length": MAX_OUTPUT_CHARS,
        }
        has_ended = False
        try:
            if output is None:
                data = await self._execute(request, timeout_s + CALL_S)
            else:
                data = await self._execute({**request, "async_mode": True}, CALL_S)
                data = await self._follow(session_id, str(data.get("command_id")), output)
            has_ended = data.get("status") == "completed"
        finally:
            with anyio.move_on_after(CALL_S, shield=True):
                await self._close_session(session_id, kill=not has_ended)
        return _result(data, timeout_s, has_ended=has_ended)

    async def upload(self, path: str, source: Path) -> None:
        """Copy a file from this machine into the sandbox. Raises SandboxLost."""
        boundary = token_hex(16)
        part = f"--{boundary}\r\nContent-Disposition: form-data; name="
        head = f'{part}"path"\r\n\r\n{path}\r\n{part}"file"; filename="file"\r\n\r\n'.encode()
        tail = f"\r\n--{boundary}--\r\n".encode()
        size = (await anyio.Path(source).stat()).st_size

        async def body() -> AsyncIterator[bytes]:
            yield head
            async with await anyio.open_file(source, "rb") as file:
                while chunk := await file.read(CHUNK_BYTES):
                    yield chunk
            yield tail

        headers = {
            "content-type": f"multipart/form-data; boundary={boundary}",
            "content-length": str(len(head) + size + len(tail)),
        }
        await self._call("POST", "file/upload", content=body(), headers=headers)

    async def download(self, path: str, target: Path, *, max_bytes: int) -> None:
        """Copy a file from the sandbox to this machine.

        Raises:
            SandboxLost: The sandbox does not respond.
            SandboxError: The file is larger than `max_bytes`.
        """
        query = {"path": path}
        async with (
            self._response("GET", "file/download", params=query) as response,
            await anyio.open_file(target, "wb") as file,
        ):
            async for chunk in _limited(response, max_bytes):
                await file.write(chunk)

    async def _execute(self, request: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        return _data(await self._call("POST", "bash/exec", json=request, timeout=timeout_s))

    async def _follow(
        self, session_id: str, command_id: str, output: OutputTail
    ) -> Mapping[str, Any]:
        """Forward the output of a command until it ends. Return its status and exit code."""
        command: Mapping[str, Any] = {}
        positions: dict[str, Any] = {}
        touched_at = anyio.current_time()
        while True:
            request = {"session_id": session_id, "command_id": command_id, "wait": True}
            answer = await self._call(
                "POST",
                "bash/output",
                json={**request, "wait_timeout": FOLLOW_S, **positions},
                timeout=FOLLOW_S + CALL_S,
            )
            data = _data(answer)
            texts = [str(data.get(name) or "") for name in ("stdout", "stderr")]
            for text in texts:
                output.append(text.encode())
            names = ("offset", "stderr_offset")
            positions = {name: data[name] for name in names if isinstance(data.get(name), int)}
            command = data.get("command") or {}
            if command.get("status") not in ("pending", "running") and not any(texts):
                return command
            if anyio.current_time() - touched_at > CALL_S:  # shows other nodes that it is in use
                touched_at = anyio.current_time()
                await self.run_script(_TOUCH, timeout_s=CALL_S)

    async def _close_session(self, session_id: object, *, kill: bool = False) -> None:
        """Free a session. Ignores errors, because the sandbox may be gone."""
        with contextlib.suppress(SandboxError):
            if kill:
                signal = {"session_id": session_id, "signal": "SIGKILL"}
                await self._call("POST", "bash/kill", json=signal)
            await self._call("POST", f"bash/sessions/{session_id}/close")

    async def _call(self, method: str, path: str, **options: Any) -> Mapping[str, Any]:  # noqa: ANN401 - httpx's
        async with self._response(method, path, **options) as response:
            return _object(
                b"".join([chunk async for chunk in _limited(response, MAX_RESPONSE_BYTES)])
            )

    @contextlib.asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        **options: Any,  # noqa: ANN401 - httpx's
    ) -> AsyncIterator[httpx.Response]:
        """Send a request. Raises SandboxLost unless it succeeds, also while the block reads the response."""
        try:
            async with self._http.stream(method, f"{self._url}/{path}", **options) as response:
                if not response.is_success:
                    log.warning(
                        "sandbox: %s %s/%s: %d", method, self._url, path, response.status_code
                    )
                    raise SandboxLost
                yield response
        except httpx.HTTPError as error:
            log.debug("sandbox: %s %s/%s: %r", method, self._url, path, error)
            raise SandboxLost from error


def find_provisioner_problem(url: str, api_key: str) -> str | None:
    """Return why a provisioner cannot be used, or None. Blocking: requests its list of sandboxes."""
    if not url:
        return NO_ADDRESS
    headers = {"X-API-Key": api_key} if api_key else {}
    try:
        address = f"{url.rstrip('/')}/api/sandboxes"
        response = httpx.get(address, headers=headers, timeout=5.0, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"sandbox.provisioner.url: {url} does not respond: {error}"
    if response.status_code == httpx.codes.UNAUTHORIZED:
        return "sandbox.provisioner.api_key: the provisioner refuses the key"
    if not response.is_success:
        return f"sandbox.provisioner.url: {url} responds with {response.status_code}"
    return None


async def _limited(response: httpx.Response, max_bytes: int) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in response.aiter_bytes(CHUNK_BYTES):
        size += len(chunk)
        if size > max_bytes:
            raise SandboxError("the sandbox sent more data than can be kept")
        yield chunk


def _object(content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SandboxLost from error
    if not isinstance(found, dict):
        raise SandboxLost
    return found


def _data(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    data = answer.get("data")
    if not isinstance(data, dict):
        raise SandboxLost
    return data


def _address(sandbox: Mapping[str, Any]) -> str:
    url = sandbox.get("sandbox_url")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise SandboxError("the sandbox provisioner did not return an address")
    return url


def _result(data: Mapping[str, Any], timeout_s: float, *, has_ended: bool) -> CommandResult:
    code = data.get("exit_code")
    texts = [str(data.get(name) or "").replace("\0", "\ufffd") for name in ("stdout", "stderr")]
    stopped = f"The command was stopped: it took longer than {timeout_s:g} s."
    return CommandResult(
        stdout=texts[0],
        stderr=texts[1],
        code=(code if isinstance(code, int) else 0) if has_ended else TIMED_OUT,
        note="" if has_ended else stopped,
    )
