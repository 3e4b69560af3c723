"""A network between Parley and PostgreSQL that fails: it loses a COMMIT or its answer, or stops carrying anything."""

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from psycopg.conninfo import conninfo_to_dict

COMMIT, READY = b"COMMIT\0", b"Z\0\0\0\x05I"
"""The end of the message with the statement, and what the server sends when it was executed."""


class PostgresProxy:
    """Forwards connections to a server, on threads; use it as a context manager.

    Args:
        url: The database.

    Attributes:
        url: Of the database, through the proxy.
        cuts: How many connections were cut at COMMIT.
    """

    def __init__(self, url: str) -> None:
        target = conninfo_to_dict(url)
        self._target = (str(target["host"]), int(str(target["port"])))
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = f"postgresql://{target['user']}@127.0.0.1:{port}/{target['dbname']}"
        self.cuts = 0
        self._mode = ""
        self._before_the_cut: Callable[[], None] = lambda: None
        self._flows = threading.Event()
        self._flows.set()
        self._clients: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._flows.set()
        for end in (self._listener, *self._clients):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def arm(self, mode: str, before_the_cut: Callable[[], None] = lambda: None) -> None:
        """Cut the next connection that commits: `lost` = COMMIT does not arrive, `unanswered` = its answer does not."""
        self._mode, self._before_the_cut = mode, before_the_cut

    def block(self) -> None:
        """Carry nothing from now on, and close nothing: as if packets were dropped."""
        self._flows.clear()

    def unblock(self) -> None:
        """Carry everything again, also what was sent meanwhile."""
        self._flows.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._clients.add(client)
                thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        try:
            self._flows.wait()
            with client, suppress(OSError), socket.create_connection(self._target) as server:
                while self._forward(client, server):
                    pass
        finally:
            self._clients.discard(client)

    def _forward(self, client: socket.socket, server: socket.socket) -> bool:
        """Forward what comes next; return whether the connection goes on."""
        readable, _, _ = select.select([client, server], [], [])
        self._flows.wait()
        for end in readable:
            if not (data := end.recv(65536)):
                return False
            if end is client and self._mode and data.endswith(COMMIT):
                self._cut(server, data)
                return False
            (server if end is client else client).sendall(data)
        return True

    def _cut(self, server: socket.socket, data: bytes) -> None:
        mode, self._mode = self._mode, ""
        self.cuts += 1
        if mode == "unanswered":
            server.sendall(data)
            while not server.recv(65536).endswith(READY):
                pass
        self._before_the_cut()
