"""The port: opened before anything heavy, so that a port in use is told at once."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.command_errors import CommandFailed
from gateway.config import GatewayConfig

BACKLOG = 2048


@contextmanager
def open_listener(config: GatewayConfig) -> Iterator[socket.socket]:
    """Listen on the configured address; connections wait until the application takes them.

    Raises:
        CommandFailed: the port is in use, may not be used, or the host is not one of this machine's.
    """
    where = f"gateway.host {config.host}, gateway.port {config.port}"
    try:
        found = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # `localhost` is two addresses; most programs try the older one.
        found.sort(key=lambda entry: entry[0] != socket.AF_INET)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CommandFailed(
            f"{where}: cannot be listened on ({error.strerror}): correct the host"
        ) from None
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            raise CommandFailed(f"{where}: {_bind_error_message(error)}") from None
        listener.settimeout(0)
        yield listener


def _bind_error_message(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                "the port is in use, perhaps by another `parley serve`: end it (`parley chat` talks to it),"
                " or set another gateway.port"
            )
        case errno.EACCES:
            return "this user may not use the port: set gateway.port to 1024 or more"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address: set gateway.host to 127.0.0.1"
        case _:
            return f"cannot be listened on ({error.strerror})"
