"""Which Parley this is."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def edition() -> str:
    """Return the version that is installed, or that the checkout around this file has. Blocking."""
    try:
        return version("parley")
    except PackageNotFoundError:
        project = Path(__file__).parents[1] / "pyproject.toml"
        return str(tomllib.loads(project.read_text("utf-8"))["project"]["version"])
