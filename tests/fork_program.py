"""A program `parley` for shells in tests, whose processes are forked: see tests/fork_server.py."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.fork_server import MAX_REQUEST_BYTES, can_fork, fork_parley

_ADDED = ("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE")
"""Variables that the shell adds, and the Python that asks here."""

_CLIENT = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}}
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    code = server.recv(16)
if not code:
    os.execv({python!r}, [{python!r}, "-P", "-m", "gateway", *sys.argv[1:]])
sys.exit(int(code))
"""


@contextmanager
def forking_program(file: Path) -> Iterator[None]:
    """Make a file that runs as `parley`, as long as the block. In an environment that cannot be forked it starts it."""
    address = file.with_suffix(".socket")
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(4) as threads:
        listener.bind(str(address))
        listener.listen()
        file.write_text(_CLIENT.format(python=sys.executable, address=str(address)))
        file.chmod(0o755)
        threads.submit(_accept, listener, threads)
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, threads: ThreadPoolExecutor) -> None:
    with suppress(OSError):  # it was shut down
        while True:
            threads.submit(_run, listener.accept()[0])


def _run(client: socket.socket) -> None:
    with client:
        request, files, _, _ = socket.recv_fds(client, MAX_REQUEST_BYTES, 3)
        try:
            code = _forked(json.loads(request), (files[0], files[1], files[2]))
        finally:
            for number in files:
                os.close(number)
        if code is not None:
            client.send(str(code).encode())


def _forked(asked: dict[str, object], files: tuple[int, int, int]) -> int | None:
    """Run it and return its exit code; None if it has to be started."""
    given = asked["environment"]
    assert isinstance(given, dict)
    environment = {name: value for name, value in given.items() if name not in _ADDED}
    if not can_fork(environment):
        return None
    arguments = asked["arguments"]
    assert isinstance(arguments, list)
    process = fork_parley(arguments, environment, Path(str(asked["folder"])), files)
    return process.wait_blocking(150)
