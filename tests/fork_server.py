"""Starts `parley` processes by forking one that has imported everything. The imports take more than a second of CPU.

The new process is `python -m gateway` with its own files, environment and signals. Two things differ: its modules are
already imported, and at exit it does not free its memory. To test startup or shutdown, pass `fork=False`.
"""

import atexit
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, NoReturn, Self

import anyio
from anyio.abc import Process

from tests.blocking import report_file, watch_event_loop

ROOT = Path(__file__).parents[1]
PROGRAM = (sys.executable, "-m", "gateway")
MAX_REQUEST_BYTES = 100_000
REHEARSE = "rehearse"

_MODULES = (
    "gateway.cli", "gateway.commands.serve", "gateway.serving.event_loop", "gateway.commands.chat",
    "gateway.commands.doctor", "gateway.commands.check", "gateway.commands.backup", "gateway.commands.token",
    "langchain_openai", "agent.models.openai_client", "anyio._backends._asyncio",
    "bots.slack.adapter", "bots.telegram.adapter", "bots.feishu.adapter", "bots.feishu.webhook",
    "store.postgres.engine", "httpcore", "tests.fakes.graphs", "mcp.server.fastmcp", "uvicorn",
)  # fmt: skip
_OWN = {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
"""The environment of the fork server. A process that needs a different Python is started normally."""

_BEFORE_IMPORTS = frozenset({"LD_PRELOAD", "PROVE_CLOCK"})
"""Variables that the fork server itself needs at startup: for the dynamic linker, and for the libraries it loads."""

_SET_AFTER_FORK = (
    "PATH", "HOME", "PYTHONUNBUFFERED", "PARLEY_", "COVERAGE_", "OTEL_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "SSL_CERT_FILE",
)  # fmt: skip
"""Prefixes of variables that neither the interpreter nor a package reads at import."""

_SECRETS = ("_KEY", "_SECRET", "_TOKEN")
"""Suffixes of further such variables, which hold secrets."""

_ADDED_BY_SHELLS = ("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE")
"""Variables that a shell adds, or the Python of tests/fork_client.py."""

Files = tuple[int, int, int]
"""File descriptors of standard input, output and error."""


class ParleyProcess:
    """A forked process, with the part of `subprocess.Popen` that tests use.

    Attributes:
        pid: Its process ID.
    """

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self._status = status
        self._returncode: int | None = None

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        if self._returncode is None:
            self._status.setblocking(False)
            try:
                self._read()
            except BlockingIOError:
                return None
        return self._returncode

    async def wait(self) -> int:
        """Wait until the process has exited; return its exit code."""
        while (code := self.returncode) is None:
            await anyio.wait_readable(self._status)
        return code

    def wait_blocking(self, timeout_s: float) -> int:
        """Wait for the exit code. Raises TimeoutError."""
        if self._returncode is None:
            self._status.settimeout(timeout_s)
            self._read()
        assert self._returncode is not None
        return self._returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has exited."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def _read(self) -> None:
        code = self._status.recv(16)
        assert code, "the fork server ended"
        self._returncode = int(code)
        self._status.close()


def is_test_suite() -> bool:
    """Return whether a test is running. Benchmarks, soaks and most proofs start the real program instead."""
    return "PYTEST_CURRENT_TEST" in os.environ


def can_fork(environment: Mapping[str, str]) -> bool:
    """Return whether a forked process with this environment behaves like a started one.

    It does not if something reads its environment or command line from /proc, which shows those of the fork server.
    PYTHONPATH may list folders after the repository's, as long as they do not replace modules that are already
    imported.
    """
    first = environment.get("PYTHONPATH", "").partition(os.pathsep)[0] or str(ROOT)
    others = {**environment, "PYTHONPATH": first}.items() - _OWN.items()
    return all(
        name in _BEFORE_IMPORTS
        or name.upper().startswith(_SET_AFTER_FORK)
        or name.endswith(_SECRETS)
        for name, _ in others
    )


async def start_parley(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    output: IO[bytes],
    *,
    fork: bool | None = None,
) -> ParleyProcess | Process:
    """Start `parley ARGUMENTS` in a folder, with its output in a file. `fork`: None = fork if a test is running."""
    if (is_test_suite() if fork is None else fork) and can_fork(environment):
        with _Pipe() as nothing:
            nothing.close_end(nothing.write_end)
            files = (nothing.read_end, output.fileno(), output.fileno())
            return fork_parley(arguments, environment, folder, files)
    program = [*PROGRAM, *arguments]
    return await anyio.open_process(
        program, stdin=None, stdout=output, stderr=output, env=environment, cwd=folder
    )


def run_parley(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    stdin: bytes = b"",
    *,
    timeout_s: float = 150.0,
) -> subprocess.CompletedProcess[bytes]:
    """Run `parley ARGUMENTS` in a folder; blocks. Raises TimeoutError, subprocess.TimeoutExpired."""
    if not (is_test_suite() and can_fork(environment)):
        return subprocess.run(
            [*PROGRAM, *arguments], input=stdin, capture_output=True, cwd=folder, env=dict(environment),
            timeout=timeout_s, check=False,
        )  # fmt: skip
    with ExitStack() as stack:
        given, out, err = (stack.enter_context(_Pipe()) for _ in range(3))
        files = (given.read_end, out.write_end, err.write_end)
        process = fork_parley(arguments, environment, folder, files)
        for pipe, end in zip((given, out, err), files, strict=True):
            pipe.close_end(end)
        threads = stack.enter_context(ThreadPoolExecutor(3))
        threads.submit(given.write, stdin)
        texts = [threads.submit(pipe.read) for pipe in (out, err)]
        try:
            code = process.wait_blocking(timeout_s)
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(arguments, code, *(text.result() for text in texts))


class _Pipe:
    """A pipe. Leaving the block closes both ends if they are still open."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        self._open = {self.read_end, self.write_end}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for end in list(self._open):
            self.close_end(end)

    def close_end(self, end: int) -> None:
        self._open.remove(end)
        os.close(end)

    def write(self, content: bytes) -> None:
        """Write the data and close the pipe. Ignores a reader that is gone."""
        try:
            while content:
                content = content[os.write(self.write_end, content) :]
        except BrokenPipeError:
            pass
        finally:
            self.close_end(self.write_end)

    def read(self) -> bytes:
        """Return everything until the pipe is closed."""
        parts = []
        while part := os.read(self.read_end, 65536):
            parts.append(part)
        return b"".join(parts)


class _ForkServer:
    """The process that forks. It exits when the last process that holds its socket exits.

    Processes forked from this one may share it: a request is one packet, and each response has its own socket.

    Args:
        environment: Its environment variables, besides those that every fork server gets.
        arguments: The arguments of `main`.

    Attributes:
        address: Where any program may connect to request a fork: an abstract socket name, in hexadecimal.
    """

    def __init__(self, environment: Mapping[str, str], *arguments: str) -> None:
        self._owner = os.getpid()
        self._socket, other = _socketpair()
        with other, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(b"")
            listener.listen()
            self.address = listener.getsockname().hex()
            descriptors = [other.fileno(), listener.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, __file__, *map(str, descriptors), *arguments],
                env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **_OWN, **environment},
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    @property
    def is_shared(self) -> bool:
        """Whether this process inherited it from its parent."""
        return self._owner != os.getpid()

    def close(self) -> None:
        """Stop the server. The processes that it started keep running."""
        self._socket.close()
        self._process.wait()

    def start(self, request: "_Request", files: Files) -> ParleyProcess:
        ours, theirs = _socketpair()
        sent = json.dumps(asdict(request)).encode()
        with theirs:
            socket.send_fds(self._socket, [sent], [*files, theirs.fileno()])
        answer = ours.recv(16)
        assert answer, "the fork server ended"
        return ParleyProcess(int(answer), ours)


def _socketpair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


_servers: dict[frozenset[tuple[str, str]], _ForkServer] = {}


def start_server() -> None:
    """Start the fork server for the usual environment, with a rehearsal. Processes forked from this one share it."""
    _servers[frozenset()] = _ForkServer({}, REHEARSE)


def fork_parley(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    files: Files,
    *,
    module: str = "gateway",
) -> ParleyProcess:
    """Fork `python -m MODULE ARGUMENTS` with these standard files, in an environment for which `can_fork` is true."""
    report = str(report_file()) if is_test_suite() else ""
    request = _Request([*arguments], dict(environment), str(folder), module, report)
    return _server_for(environment).start(request, files)


def forked_program(module: str, *arguments: str) -> list[str]:
    """Return a command that acts as `python -m MODULE ARGUMENTS`, forked with the environment in which it is started.

    If the environment cannot be forked, `gateway` is started normally. Killing the command kills the forked process.
    """
    report = str(report_file()) if is_test_suite() else ""
    asked = [_server_for({}).address, report, module]
    return [sys.executable, "-IS", str(ROOT / "tests" / "fork_client.py"), *asked, *arguments]


def forking_parley(folder: Path, *arguments: str) -> list[str]:
    """Return a command that acts as `parley ARGUMENTS`, forked, and that forks any `parley` that it starts.

    Args:
        folder: Where to write its interpreter: a script that runs all other programs with the real Python.
        arguments: The arguments of `parley`.
    """
    python = folder / "forking-python"
    forked = shlex.join(forked_program("gateway"))
    started = shlex.quote(sys.executable)
    python.write_text(
        f'#!/bin/sh\ncase "$1 $2 $3" in\n"-P -m gateway") shift 3; exec {forked} "$@" ;;\n'
        f'*) exec {started} "$@" ;;\nesac\n'
    )
    python.chmod(0o700)
    return forked_program("tests.forking_parley", str(python), *arguments)


def _server_for(environment: Mapping[str, str]) -> _ForkServer:
    early = {name: value for name, value in environment.items() if name in _BEFORE_IMPORTS}
    key = frozenset(early.items())
    if key not in _servers:
        _servers[key] = _ForkServer(early)
    return _servers[key]


@atexit.register
def close_servers() -> None:
    """Stop the fork servers. From then on, their CPU time, with that of their ended children, counts as children's."""
    for key, server in list(_servers.items()):
        if not server.is_shared:
            _servers.pop(key).close()


@dataclass(frozen=True)
class _Request:
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    module: str
    report: str
    """The file for calls that block the event loop; empty = they are not recorded."""

    def is_forked_for_client(self) -> bool:
        """Drop shell variables. Return whether a forked process behaves like one that the client would start."""
        for name in _ADDED_BY_SHELLS:
            self.environment.pop(name, None)
        return self.module != "gateway" or can_fork(self.environment)


class _Forks:
    """Forks a process for each request.

    Args:
        connection: Carries the tests' requests; the server exits when it closes.
        listener: Where other programs connect. When a client disconnects, the process forked for it is killed.
    """

    def __init__(self, connection: socket.socket, listener: socket.socket) -> None:
        self._connection = connection
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, socket.socket] = {}
        self._clients: dict[socket.socket, int] = {}
        self._wakeup, self._signaled = socket.socketpair()
        self._is_open = True

    def serve(self) -> _Request | None:
        """Returns twice: in the forked process, its request; in the server, None when it ends."""
        for end in (self._wakeup, self._signaled):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests handle Ctrl-C
        signal.set_wakeup_fd(self._signaled.fileno())
        for one in (self._connection, self._listener, self._wakeup):
            self._selector.register(one, selectors.EVENT_READ)
        while self._is_open:
            ready = [key.fileobj for key, _ in self._selector.select()]
            if self._wakeup in ready:
                self._wakeup.recv(4096)
                _report_ended(self._children)
            if self._listener in ready:
                client, _ = self._listener.accept()
                self._clients[client] = 0
                self._selector.register(client, selectors.EVENT_READ)
            for asking in [one for one in (self._connection, *self._clients) if one in ready]:
                if (request := self._answer(asking)) is not None:
                    return request
        return None

    def _answer(self, asking: socket.socket) -> _Request | None:
        """Fork, or kill the process of a client that disconnected. In the forked process, return the request."""
        message, files = b"", list[int]()
        with suppress(ConnectionError):  # the client has exited
            message, files, _, _ = socket.recv_fds(asking, MAX_REQUEST_BYTES, 4)
        if message:
            request = _Request(**json.loads(message))
            return request if self._fork(asking, request, files) else None
        if asking is self._connection:
            self._is_open = False
        else:
            self._kill_for(asking)
        return None

    def _fork(self, asking: socket.socket, request: _Request, files: list[int]) -> bool:
        """Fork. Return whether this is the forked process."""
        is_client = asking in self._clients
        if is_client and not request.is_forked_for_client():
            _close_files(files)
            return False
        status = socket.socket(fileno=files.pop())
        pid = os.fork()
        if pid == 0:
            ours = (self._connection, self._listener, self._wakeup, self._signaled, status)
            _take_files(files, (*ours, *self._clients, *self._children.values()))
            self._selector.close()
            return True
        self._children[pid] = status
        if is_client:
            self._clients[asking] = pid
        _close_files(files)
        with suppress(ConnectionError):  # the client has exited
            status.send(str(pid).encode())
        return False

    def _kill_for(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        client.close()
        if (pid := self._clients.pop(client)) in self._children:
            os.kill(pid, signal.SIGKILL)


def _take_files(files: list[int], inherited: Iterable[socket.socket]) -> None:
    """Install the standard files, and close the files that the forked process inherited."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    _close_files(files)
    for one in inherited:
        one.close()


def _close_files(files: list[int]) -> None:
    for file in files:
        os.close(file)


def _report_ended(children: dict[int, socket.socket]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            # The client may have exited, perhaps without reading the process ID.
            with children.pop(pid) as connection, suppress(ConnectionError):
                connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: _Request) -> NoReturn:
    """Run as `python -m MODULE`, as if the process had just been started."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.path[1:1] = request.environment.get("PYTHONPATH", "").split(os.pathsep)[1:]
    os.chdir(request.folder)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the process ends
    is_unbuffered = "PYTHONUNBUFFERED" in request.environment
    sys.stdout = _text_output(1, is_unbuffered=is_unbuffered)
    sys.stderr = _text_output(2, is_unbuffered=is_unbuffered, is_stderr=True)
    if request.report and request.arguments[:1] == ["serve"]:  # other commands serve no requests
        watch_event_loop(Path(request.report), with_libraries=True)
    if (coverage := sys.modules.get("coverage")) is not None:
        threading.Thread(
            target=_save_coverage, args=[coverage.Coverage.current()], daemon=True
        ).start()
    sys.argv = ["", *request.arguments]
    try:
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        _end(end.code or 0)
    _end(0)


def _end(code: int) -> NoReturn:
    """Exit like Python, but without clearing the modules, which would copy shared memory and take 0.1 s of CPU."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # Python reports the error
    os._exit(code & 0xFF)


def _save_coverage(measured: Any) -> NoReturn:  # noqa: ANN401 - only imported while coverage is measured
    """Save the data of `make coverage` every second, because many services end by kill -9."""
    while True:
        time.sleep(1)
        measured.save()


def _text_output(number: int, *, is_unbuffered: bool, is_stderr: bool = False) -> io.TextIOWrapper:
    """Open standard output as Python does."""
    raw = open(number, "wb", buffering=0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115
    is_line_buffered = is_stderr or os.isatty(number)
    errors = "backslashreplace" if is_stderr else "strict"
    return io.TextIOWrapper(
        raw,
        encoding="utf-8",
        errors=errors,
        line_buffering=is_line_buffered,
        write_through=is_unbuffered,
    )


def _import_modules() -> None:
    """Import what services need, and warm up what is built on first use: routes (0.1 s of CPU), messages, frames."""
    gc.disable()  # imports leave almost no garbage, but looking for it takes a third of the time
    importlib.import_module("gateway.commands.serve").import_service()
    for name in _MODULES:
        importlib.import_module(name)
    application = importlib.import_module("gateway.app")
    application.direct_routes()
    for routes in application.included_routes():
        routes.effective_candidates()
    messages = importlib.import_module("langchain_core.messages")
    for kind in (
        messages.HumanMessage,
        messages.AIMessage,
        messages.AIMessageChunk,
        messages.SystemMessage,
    ):
        kind(content="")
    importlib.import_module("bots.feishu.sdk").FrameCodec()
    if REHEARSE in sys.argv:
        _rehearse()
    assert threading.active_count() == 1, "a process with threads cannot be forked"
    gc.collect()
    gc.freeze()
    gc.enable()


def _rehearse() -> None:
    """Run a service until it answers a message. This costs a second of CPU and pays off if many services follow."""
    try:
        importlib.import_module("tests.rehearsal").rehearse()
    except Exception:  # noqa: BLE001 - the tests report what is broken
        traceback.print_exc()


def main() -> None:
    """Serve the connection in the first argument and the clients of the listener in the second one."""
    connection, listener = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    _import_modules()
    request = _Forks(connection, listener).serve()
    if request is not None:
        _become(request)


if __name__ == "__main__":
    main()
