"""Lets `python -m gateway` run `parley`."""

import sys

from gateway.cli import main

sys.exit(main())
