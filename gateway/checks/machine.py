"""Checks of this machine: free disk space and inodes, database, sandbox, LangGraph server."""

import os
from pathlib import Path

import httpx

from agent.config import SandboxConfig
from agent.errors import AgentError
from agent.sandbox.bubblewrap import probe_bubblewrap
from agent.sandbox.factory import build_sandbox_provider
from agent.thread_storage import ThreadStorage
from bots.common.diagnosis import CheckResult, Severity, problem
from store.config import StoreConfig
from store.database_check import find_database_problem, find_eavesdroppers

MIN_FREE_BYTES = 100_000_000
"""With less free disk space, the journal may not be able to store the next message."""

MIN_FREE_INODES = 1000
"""With fewer free inodes, new files (databases, uploads, files of the agent) may fail although there is space."""

_TIMEOUT_S = 10.0

_ROOT = Path(__file__).parents[2]
_GUIDE = "see docs/howto/let-the-agent-run-commands.md"


def check_data_folder(home: Path, sandbox: SandboxConfig) -> CheckResult:
    """Check the free space and inodes of the data folder, which need not exist yet."""
    existing = next(path for path in (home, *home.parents) if path.exists())
    try:
        disk = os.statvfs(existing)
    except OSError as error:
        return problem(
            "data folder", f"{home}: {error.strerror}", "fix its permissions, or set PARLEY_HOME"
        )
    free = disk.f_bavail * disk.f_frsize
    usage = f"{home}, {free / 1e9:.1f} GB free"
    fix = "free up space, or set PARLEY_HOME to a folder on another disk"
    if disk.f_files and disk.f_favail < MIN_FREE_INODES:  # some file systems have no fixed number
        fix = "delete files, or set PARLEY_HOME to a folder on another disk"
        return problem("data folder", f"{usage}, but only {disk.f_favail} free inodes", fix)
    if free < MIN_FREE_BYTES:
        return problem("data folder", f"{usage}: too little for the journal", fix)
    if free < sandbox.min_free_disk_mb * 1_000_000:
        text = f"{usage}: the agent writes no files below sandbox.min_free_disk_mb"
        return CheckResult(subject="data folder", text=text, severity=Severity.WARNING, fix=fix)
    return CheckResult(subject="data folder", text=usage)


def check_database(config: StoreConfig, home: Path) -> CheckResult:
    """Check whether the database can be opened. It need not exist yet. Blocking: reads the whole database."""
    if fault := find_database_problem(config, home):
        return problem("database", fault)
    if roles := find_eavesdroppers(config):
        return CheckResult(
            subject="database",
            text=f"PostgreSQL; roles without rights on its tables may connect, and so read and forge the nodes' "
            f"notifications: {', '.join(roles)}",
            severity=Severity.WARNING,
            fix="REVOKE CONNECT on the database from PUBLIC: see docs/howto/use-postgresql.md",
        )
    return CheckResult(subject="database", text="PostgreSQL" if config.is_postgres else "SQLite")


def check_sandbox(config: SandboxConfig, home: Path) -> CheckResult:
    """Report which sandbox runs the agent's commands. Blocking: may start a test command."""
    try:
        label = build_sandbox_provider(config, ThreadStorage(home)).description
    except AgentError as error:
        return problem("sandbox", error.user_message, _GUIDE)
    if config.use == "auto" and probe_bubblewrap(config.bubblewrap_path):
        return CheckResult(subject="sandbox", text=label, severity=Severity.NOTE, fix=_GUIDE)
    return CheckResult(subject="sandbox", text=label)


async def check_langgraph_server(url: str) -> CheckResult:
    """Check whether the LangGraph server that runs turns is reachable."""
    fix = "start the server, or correct channels.langgraph_url"
    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT_S) as client:
            answer = await client.get(f"{url.rstrip('/')}/ok")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return problem("runs", f"no answer at channels.langgraph_url ({type(error).__name__})", fix)
    if answer.is_server_error:  # other implementations may not have /ok
        text = f"channels.langgraph_url answers HTTP {answer.status_code}"
        return problem("runs", text, fix)
    return CheckResult(subject="runs", text="the server of channels.langgraph_url answers")
