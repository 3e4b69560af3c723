"""The listening socket: opened before slow imports, so that a port in use is reported at once."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.command_errors import CommandFailed
from gateway.gateway_config import GatewayConfig

BACKLOG = 2048


@contextmanager
def open_listener(config: GatewayConfig) -> Iterator[socket.socket]:
    """Listen on the configured address. Connections wait until the application accepts them.

    Raises:
        CommandFailed: The port is in use or not permitted, or the host is not an address of this machine.
    """
    where = f"gateway.host {config.host}, gateway.port {config.port}"
    try:
        found = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # `localhost` has two addresses. Most programs try the IPv4 one.
        found.sort(key=lambda entry: entry[0] != socket.AF_INET)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CommandFailed(
            f"{where}: cannot listen ({error.strerror}): correct the host"
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
                "the port is already in use, possibly by another `parley serve`: stop it (`parley chat` uses it),"
                " or set another gateway.port"
            )
        case errno.EACCES:
            return "this user is not allowed to use the port: set gateway.port to 1024 or higher"
        case errno.EADDRNOTAVAIL:
            return "this machine does not have that address: set gateway.host to 127.0.0.1"
        case _:
            return f"cannot listen ({error.strerror})"
