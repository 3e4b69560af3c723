"""`parley backup` and `restore`, killed at each step: partial backups never count as complete; no files are left."""

import signal
import sys
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

from gateway.backup.archive import extract_archive
from gateway.backup.create import write_backup
from gateway.backup.restore import restore_backup
from gateway.backup.scratch import scratch_folder
from gateway.command_errors import CommandFailed
from gateway.compose import open_app
from gateway.config import Config
from store.errors import StoreUnavailable
from tests.gateway.test_backup import backup_of, config_of, fill, in_thread, names, tree
from tests.gateway.test_cli import environment

KILLED = """
import os, signal, sys

event, part, left = sys.argv[1], sys.argv[2], int(sys.argv[3])


def look(name, arguments):
    global left
    if name == event and part in str(arguments[0]):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(look)
from gateway.cli import main
sys.exit(main(sys.argv[4:]))
"""
"""Runs a command of Parley, and kills it right before it opens or renames a file the given number of times."""


async def kill_at(event: str, part: str, left: int, folder: Path, *command: str) -> int:
    """Return the exit code of a command that is killed if it gets this far."""
    arguments = [sys.executable, "-P", "-c", KILLED, event, part, str(left), *command]
    done = await in_thread(
        lambda: run(
            arguments, cwd=folder, env=environment(folder), capture_output=True, check=False
        )
    )
    return int(done.returncode)


@pytest.mark.parametrize(
    ("event", "part"), [("open", "copy.db"), ("open", "a.bin"), ("os.rename", "archive")]
)
async def test_a_backup_that_is_killed_leaves_no_archive_and_the_next_one_tidies_up(
    tmp_path: Path, event: str, part: str
) -> None:
    config = config_of(tmp_path / "a")
    await fill(config)
    (tmp_path / "backups").mkdir()
    file = tmp_path / "backups" / "b.tar.gz"
    command = ("backup", str(file), "--config", str(config.source))
    assert await kill_at(event, part, 1, tmp_path / "a", *command) == -signal.SIGKILL
    assert not file.exists()
    (left,) = (tmp_path / "backups").iterdir()
    if part != "archive":  # the archive is complete by then
        with pytest.raises(CommandFailed, match="is not a complete and unchanged backup"):
            extract_archive(left / "archive", tmp_path / "out", wanted=lambda _: True)
    await in_thread(lambda: write_backup(config, file))
    assert names(file.parent) == ["b.tar.gz"]
    target = config_of(tmp_path / "b")
    await in_thread(lambda: restore_backup(target, file, replace=False))
    assert tree(target.home) == tree(config.home)


async def test_a_backup_leaves_another_one_that_is_being_written_alone(tmp_path: Path) -> None:
    config = config_of(tmp_path / "a")
    await fill(config)
    with scratch_folder(tmp_path) as other:
        await in_thread(lambda: write_backup(config, tmp_path / "b.tar.gz"))
        assert other.is_dir()
    assert names(tmp_path) == ["a", "b.tar.gz"]


async def starts(config: Config) -> bool:
    """Return whether a service starts without saying that a restore must be repeated."""
    try:
        async with open_app(config):
            return True
    except StoreUnavailable as error:
        if "a restore was interrupted" not in str(error):
            raise
        return False


async def test_a_restore_that_is_killed_while_it_unpacks_changes_nothing(tmp_path: Path) -> None:
    file = await backup_of(config_of(tmp_path / "a"), tmp_path / "backup.tar.gz")
    config = config_of(tmp_path / "b")
    await fill(config)
    before = tree(config.home)
    command = ("restore", str(file), "--force", "--config", str(config.source))
    assert await kill_at("open", "a.bin", 1, tmp_path / "b", *command) == -signal.SIGKILL
    assert [name for name in names(config.home) if name.startswith(".restore-")]
    assert await starts(config)
    after: dict[str, Any] = tree(config.home)
    assert {name: after.get(name) for name in before} == before
    assert not [name for name in after if name.startswith(".restore-")]


async def test_a_restore_that_is_killed_between_two_files_has_to_be_repeated(
    tmp_path: Path,
) -> None:
    source = config_of(tmp_path / "a")
    file = await backup_of(source, tmp_path / "backup.tar.gz")
    config = config_of(tmp_path / "b")
    await fill(config)
    command = ("restore", str(file), "--force", "--config", str(config.source))
    steps = 0
    while await kill_at("os.rename", "", 1 + 3 * steps, tmp_path / "b", *command) != 0:
        steps += 1
        assert not await starts(config)
    assert steps > 2
    assert tree_of_data(config) == tree_of_data(source)
    assert await starts(config)


def tree_of_data(config: Config) -> dict[str, object]:
    """Return what a data folder contains, except the files that a restore moved aside."""
    found = tree(config.home)
    return {name: value for name, value in found.items() if not name.startswith("before-restore-")}
