"""`parley restore`: replaces the data folder with a backup."""

import argparse
import sys
from pathlib import Path

from gateway.backup.restore import restore_backup
from gateway.config import load_config


def run(arguments: argparse.Namespace) -> int:
    """Restore a backup. Refuses while a service runs, and refuses to replace data without `--force`."""
    config = load_config(arguments.config)
    manifest, aside = restore_backup(config, Path(arguments.file), replace=arguments.force)
    lines = [
        f"{config.home}: restored {manifest.file_count} files of {manifest.created_at}"
        f" (Parley {manifest.version}, schema {manifest.schema})."
    ]
    if aside is not None:
        lines.append(f"The previous data are in {aside}.")
    lines.append("Start Parley: it answers messages that were waiting at the time of the backup.")
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0
