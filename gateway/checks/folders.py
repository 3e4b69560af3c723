"""Checks the data folder: files in place of folders, files of other users, keys, agents, skills."""

import os
from collections.abc import Iterator
from pathlib import Path

from agent.custom_agents import CustomAgentStore, require_known
from agent.errors import AgentInvalid
from agent.extensions import Extensions, ExtensionsFile
from agent.skills.registry import SkillRegistry
from gateway.config import WEBHOOK_KEY_FILE, Config
from gateway.runtime.webhooks import webhook_key
from store.config import CHECKPOINTS_FILE
from store.credentials import KEY_FILE, load_key
from store.data_folder import LOCK_FILE, find_interrupted_restore
from store.errors import StoreError

_FOLDERS = ("agents", "memory", "skills", "terminal", "threads")
"""Folders that the service writes, if they exist."""


def find_file_problems(config: Config) -> Iterator[str]:
    """Yield one line for each unusable file of an existing data folder. Blocking; writes nothing."""
    if problem := find_interrupted_restore(config.home):
        yield problem
    folders = ((config.files / name, True) for name in _FOLDERS)
    for path, is_folder in (*folders, *((file, False) for file in _files(config))):
        if os.path.lexists(path) and (fault := _find_fault(path, is_folder=is_folder)):
            yield f"{path}: {fault}"
    yield from _find_key_problems(config)
    yield from _find_agent_problems(config)
    yield from _find_skill_problems(config)


def _files(config: Config) -> Iterator[Path]:
    """Yield the files that the service reads and writes, except the admin token's, which is checked elsewhere."""
    databases = [config.home / CHECKPOINTS_FILE]
    if config.database.is_sqlite:
        databases.append(config.database.file(config.home))
    for database in databases:
        yield database
        yield from (database.with_name(f"{database.name}{end}") for end in ("-wal", "-shm"))
    yield from (config.home / LOCK_FILE, config.audit_file, config.log_file)


def _find_fault(path: Path, *, is_folder: bool) -> str:
    if not (path.is_dir() if is_folder else path.is_file()):
        return f"is not a {'folder' if is_folder else 'file'}: move it away"
    if not os.access(path, os.R_OK | os.W_OK | (os.X_OK if is_folder else 0)):
        return "cannot be read and written by this user: correct its owner and permissions"
    return ""


def _find_key_problems(config: Config) -> Iterator[str]:
    if os.path.lexists(config.files / KEY_FILE):
        try:
            load_key(config.files)
        except StoreError as error:
            yield f"{error}: restore it from a backup, or delete it and install the Slack apps again"
    file = config.files / WEBHOOK_KEY_FILE
    if os.path.lexists(file):
        try:
            webhook_key(file)
        except OSError as error:
            yield f"{file}: webhooks of runs cannot be signed ({error.strerror}): delete it to generate a new key"


def _find_agent_problems(config: Config) -> Iterator[str]:
    """Yield problems of custom agents and of the user profile."""
    agents = CustomAgentStore(config.files)
    is_known = not {"models", "tools", "tool_groups"} & config.dropped
    for name, found in agents.read_all():
        fault = found if isinstance(found, AgentInvalid) else None
        if not isinstance(found, AgentInvalid) and is_known:
            try:
                require_known(config.agent, found.model, found.tool_groups)
            except AgentInvalid as error:
                fault = error
        if fault is not None:
            yield f"{config.files / 'agents' / name}: {fault.user_message}"
    try:
        agents.read_profile()
    except AgentInvalid as error:
        yield f"{config.files}: {error.user_message}"


def _find_skill_problems(config: Config) -> Iterator[str]:
    file = ExtensionsFile(*config.extensions)
    skills = SkillRegistry(lambda: config.agent.skills, file, home=config.files, base=config.folder)
    for skill in skills.load_sync(Extensions()).skills:  # including disabled skills
        if skill.error:
            yield f"{skill.folder}: {skill.error}"
