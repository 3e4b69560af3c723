"""PostgresProxy: a network between Parley and PostgreSQL that can also lose a COMMIT or its answer."""

import socket
from collections.abc import Callable

from psycopg.conninfo import conninfo_to_dict
from typing_extensions import override

from tests.fakes.proxy import TcpProxy

COMMIT, READY = b"COMMIT\0", b"Z\0\0\0\x05I"
"""The end of the message with the statement, and the server's message after executing it."""


class PostgresProxy(TcpProxy):
    """Forwards connections to a database server.

    Args:
        url: The database.

    Attributes:
        url: URL of the database through the proxy.
        cuts: Number of connections that were cut at COMMIT.
    """

    def __init__(self, url: str) -> None:
        target = conninfo_to_dict(url)
        super().__init__(str(target["host"]), int(str(target["port"])))
        self.url = f"postgresql://{target['user']}@127.0.0.1:{self.port}/{target['dbname']}"
        self.cuts = 0
        self._mode = ""
        self._before_the_cut: Callable[[], None] = lambda: None

    def arm(self, mode: str, before_the_cut: Callable[[], None] = lambda: None) -> None:
        """Cut the next connection that commits: `lost` = COMMIT does not arrive, `unanswered` = its answer does not."""
        self._mode, self._before_the_cut = mode, before_the_cut

    @override
    def carry_to_server(self, server: socket.socket, data: bytes) -> bool:
        mode = self._mode
        if not mode or not data.endswith(COMMIT):
            return super().carry_to_server(server, data)
        self._mode = ""
        self.cuts += 1
        if mode == "unanswered":
            server.sendall(data)
            while not server.recv(65536).endswith(READY):
                pass
        self._before_the_cut()
        return False
