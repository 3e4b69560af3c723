"""Parley's version."""

import importlib
import re
from functools import cache
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
"""Next to this package in a checkout. Missing if Parley is installed as a package."""

# Parsing the whole file as TOML would take about 8 ms of each start.
_VERSION = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)


@cache
def get_version() -> str:
    """Return the version of the checkout that contains this file, or of the installed package. Blocking."""
    found = _VERSION.search(PYPROJECT.read_text("utf-8")) if PYPROJECT.is_file() else None
    return (
        found[1] if found else str(importlib.import_module("importlib.metadata").version("parley"))
    )
