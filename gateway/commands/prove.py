"""`parley prove`: runs a checkout's proof, which kills the service at random and accounts for every message."""

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

from gateway.command_errors import CommandFailed

CHECKOUT = Path(__file__).parents[2]
HARNESS = CHECKOUT / "tests" / "prove" / "__main__.py"
NEEDED = ("aiohttp", "pytest")
"""Packages of the development install that the simulated platforms need."""


def run(arguments: argparse.Namespace) -> int:
    """Run the proof in its own process. Return its exit code: 1 = a promise was broken."""
    if not HARNESS.is_file():
        raise CommandFailed(
            "parley prove needs a checkout of Parley's repository: the simulated platforms are part of its tests."
        )
    if any(importlib.util.find_spec(package) is None for package in NEEDED):
        raise CommandFailed(
            "parley prove needs the development packages: run it with `make prove`."
        )
    options = {
        "--seed": arguments.seed,
        "--minutes": arguments.minutes,
        "--hours": arguments.hours,
        "--messages": arguments.messages,
        "--rate": arguments.rate,
        "--people": arguments.people,
        "--bursts": arguments.bursts,
        "--fault-every": arguments.fault_every,
        "--nodes": arguments.nodes,
        "--report": Path(arguments.report).absolute(),
    }
    given = [
        text for name, value in options.items() if value is not None for text in (name, str(value))
    ]
    given += ["--fork"] if arguments.fork else []
    program = [sys.executable, "-P", "-m", "tests.prove", *given]
    return subprocess.run(program, cwd=CHECKOUT, check=False).returncode  # noqa: S603 - our own program
