"""`python -m gateway` is `parley`."""

import sys

from gateway.cli import main

sys.exit(main())
