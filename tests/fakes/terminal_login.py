"""Starts `parley ARGUMENTS` as a shell would: its standard input is its controlling terminal. Run it with `python -m`.

Only then does Ctrl-C send a signal. It also receives signals if the tests ignore them, as in a script's background job.
"""

import os
import runpy
import signal


def main() -> None:
    """Set up the terminal, then execute the program."""
    os.login_tty(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    runpy.run_module("gateway", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
