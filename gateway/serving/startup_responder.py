"""Answers health checks while the service starts: its imports take a second, during which no event loop runs.

A thread accepts the connections of the listening socket. `GET /health` gets 200 and `GET /health/ready` gets 503 with
the status `starting`. All other connections are kept, unread, for the HTTP server.
"""

import selectors
import socket
import threading
from types import TracebackType
from typing import Self

MAX_CONNECTIONS = 256
"""Connections that are kept; further ones wait in the kernel's queue until the server accepts them."""

MAX_HEAD_BYTES = 8192
"""Health checks with a longer head wait for the HTTP server."""

_HEALTH = (200, "OK", b'{"status":"healthy","service":"parley"}')
_READINESS = (503, "Service Unavailable", b'{"status":"starting"}')
_RESPONSES = {b"/health": _HEALTH, b"/health/ready": _READINESS}


class StartupResponder:
    """Answers health checks on an open socket until `stop`. Use it as a context manager.

    Args:
        listener: A listening, non-blocking socket. Nobody else may accept from it before `stop`.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._waker, self._wakened = socket.socketpair()
        self._kept: list[socket.socket] = []
        self._silent: set[socket.socket] = set()
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, name="startup responder", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wakened, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the thread, and close the connections that `stop` did not hand over."""
        for connection in self.stop():
            connection.close()
        self._waker.close()
        self._wakened.close()
        self._selector.close()

    def stop(self) -> list[socket.socket]:
        """End the thread; return the open connections: nothing has been read from them.

        Blocks for as long as a health check takes. Further calls return nothing.
        """
        self._waker.send(b"\0")
        self._thread.join()
        kept = [*self._kept, *self._silent]
        self._kept, self._silent = [], set()
        return kept

    def _run(self) -> None:
        while True:
            ready = [key.fileobj for key, _ in self._selector.select()]
            if self._wakened in ready:
                return
            for connection in self._silent.intersection(ready):
                self._serve(connection)
            if self._listener in ready:
                self._accept()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # closed by the client, or too many open files: left to the server
            return
        connection.settimeout(0)
        self._silent.add(connection)
        self._selector.register(connection, selectors.EVENT_READ)
        if len(self._kept) + len(self._silent) >= MAX_CONNECTIONS:
            self._selector.unregister(self._listener)

    def _serve(self, connection: socket.socket) -> None:
        """Answer a health check; keep anything else."""
        self._silent.remove(connection)
        self._selector.unregister(connection)
        try:
            head = connection.recv(MAX_HEAD_BYTES, socket.MSG_PEEK)
            response = build_response(head)
            if head and response is None:
                self._kept.append(connection)
                return
            connection.recv(len(head))
            connection.sendall(response or b"")
            connection.close()
        except OSError:
            connection.close()


def build_response(head: bytes) -> bytes | None:
    r"""Return the response to a health check; None for everything else, and for a head that is not complete.

    >>> build_response(b"GET /health HTTP/1.1\r\n\r\n")[:15]
    b'HTTP/1.1 200 OK'
    """
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0]
    if method not in {b"GET", b"HEAD"} or path not in _RESPONSES or not head.endswith(b"\r\n\r\n"):
        return None
    status, reason, body = _RESPONSES[path]
    lines = (
        f"HTTP/1.1 {status} {reason}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    start = "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"
    return start + (body if method == b"GET" else b"")
