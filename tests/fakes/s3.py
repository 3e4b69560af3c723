"""An S3-compatible server for tests: moto from `make peers-python`, with a bucket for each test."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import httpx
import obstore
from obstore.store import S3Store

from tests.fakes.proxy import TcpProxy
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".venv-peers"
MISSING = "needs `make peers-python` (moto)"

ANSWER_S = 30  # Its first request takes seconds, because it imports modules.

_SPACE = {"s3": "http://s3.amazonaws.com/doc/2006-03-01/"}


@dataclass(frozen=True)
class S3Bucket:
    """A bucket and its address."""

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
        answer = httpx.get(self.url, params={"list-type": "2"}, timeout=ANSWER_S).raise_for_status()
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
    """A running server."""

    endpoint: str
    _numbers: Iterator[int] = field(default_factory=count)

    def bucket(self) -> S3Bucket:
        """Return a new bucket."""
        name = f"bucket-{next(self._numbers)}"
        url = f"{self.endpoint}/{name}"
        httpx.put(url, timeout=ANSWER_S).raise_for_status()
        return S3Bucket(url, name)


@contextmanager
def s3_server(environment: dict[str, str] | None = None) -> Iterator[S3Server | None]:
    """Run a server. Yield None if moto is not installed. `environment`: moto's own variables."""
    if not (PEERS / ".ready").exists():
        yield None
        return
    port = free_port()
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
        with httpx.Client(transport=httpx.HTTPTransport(retries=8), timeout=ANSWER_S) as client:
            client.get(f"{endpoint}/moto-api/").raise_for_status()
        yield S3Server(endpoint)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


class S3Proxy(TcpProxy):
    """A network between Parley and the server.

    Attributes:
        url: URL of the server through the proxy.
    """

    def __init__(self, endpoint: str) -> None:
        target = urlsplit(endpoint)
        super().__init__(str(target.hostname), int(target.port or 0))
        self.url = f"http://127.0.0.1:{self.port}"
