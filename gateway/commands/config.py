"""`parley config upgrade`: adds the keys of newer versions to the configuration file."""

import argparse
import sys
from pathlib import Path

from gateway.command_errors import CommandFailed
from gateway.config import CONFIG_VERSION, environment_variables
from gateway.config_file import find_config, parse_yaml
from gateway.config_upgrade import ConfigUpgradeError, upgrade_config
from gateway.file_drafts import FileDraft, backup_draft, write_drafts

EXAMPLE_FILE = "config.example.yaml"
EXAMPLE_FOLDERS = Path(__file__).parents[2], Path(__file__).parents[1]
"""Locations of the example: next to the packages in a checkout, inside this package if Parley is installed."""


def run(arguments: argparse.Namespace) -> int:
    """Upgrade the file and keep a backup (`.bak`). Does nothing if the file is up to date."""
    source = find_config(arguments.config, environment_variables(Path())[0])
    if source is None:
        raise CommandFailed(
            "there is no configuration file to upgrade: copy config.example.yaml to config.yaml, or pass one"
            " with --config"
        )
    try:
        before = source.read_text("utf-8")
        parse_yaml(before, source)  # Its errors say more than the upgrade's.
        after = upgrade_config(before, _example(), version=CONFIG_VERSION)
        if after is None:
            sys.stdout.write(f"{source} is up to date (config_version {CONFIG_VERSION}).\n")
            return 0
        draft = FileDraft(path=source, current_text=before, new_text=after, replaced_keys=())
        backup = backup_draft(draft)
        write_drafts([backup, draft])
    except ConfigUpgradeError as error:
        raise CommandFailed(f"{source}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{source}: cannot be upgraded ({error})") from None
    sys.stdout.write(
        f"{source} now has config_version {CONFIG_VERSION}; the previous file is {backup.path}.\n"
    )
    return 0


def _example() -> str:
    file = next(path for folder in EXAMPLE_FOLDERS if (path := folder / EXAMPLE_FILE).is_file())
    return file.read_text("utf-8")
