"""The API of the all-in-one sandbox image: is it ready, run this. Over HTTP, or by `docker exec` without a network."""

import base64
import json
import ssl
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
from typing_extensions import override

from agent.errors import SandboxError
from agent.paths import WORKSPACE
from agent.sandbox.docker_cli import CALL_S, DockerRunner
from agent.sandbox.result import CommandResult

MAX_ANSWER_BYTES = 20_000_000
"""Longest answer that is read."""

POLL_S = 0.2
"""How often a container that starts is asked whether it is ready."""

SLACK_S = 10.0
"""How much longer than us the container may wait for a command, so that our deadline is the one that counts."""

KEY_HEADER = "x-aio-api-key"

_PASSED = (KEY_HEADER, "content-type")
_READY = "parley-ready"


class ShellSessionLost(SandboxError):
    """The sandbox does not know its shell session any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """How a command ended, and the session that it ran in."""

    outcome: CommandResult
    session: str | None


class ContainerApi:
    """Speaks with one container. Every call opens its connection and closes it.

    Args:
        transport: Gives the way to it, anew for each call.
        base_url: Where its API is, on that way.
        key: Its key.
    """

    def __init__(self, transport: "Way", base_url: str, key: str) -> None:
        self._transport = transport
        self._base_url = base_url
        self._headers = {KEY_HEADER: key}

    async def wait_ready(self, timeout_s: float) -> None:
        """Wait until it answers and its shell really runs a command: the first is often true before the second.

        Raises:
            SandboxError: Not within the time.
        """
        try:
            with anyio.fail_after(timeout_s):
                while not await self._is_ready():  # noqa: ASYNC110 - nothing else tells
                    await anyio.sleep(POLL_S)
        except TimeoutError as error:
            raise SandboxError("the sandbox's container did not become ready in time") from error

    async def execute(self, command: str, *, session: str | None, timeout_s: float) -> ExecResult:
        """Run a command in a session, a new one when none is named.

        Raises:
            SessionLost: There is no such session any more; the command did not run.
            TimeoutError: It took longer.
            SandboxError: The container is gone, or answers with something else.
        """
        wait = round(timeout_s + SLACK_S)
        asked: dict[str, Any] = {
            "command": wrap_command(command),
            "async_mode": False,
            "timeout": wait,
            "hard_timeout": wait,
            "no_change_timeout": wait,
            "truncate": False,
        }
        if session is not None:
            asked["id"] = session
        with anyio.fail_after(timeout_s):
            status, answer = await self._call("POST", "/v1/shell/exec", asked)
        return parse_exec_response(status, answer)

    async def _is_ready(self) -> bool:
        try:
            status, _ = await self._call("GET", "/v1/sandbox", None)
            if status != httpx.codes.OK:
                return False
            said = await self.execute(f"echo {_READY}", session=None, timeout_s=CALL_S)
        except (SandboxError, TimeoutError):
            return False
        return said.outcome.code == 0 and _READY in said.outcome.stdout

    async def _call(
        self, method: str, path: str, content: dict[str, Any] | None
    ) -> tuple[int, dict[str, Any]]:
        try:
            async with (
                httpx.AsyncClient(
                    transport=self._transport.open(),
                    base_url=self._base_url,
                    headers=self._headers,
                    timeout=None,  # noqa: S113 - callers bound the whole call
                    trust_env=False,
                ) as client,
                client.stream(method, path, json=content) as response,
            ):
                return response.status_code, _object(await _body(response))
        except (httpx.HTTPError, OSError) as error:
            raise SandboxError("the sandbox's container does not answer") from error


class Way:
    """A way to a container's API: over HTTP."""

    def open(self) -> httpx.AsyncBaseTransport:
        """Return a transport, which its user closes."""
        # Plain HTTP: a context that trusts nobody spares loading certificates for every call.
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return httpx.AsyncHTTPTransport(verify=nobody, trust_env=False)


class ExecWay(Way):
    """A way into a container without a network: its own curl, started by `docker exec`."""

    def __init__(self, runner: DockerRunner, name: str) -> None:
        self._runner = runner
        self._name = name

    @override
    def open(self) -> httpx.AsyncBaseTransport:
        return _ExecTransport(self._runner, self._name)


class _ExecTransport(httpx.AsyncBaseTransport):
    def __init__(self, runner: DockerRunner, name: str) -> None:
        self._runner = runner
        self._name = name

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = (await request.aread()).decode()
        arguments = ["exec", "--interactive", self._name, "curl", "--config", "-"]
        given = curl_config(request, body).encode()
        # Bounded by whoever asked: a command may take long.
        ran = await self._runner.run(arguments, given=given, timeout_s=86_400)
        text, _, status = ran.out.rpartition("\n")
        if ran.code != 0 or not status.isdigit():
            raise httpx.ConnectError("no answer from inside the container", request=request)
        return httpx.Response(int(status), content=text.encode(), request=request)


def curl_config(request: httpx.Request, body: str) -> str:
    r"""Write a request as curl's configuration; the key is in it, so it goes to curl's input, not its arguments.

    >>> print(curl_config(httpx.Request("POST", "http://a/b", headers={KEY_HEADER: "v"}), '{"x": "\\n"}'))
    silent
    url = "http://a/b"
    request = "POST"
    write-out = "\n%{http_code}"
    header = "Expect:"
    header = "x-aio-api-key: v"
    data-binary = "{\"x\": \"\\n\"}"
    """
    lines = [
        "silent",
        f"url = {_quoted(str(request.url))}",
        f"request = {_quoted(request.method)}",
        'write-out = "\\n%{http_code}"',
        'header = "Expect:"',
        *(
            f"header = {_quoted(f'{name}: {value}')}"
            for name, value in request.headers.items()
            if name in _PASSED
        ),
    ]
    if body:
        lines.append(f"data-binary = {_quoted(body)}")
    return "\n".join(lines)


def wrap_command(command: str) -> str:
    """Write a command so that it is one line for any shell, runs by bash in the workspace, and reads nothing.

    Files that it makes may be changed by everybody: inside and outside work as different users on them.
    """
    packed = base64.b64encode(command.encode("utf-8", "replace")).decode()
    return (
        f'(umask 0; cd {WORKSPACE} && exec bash -c "$(printf %s {packed} | base64 -d)") < /dev/null'
    )


def parse_exec_response(status: int, answer: dict[str, Any]) -> ExecResult:
    """Read the answer to an execution.

    Raises:
        SessionLost, SandboxError: As `ContainerApi.execute`.

    >>> parse_exec_response(200, {"success": True, "data": {"session_id": "s", "output": "hi", "exit_code": 0}}).session
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
    outcome = CommandResult(stdout=output, code=code)
    return ExecResult(outcome=outcome, session=session if isinstance(session, str) else None)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def _body(response: httpx.Response) -> bytes:
    parts: list[bytes] = []
    room = MAX_ANSWER_BYTES
    async for part in response.aiter_bytes():
        room -= len(part)
        if room < 0:
            raise SandboxError("the command's output is too long; write it to a file")
        parts.append(part)
    return b"".join(parts)
