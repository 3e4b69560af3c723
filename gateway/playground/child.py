"""Replaces this process with a command that the kernel kills when its parent ends, however the parent ends.

`python child.py PARENT_PID COMMAND...`. The command keeps the process ID. It works on Linux only: elsewhere, the
command starts, but a killed parent leaves it running. Imports none of Parley's modules, so that it takes milliseconds.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""prctl(2). The setting stays through execve(2)."""


def main() -> None:
    """Run the command. Ends at once if the parent has already ended."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != int(parent):
            return
    os.execv(command[0], command)  # noqa: S606 - the playground's own command


if __name__ == "__main__":
    main()
