"""A program whose process is forked: `python -IS fork_client.py ADDRESS REPORT MODULE ARGUMENTS...`.

It has the files, environment, folder and exit code of `python -m MODULE ARGUMENTS`: see tests/fork_server.py. Imports
nothing of ours, so that it takes milliseconds.
"""

import json
import os
import socket
import sys


def main() -> None:
    """Ask, and end like the process that was forked."""
    address, report, module, *arguments = sys.argv[1:]
    asked = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109 - pathlib takes longer to import
        "module": module,
        "report": report,
    }
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # open as long as this process
    server.connect(bytes.fromhex(address))
    status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(server, [json.dumps(asked).encode()], [0, 1, 2, theirs.fileno()])
    if not status.recv(16):
        os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])  # noqa: S606
    code = int(status.recv(16))
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
