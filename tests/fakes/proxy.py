"""TcpProxy: a network between Parley and a server that stops forwarding or refuses connections on demand."""

import select
import socket
import threading
from contextlib import suppress
from typing import Self


class TcpProxy:
    """Forwards connections to a server, on threads. Use it as a context manager.

    Args:
        host: Host of the server.
        port: Port of the server.

    Attributes:
        port: Port of the proxy, on 127.0.0.1.
        held: How often data arrived that was not forwarded.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
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
        """From now on, forward nothing and close nothing, as if packets were dropped."""
        self._flows.clear()

    def refuse(self) -> None:
        """Close all connections, and each new one immediately."""
        self._refuses = True
        for client in tuple(self._clients):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Forward everything again, including data that arrived in the meantime."""
        self._refuses = False
        self._flows.set()

    def carry_to_server(self, server: socket.socket, data: bytes) -> bool:
        """Forward data from a client. Return whether the connection continues."""
        server.sendall(data)
        return True

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
        """Forward the next data. Return whether the connection continues."""
        readable, _, _ = select.select([client, server], [], [])
        self.held += not self._flows.is_set()
        self._flows.wait()
        for end in readable:
            if not (data := end.recv(65536)):
                return False
            if end is server:
                client.sendall(data)
            elif not self.carry_to_server(server, data):
                return False
        return True
