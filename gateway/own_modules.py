"""Modules of your own: those beside the configuration, which its `module:attribute` values may name."""

import sys
from pathlib import Path


def make_importable(folder: Path) -> None:
    """Put the folder of the configuration on Python's path, at its end: it replaces no installed module."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
