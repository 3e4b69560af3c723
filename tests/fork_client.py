"""Client of the fork server: `python -IS fork_client.py ADDRESS REPORT MODULE ARGUMENTS...`.

It behaves like `python -m MODULE ARGUMENTS`: the same files, environment, folder and exit code; it forwards SIGTERM.
See tests/fork_server.py. It imports nothing of ours, so it starts in milliseconds.
"""

import json
import os
import signal
import socket
import sys


def main() -> None:
    """Request a fork, then exit with the forked process's exit code."""
    address, report, module, *arguments = sys.argv[1:]
    asked = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109 - pathlib takes longer to import
        "module": module,
        "report": report,
    }
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # open until this process ends
    server.connect(bytes.fromhex(address))
    status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(server, [json.dumps(asked).encode()], [0, 1, 2, theirs.fileno()])
    pid = int(status.recv(16) or 0)
    if not pid:
        os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])  # noqa: S606
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(pid, number))
    code = int(status.recv(16))
    if code < 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
