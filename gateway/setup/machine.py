"""What can be said of this machine: room on the disk, what confines commands."""

import shutil
from pathlib import Path

from agent.config import SandboxConfig
from agent.errors import AgentError
from agent.folders import Folders
from agent.sandbox.bubblewrap import probe
from agent.sandbox.choice import build_sandboxes
from bots.diagnosis import Finding, Grade, problem

LEAST_BYTES = 100_000_000
"""With less free disk the journal may not take the next message."""

_GUIDE = "see docs/howto/let-the-agent-run-commands.md"


def data_folder(home: Path, sandbox: SandboxConfig) -> Finding:
    """Say how much room the data folder has; it need not exist yet."""
    existing = next(path for path in (home, *home.parents) if path.exists())
    try:
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return problem(
            "data folder", f"{home}: {error.strerror}", "correct its rights, or set PARLEY_HOME"
        )
    told = f"{home}, {free / 1e9:.1f} GB free"
    fix = "make room, or set PARLEY_HOME to another disk"
    if free < LEAST_BYTES:
        return problem("data folder", f"{told}: that is too little for the journal", fix)
    if free < sandbox.min_free_disk_mb * 1_000_000:
        text = f"{told}: below sandbox.min_free_disk_mb the agent writes no files"
        return Finding(subject="data folder", text=text, grade=Grade.WARNING, fix=fix)
    return Finding(subject="data folder", text=told)


def sandbox(config: SandboxConfig, home: Path) -> Finding:
    """Say what confines the agent's commands. Blocking: it may run a trial."""
    try:
        label = build_sandboxes(config, Folders(home)).label
    except AgentError as error:
        return problem("sandbox", error.user_message, _GUIDE)
    if config.use == "auto" and probe(config.bubblewrap_path):
        return Finding(subject="sandbox", text=label, grade=Grade.NOTE, fix=_GUIDE)
    return Finding(subject="sandbox", text=label)
