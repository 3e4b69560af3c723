"""Which Parley this is."""

import importlib
import re
from functools import cache
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
"""Beside this package in a checkout, nowhere where Parley was installed as a package."""

# Reading the whole file as TOML takes some 8 ms of every start.
_VERSION = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)


@cache
def get_version() -> str:
    """Return the version that the checkout around this file has, or that is installed. Blocking."""
    found = _VERSION.search(PYPROJECT.read_text("utf-8")) if PYPROJECT.is_file() else None
    return (
        found[1] if found else str(importlib.import_module("importlib.metadata").version("parley"))
    )
