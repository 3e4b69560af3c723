"""`parley upgrade-check`: tries this version's migrations on a copy of existing data."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from gateway.backup.scratch import scratch_folder
from gateway.backup.trial_upgrade import (
    UpgradeTrial,
    copy_for_trial,
    extract_for_trial,
    try_upgrade,
)
from gateway.command_errors import CommandFailed
from gateway.config import load_config
from gateway.version import get_version
from store.config import StoreConfig


def run(arguments: argparse.Namespace) -> int:
    """Report what an upgrade would do. Does not change the data. Fails if this version cannot use them."""
    config = load_config(arguments.config)
    source = Path(arguments.source) if arguments.source else config.home
    try:
        trial = _try_upgrade(source, config.database)
    except OSError as error:
        raise CommandFailed(f"{source}: cannot be copied ({error.strerror})") from error
    sys.stdout.write("".join(f"{line}\n" for line in _report(source, trial)))
    return 0


def _try_upgrade(source: Path, database: StoreConfig) -> UpgradeTrial:
    """Try the upgrade on copies next to the data, where there is most likely space."""
    with scratch_folder(source.parent) as scratch:
        if source.is_file():
            extract_for_trial(source, scratch)
        else:
            copy_for_trial(source, database.file(source), scratch)
        return try_upgrade(scratch)


def _report(source: Path, trial: UpgradeTrial) -> Iterator[str]:
    yield f"{source}: schema {trial.before}; Parley {get_version()} uses schema {trial.after}."
    if trial.migrations:
        names = ", ".join(f"{number:04d}" for number in trial.migrations)
        yield (
            f"The first start applies {len(trial.migrations)} migrations ({names}). On a copy this took"
            f" {trial.duration_s:.1f} s and succeeded. It needs up to {trial.journal_bytes / 1e6:.0f} MB of free space."
        )
        yield "An older Parley cannot use the data afterwards: run `parley backup` first."
    else:
        yield "The first start changes nothing."
