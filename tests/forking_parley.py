"""`parley` for commands that start `parley` themselves, such as the playground: `forking_parley PYTHON ARGUMENTS...`.

It acts as if it ran in the interpreter PYTHON: see `forking_parley` in tests/fork_server.py.
"""

import sys

from gateway.cli import main

if __name__ == "__main__":
    sys.executable = sys.argv.pop(1)
    sys.exit(main())
