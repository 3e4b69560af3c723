"""`parley backup`: writes the data folder into one archive. The service may be running."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from gateway.backup.create import write_backup
from gateway.config import Config, load_config


def run(arguments: argparse.Namespace) -> int:
    """Write the archive, and print what it contains and what it omits."""
    config = load_config(arguments.config)
    file = Path(arguments.file)
    manifest = write_backup(config, file)
    lines = [
        f"{file}: {manifest.file_count} files, {file.stat().st_size / 1e6:.1f} MB"
        f" ({manifest.total_bytes / 1e6:.1f} MB uncompressed), schema {manifest.schema}.",
        "It contains conversations and the keys in the data folder: protect it as you protect the data folder.",
        *(f"Not included: {path}" for path in files_outside(config) if path.exists()),
        *_bucket_outside(config),
        *(f"Skipped: {name}" for name in manifest.skipped),
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _bucket_outside(config: Config) -> Iterator[str]:
    if config.storage.is_bucket:
        yield (
            f"Not included: the files and keys in {config.storage.url}. Turn on versioning in the bucket, or copy it"
            " now: files that are deleted later are missing after a restore."
        )


def files_outside(config: Config) -> list[Path]:
    """Return files and settings that the service needs but that are outside its data folder."""
    source = config.source or Path("config.yaml").absolute()
    memory = config.files / (config.agent.memory.storage_path or "memory")
    needed = [source, source.with_name(".env"), *config.extensions, memory, config.files]
    return [path for path in needed if not path.is_relative_to(config.home)]
