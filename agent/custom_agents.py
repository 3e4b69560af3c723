"""Custom agents, stored as `{home}/agents/{name}/config.yaml` and SOUL.md; and the user profile, USER.md."""

import errno
import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Annotated, Any

import yaml
from anyio import to_thread
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agent.atomic_write import write_atomically
from agent.config import AgentConfig
from agent.errors import AgentExists, AgentInvalid, AgentNotFound, AgentWriteFailed
from agent.tool_names import matches

log = logging.getLogger(__name__)

MAX_NAME_CHARS = 64
MAX_SOUL_CHARS = 20_000
"""Maximum length of SOUL.md and USER.md, which are part of every prompt."""

RESERVED = frozenset({"check", "default", "lead-agent", "none", "off", "reset"})
"""Names with another meaning: a route, the lead agent, or a reset command."""

_NAME = re.compile(r"[A-Za-z0-9-]+")
_SETTINGS = "config.yaml"
_SOUL = "SOUL.md"
_MAX_BYTES = 256 * 1024


def _frozen_list(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_frozen_list)]


class CustomAgent(BaseModel):
    """One custom agent.

    Attributes:
        name: Lower-case letters, digits and hyphens.
        description: One line for people.
        model: An entry of `models`; None = the first. Runs can override it.
        tool_groups: Groups of configured tools, by name or pattern; None = all. Built-in tools are always available.
        skills: Available skills; None = all enabled ones, empty = none.
        made_by: The user who created it in a chat, `{channel}:{workspace}:{user}`; None = an administrator.
        soul: Its instructions in the prompt.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    description: str = Field(default="", max_length=1024)
    model: str | None = None
    tool_groups: Names | None = None
    skills: Names | None = None
    made_by: str | None = None
    soul: str = Field(default="", max_length=MAX_SOUL_CHARS)


def normalize_agent_name(given: str) -> str:
    """Return an agent name in its stored form.

    Raises:
        AgentInvalid: It is not a valid name.

    >>> normalize_agent_name("Code-Reviewer")
    'code-reviewer'
    """
    if len(given) > MAX_NAME_CHARS or _NAME.fullmatch(given) is None:
        raise AgentInvalid(
            f"an agent name must have 1 to {MAX_NAME_CHARS} letters, digits and hyphens"
        )
    if given.lower() in RESERVED:
        raise AgentInvalid(f"an agent cannot be named {given.lower()!r}")
    return given.lower()


def require_known(
    config: AgentConfig, model: str | None, tool_groups: Collection[str] | None
) -> None:
    """Reject unknown models and tool groups, because an agent would silently run without them. Raises AgentInvalid."""
    if model is not None and config.model_named(model) is None:
        raise AgentInvalid(f"There is no model named {model[:80]!r}.")
    if unknown := unknown_groups(config, tool_groups or ()):
        raise AgentInvalid(f"There is no tool group named {unknown[0][:80]!r}.")


def read_draft(fields: Mapping[str, Any], config: AgentConfig) -> CustomAgent:
    """Return an agent that is not stored. Raises AgentInvalid."""
    agent = _validate({"name": "draft", **fields}, "draft")
    require_known(config, agent.model, agent.tool_groups)
    return agent


def unknown_groups(config: AgentConfig, tool_groups: Iterable[str]) -> list[str]:
    """Return the names and patterns that match no group of tools, sorted."""
    known = {group.name for group in config.tool_groups} | {tool.group for tool in config.tools}
    return sorted(
        one for one in set(tool_groups) if not any(matches(group, [one]) for group in known)
    )


def soul_section(agent: CustomAgent) -> str:
    r"""Return the prompt section of a custom agent; "" if its soul is empty.

    >>> soul_section(CustomAgent(name="a", soul="Be <b>kind</b>."))
    '<soul>\nBe &lt;b&gt;kind&lt;/b&gt;.\n</soul>'
    """
    soul = agent.soul.strip()
    return f"<soul>\n{escape(soul, quote=False)}\n</soul>" if soul else ""


def profile_section(profile: str) -> str:
    r"""Return the prompt section about the users; "" without a profile.

    >>> profile_section("We speak Danish.")
    '<user_profile>\nWe speak Danish.\n</user_profile>'
    """
    text = profile.strip()
    return f"<user_profile>\n{escape(text, quote=False)}\n</user_profile>" if text else ""


class CustomAgentStore:
    """The custom agents of a data folder. Every call reads the disk.

    Args:
        home: The data folder.
    """

    def __init__(self, home: Path) -> None:
        self._root = home / "agents"
        self._profile = home / "USER.md"
        self._lock = threading.Lock()

    async def list_agents(self) -> list[CustomAgent]:
        """Return all agents, sorted by name. Logs and ignores invalid ones."""
        return await to_thread.run_sync(lambda: list(self._all()))

    def stored_names(self) -> set[str]:
        """Return the names of all agents. Blocking: call it in a worker thread."""
        return {agent.name for agent in self.read_valid()}

    def read_valid(self) -> list[CustomAgent]:
        """Return all agents without the invalid ones, sorted by name. Blocking: call it in a worker thread."""
        return [agent for _, agent in self.read_all() if isinstance(agent, CustomAgent)]

    def read_all(self) -> Iterator[tuple[str, CustomAgent | AgentInvalid]]:
        """Yield each name with the agent, or with the reason why it is invalid, sorted by name. Blocking."""
        try:
            names = sorted(entry.name for entry in self._root.iterdir())
        except OSError:
            return
        for name in names:
            if _NAME.fullmatch(name) is None:
                continue
            try:
                yield name, self.load(name)
            except AgentNotFound:
                continue
            except AgentInvalid as error:
                yield name, error

    async def get(self, name: str) -> CustomAgent:
        """Return an agent.

        Raises:
            AgentNotFound: There is no agent with this name.
            AgentInvalid: Its files are invalid.
        """
        return await to_thread.run_sync(lambda: self.load(name))

    def load(self, name: str) -> CustomAgent:
        """Like `get`, but blocking: call it in a worker thread."""
        try:
            stored = normalize_agent_name(name)
        except AgentInvalid as error:
            raise AgentNotFound(_no_agent(name)) from error
        folder = self._root / stored
        if folder.is_symlink() or not folder.is_dir():
            raise AgentNotFound(_no_agent(stored))
        fields = _settings(folder / _SETTINGS, stored)
        return _validate({**fields, "name": stored, "soul": _text(folder / _SOUL)}, stored)

    async def exists(self, name: str) -> bool:
        """Return whether the name is taken. Raises AgentInvalid if it is not a valid name."""
        folder = self._root / normalize_agent_name(name)
        return await to_thread.run_sync(lambda: os.path.lexists(folder))

    async def create(self, agent: CustomAgent) -> CustomAgent:
        """Create an agent.

        Raises:
            AgentInvalid, AgentExists, AgentWriteFailed: It cannot be created.
        """
        return await to_thread.run_sync(lambda: self._create(agent))

    async def update(self, name: str, change: Callable[[CustomAgent], CustomAgent]) -> CustomAgent:
        """Change an agent atomically. Its name is kept. An exception in `change` cancels the update.

        Raises:
            AgentNotFound, AgentInvalid, AgentWriteFailed: It cannot be changed.
        """
        return await to_thread.run_sync(lambda: self._change(name, change))

    async def delete(self, name: str) -> None:
        """Delete an agent with its files. Raises AgentNotFound, AgentWriteFailed."""
        await to_thread.run_sync(lambda: self._delete(name))

    async def load_profile(self) -> str:
        """Return the user profile; "" without one."""
        return await to_thread.run_sync(self.read_profile)

    def read_profile(self) -> str:
        """Like `load_profile`, but blocking: call it in a worker thread. Raises AgentInvalid if it cannot be read."""
        return _text(self._profile)

    async def write_profile(self, text: str) -> None:
        """Replace the user profile. Raises AgentInvalid if it is too long, AgentWriteFailed."""
        if len(text) > MAX_SOUL_CHARS:
            raise AgentInvalid(f"the profile has more than {MAX_SOUL_CHARS} characters")
        with _write_errors():
            await to_thread.run_sync(lambda: write_atomically(self._profile, text.encode()))

    def _all(self) -> Iterator[CustomAgent]:
        for name, found in self.read_all():
            if isinstance(found, AgentInvalid):
                log.warning("Skipping custom agent %s: %s", name, found)
            else:
                yield found

    def _create(self, agent: CustomAgent) -> CustomAgent:
        name = normalize_agent_name(agent.name)
        made = _validate({**agent.model_dump(), "name": name}, name)
        with self._lock, _write_errors():
            folder = self._root / name
            if os.path.lexists(folder):
                raise AgentExists
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Create it elsewhere and rename it, so that readers never see a partial agent. Agent names contain no dots.
            staged = Path(tempfile.mkdtemp(dir=self._root, prefix=".new."))
            try:
                _store(staged, made)
                staged.rename(folder)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # Another node created it first.
                    raise AgentExists from error
                raise
            finally:
                shutil.rmtree(staged, ignore_errors=True)
        return made

    def _change(self, name: str, change: Callable[[CustomAgent], CustomAgent]) -> CustomAgent:
        with self._lock:
            old = self.load(name)
            new = _validate({**change(old).model_dump(), "name": old.name}, old.name)
            with _write_errors():
                _store(self._root / old.name, new)
        return new

    def _delete(self, name: str) -> None:
        try:
            folder = self._root / normalize_agent_name(name)
        except AgentInvalid as error:
            raise AgentNotFound from error
        with self._lock, _write_errors():
            if folder.is_symlink() or not folder.is_dir():
                raise AgentNotFound(_no_agent(folder.name))
            aside = folder.with_name(f".gone.{folder.name}.{os.getpid()}")
            folder.rename(aside)
            shutil.rmtree(aside)


def _no_agent(name: str) -> str:
    shown = "".join(char for char in name if char.isprintable())[:MAX_NAME_CHARS]
    return f"There is no agent named {shown!r}."


def _settings(file: Path, name: str) -> dict[str, Any]:
    text = _text(file)
    try:
        found = yaml.safe_load(text) if text.strip() else {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise AgentInvalid(f"the agent {name}: config.yaml is not valid YAML") from error
    if not isinstance(found, dict):
        raise AgentInvalid(f"the agent {name}: config.yaml must consist of `key: value` lines")
    return {str(key): value for key, value in found.items()}


def _validate(fields: dict[str, Any], name: str) -> CustomAgent:
    try:
        return CustomAgent.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise AgentInvalid(f"the agent {name}: {key}: {first['msg']}") from error


def _store(folder: Path, agent: CustomAgent) -> None:
    fields = agent.model_dump(exclude={"soul"}, exclude_none=True)
    fields = {key: list(v) if isinstance(v, tuple) else v for key, v in fields.items()}
    write_atomically(folder / _SOUL, agent.soul.encode())
    settings = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
    write_atomically(folder / _SETTINGS, settings.encode())


def _text(file: Path) -> str:
    """Return a file's text; "" if it does not exist. Raises AgentInvalid."""
    try:
        with file.open("rb") as source:
            raw = source.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise AgentInvalid(f"{file.name} cannot be read: {error.strerror}") from error
    if len(raw) > _MAX_BYTES:
        raise AgentInvalid(f"{file.name} is too large")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AgentInvalid(f"{file.name} is not UTF-8") from error


@contextmanager
def _write_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        log.warning("Could not write a custom agent: %s", error)
        raise AgentWriteFailed from error
