"""An S3-compatible server for tests: moto of `make peers-python`, with a bucket for each test."""

import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit
from xml.etree import ElementTree

import httpx
import obstore
from obstore.store import S3Store

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".venv-peers"
MISSING = "needs `make peers-python` (moto)"

_SPACE = {"s3": "http://s3.amazonaws.com/doc/2006-03-01/"}


@dataclass(frozen=True)
class S3Bucket:
    """A bucket and where it is."""

    url: str
    name: str

    @property
    def endpoint(self) -> str:
        return self.url.rpartition("/")[0]

    def storage(self, prefix: str = "parley", endpoint: str = "") -> dict[str, Any]:
        """Return the `storage` section of a configuration."""
        return {
            "url": f"s3://{self.name}/{prefix}",
            "endpoint": endpoint or self.endpoint,
            "access_key_id": "test",
            "secret_access_key": "test-secret-key",
        }

    def objects(self) -> list[str]:
        """Return the names of all objects. Blocking."""
        answer = httpx.get(self.url, params={"list-type": "2"}).raise_for_status()
        tree = ElementTree.fromstring(answer.content)  # noqa: S314 - our own server's
        return [str(key.text) for key in tree.iterfind("s3:Contents/s3:Key", _SPACE)]

    def put(self, name: str, content: bytes) -> None:
        """Store an object. Blocking."""
        obstore.put(self._store(), name, content)

    def delete(self, name: str) -> None:
        """Delete an object. Blocking."""
        obstore.delete(self._store(), name)

    def _store(self) -> S3Store:
        return S3Store(
            self.name,
            config={
                "endpoint": self.endpoint,
                "access_key_id": "test",
                "secret_access_key": "test-secret-key",
            },
            client_options={"allow_http": True},
        )


@dataclass(frozen=True)
class S3Server:
    """A server that runs."""

    endpoint: str
    _numbers: Iterator[int] = field(default_factory=count)

    def bucket(self) -> S3Bucket:
        """Return a new bucket."""
        name = f"bucket-{next(self._numbers)}"
        url = f"{self.endpoint}/{name}"
        httpx.put(url).raise_for_status()
        return S3Bucket(url, name)


@contextmanager
def s3_server(environment: dict[str, str] | None = None) -> Iterator[S3Server | None]:
    """Run a server; yield None where moto is not installed. `environment`: moto's own variables."""
    if not (PEERS / ".ready").exists():
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    folder = Path(tempfile.mkdtemp(prefix="parley-s3-"))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(PEERS / "bin" / "python"),
                "-P",
                "-m",
                "moto.server",
                "-H",
                "127.0.0.1",
                "-p",
                str(port),
            ],
            stdout=log,
            stderr=log,
            env={**os.environ, **(environment or {})},
        )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(transport=httpx.HTTPTransport(retries=8), timeout=30) as client:
            client.get(f"{endpoint}/moto-api/").raise_for_status()
        yield S3Server(endpoint)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


class S3Proxy:
    """A network between Parley and the server that fails, on threads; use it as a context manager.

    Attributes:
        url: Of the server, through the proxy.
        held: How often something arrived that was not carried on.
    """

    def __init__(self, endpoint: str) -> None:
        target = urlsplit(endpoint)
        self._target = (str(target.hostname), int(target.port or 0))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.held = 0
        self._refuses = False
        self._flows = threading.Event()
        self._flows.set()
        self._clients: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self._flows.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def hold(self) -> None:
        """Carry nothing from now on, and close nothing: as if packets were dropped."""
        self._flows.clear()

    def refuse(self) -> None:
        """Close connections, and each new one at once."""
        self._refuses = True
        for client in tuple(self._clients):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Carry everything again, also what was sent meanwhile."""
        self._refuses = False
        self._flows.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refuses:
                    client.close()
                    continue
                self._clients.add(client)
                thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, suppress(OSError), socket.create_connection(self._target) as server:
                while self._forward(client, server):
                    pass
        finally:
            self._clients.discard(client)

    def _forward(self, client: socket.socket, server: socket.socket) -> bool:
        """Forward what comes next; return whether the connection goes on."""
        readable, _, _ = select.select([client, server], [], [])
        self.held += not self._flows.is_set()
        self._flows.wait()
        for end in readable:
            if not (data := end.recv(65536)):
                return False
            (server if end is client else client).sendall(data)
        return True
