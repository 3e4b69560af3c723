"""`parley replay`: repeats a recording of the playground as a test. Exit code 1 = people see something else."""

import argparse
import json
import sys
from pathlib import Path

import anyio

from gateway.command_errors import CommandFailed
from gateway.playground.program import load_operator_config
from gateway.playground.replay import RecordingInvalid, check_recording, replay


def run(arguments: argparse.Namespace) -> int:
    """Repeat a recording and print the differences."""
    config = load_operator_config(arguments.config)
    try:
        recording = check_recording(json.loads(Path(arguments.file).read_text("utf-8")))
    except (OSError, RecursionError, ValueError, RecordingInvalid) as error:
        raise CommandFailed(f"{arguments.file}: cannot be read as a recording: {error}") from None
    found = anyio.run(replay, config, recording)
    for line in found:
        sys.stdout.write(f"{line}\n")
    if not found:
        count = len(recording["actions"])
        sys.stdout.write(f"No difference after {count} actions.\n")
    return 1 if found else 0
