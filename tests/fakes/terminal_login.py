"""`parley ARGUMENTS` as a shell starts it: its standard input is its controlling terminal. `python -m` this.

Only then Ctrl-C is a signal. And it hears signals, also when the tests themselves run where they are ignored (in the
background of a script).
"""

import os
import runpy
import signal


def main() -> None:
    """Log in, and be the program."""
    os.login_tty(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    runpy.run_module("gateway", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
