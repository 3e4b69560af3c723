"""HTTP API of the all-in-one sandbox image: readiness and shell commands, over HTTP or through `docker exec`."""

import base64
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
from typing_extensions import override

from agent.errors import SandboxError
from agent.paths import WORKSPACE
from agent.sandbox.docker_cli import CALL_S, DockerCli
from agent.sandbox.result import CommandResult

MAX_RESPONSE_BYTES = 20_000_000

POLL_S = 0.2
"""Interval of readiness checks while a container starts."""

MARGIN_S = 10.0
"""The container's own timeout exceeds ours by this much, so that ours takes effect."""

KEY_HEADER = "x-aio-api-key"

_PASSED = (KEY_HEADER, "content-type")
_READY = "parley-ready"


class ShellSessionLost(SandboxError):
    """The sandbox does not know its shell session anymore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """Result of a command, and the shell session that it ran in."""

    result: CommandResult
    session: str | None


class ContainerApi:
    """Client of one container. Every call opens and closes its own connection.

    Args:
        base_url: Base URL of the API.
        api_key: Its key.
        open_transport: Opens a transport for one call.
    """

    def __init__(
        self, base_url: str, api_key: str, open_transport: Callable[[], httpx.AsyncBaseTransport]
    ) -> None:
        self._base_url = base_url
        self._headers = {KEY_HEADER: api_key}
        self._open_transport = open_transport

    async def wait_ready(self, timeout_s: float) -> None:
        """Wait until its shell runs a command; the API often responds before that.

        Raises:
            SandboxError: It is not ready in time.
        """
        try:
            with anyio.fail_after(timeout_s):
                while not await self._is_ready():  # noqa: ASYNC110 - there is no event to wait for
                    await anyio.sleep(POLL_S)
        except TimeoutError as error:
            raise SandboxError("the sandbox container did not become ready in time") from error

    async def execute(self, command: str, *, session: str | None, timeout_s: float) -> ExecResult:
        """Run a command in a shell session; None opens a new one.

        Raises:
            ShellSessionLost: The session does not exist anymore; the command did not run.
            TimeoutError: It took longer.
            SandboxError: The container is gone, or its response is invalid.
        """
        wait = round(timeout_s + MARGIN_S)
        request: dict[str, Any] = {
            "command": wrap_command(command),
            "async_mode": False,
            "timeout": wait,
            "hard_timeout": wait,
            "no_change_timeout": wait,
            "truncate": False,
        }
        if session is not None:
            request["id"] = session
        with anyio.fail_after(timeout_s):
            return parse_exec_response(*await self._call("POST", "/v1/shell/exec", request))

    async def _is_ready(self) -> bool:
        try:
            status, _ = await self._call("GET", "/v1/sandbox", None)
            if status != httpx.codes.OK:
                return False
            done = await self.execute(f"echo {_READY}", session=None, timeout_s=CALL_S)
        except (SandboxError, TimeoutError):
            return False
        return done.result.code == 0 and _READY in done.result.stdout

    async def _call(
        self, method: str, path: str, content: dict[str, Any] | None
    ) -> tuple[int, dict[str, Any]]:
        try:
            async with (
                httpx.AsyncClient(
                    transport=self._open_transport(),
                    base_url=self._base_url,
                    headers=self._headers,
                    timeout=None,  # noqa: S113 - callers limit the whole call
                    trust_env=False,
                ) as client,
                client.stream(method, path, json=content) as response,
            ):
                return response.status_code, _json_object(await _body(response))
        except (httpx.HTTPError, OSError) as error:
            raise SandboxError("the sandbox container does not respond") from error


def http_transport() -> httpx.AsyncBaseTransport:
    """Return a transport for plain HTTP; an empty TLS context avoids loading certificates for every call."""
    return httpx.AsyncHTTPTransport(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), trust_env=False)


class DockerExecTransport(httpx.AsyncBaseTransport):
    """Reaches a container without a network: `docker exec` runs its curl."""

    def __init__(self, docker: DockerCli, container: str) -> None:
        self._docker = docker
        self._container = container

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        config = curl_config(request, (await request.aread()).decode()).encode()
        arguments = ["exec", "--interactive", self._container, "curl", "--config", "-"]
        # The caller sets the deadline: a command may take long.
        done = await self._docker.run(arguments, stdin=config, timeout_s=86_400)
        text, _, status = done.out.rpartition("\n")
        if done.code != 0 or not status.isdigit():
            raise httpx.ConnectError("no response from inside the container", request=request)
        return httpx.Response(int(status), content=text.encode(), request=request)


def curl_config(request: httpx.Request, body: str) -> str:
    r"""Format a request as a curl config. It contains the key, so it is passed on stdin, not as arguments.

    >>> print(curl_config(httpx.Request("POST", "http://a/b", headers={KEY_HEADER: "v"}), '{"x": "\\n"}'))
    silent
    url = "http://a/b"
    request = "POST"
    write-out = "\n%{http_code}"
    header = "Expect:"
    header = "x-aio-api-key: v"
    data-binary = "{\"x\": \"\\n\"}"
    """
    headers = [f"{name}: {value}" for name, value in request.headers.items() if name in _PASSED]
    lines = [
        "silent",
        f"url = {_quoted(str(request.url))}",
        f"request = {_quoted(request.method)}",
        'write-out = "\\n%{http_code}"',
        *(f"header = {_quoted(header)}" for header in ("Expect:", *headers)),
    ]
    if body:
        lines.append(f"data-binary = {_quoted(body)}")
    return "\n".join(lines)


def wrap_command(command: str) -> str:
    """Wrap a command into one line that any shell can read; bash runs it in the workspace with empty stdin.

    The umask is 0: users inside and outside the container differ, and both must be able to change the files.
    """
    packed = base64.b64encode(command.encode("utf-8", "replace")).decode()
    return (
        f'(umask 0; cd {WORKSPACE} && exec bash -c "$(printf %s {packed} | base64 -d)") < /dev/null'
    )


def parse_exec_response(status: int, answer: dict[str, Any]) -> ExecResult:
    """Parse the response to an execution.

    Raises:
        ShellSessionLost, TimeoutError, SandboxError: As `ContainerApi.execute`.

    >>> parse_exec_response(200, {"success": True, "data": {"session_id": "s", "exit_code": 0}}).session
    's'
    """
    data = answer.get("data")
    message = str(answer.get("message") or answer.get("detail") or "")
    if status == httpx.codes.NOT_FOUND or "ErrorObservation" in message:
        raise ShellSessionLost
    if status != httpx.codes.OK or not answer.get("success") or not isinstance(data, dict):
        if "session" in message.lower():
            raise ShellSessionLost
        raise SandboxError(f"the sandbox refused the command (HTTP {status})")
    output = str(data.get("output") or "")
    if output.lstrip().startswith("ErrorObservation"):
        raise ShellSessionLost
    code = data.get("exit_code")
    if data.get("status") not in (None, "completed") or not isinstance(code, int):
        raise TimeoutError
    session = data.get("session_id")
    return ExecResult(
        result=CommandResult(stdout=output, code=code),
        session=session if isinstance(session, str) else None,
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _json_object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def _body(response: httpx.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_RESPONSE_BYTES:
            raise SandboxError("the command's output is too long; redirect it to a file")
    return bytes(body)
