"""`parley` for commands that start `parley` themselves, such as the playground: `forking_parley PYTHON ARGUMENTS...`.

It takes PYTHON for the interpreter that it runs in: see `forking_parley` of tests/fork_server.py.
"""

import sys

from gateway.cli import main

if __name__ == "__main__":
    sys.executable = sys.argv.pop(1)
    sys.exit(main())
