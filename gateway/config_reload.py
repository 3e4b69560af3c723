"""Configuration reload: applies changes of the file to the running service without interrupting runs."""

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import anyio
from anyio import to_thread

from agent.config import AgentConfig
from agent.errors import AgentError
from agent.factory import AgentFactory
from gateway.config import Config, load_config
from gateway.config_file import ConfigError
from gateway.misspelled_keys import find_unknown_model_keys

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 2.0
"""How often the file is checked, seconds."""

RELOADABLE_FIELDS = frozenset(
    {
        "agent", "hooks", "log_level", "log_format", "unknown_keys", "warnings", "secrets", "lines",
        "variables", "overrides",
    }
)  # fmt: skip
"""Fields that can change while the service runs. Other fields belong to open ports, files and connections."""

_RELOADABLE_KEYS = {*AgentConfig.model_fields, *RELOADABLE_FIELDS} - {"sandbox"}

SECTION_NAMES = {
    "bus": "channels",
    "bots": "channels",
    "home": "PARLEY_HOME",
    "extensions": "extensions",
}
"""Names in the file for fields with another name in `Config`."""


def needs_restart(path: str) -> bool:
    """Return whether a changed key takes effect only after a restart.

    >>> needs_restart("models[0].name"), needs_restart("channels.slack.streaming"), needs_restart("sandbox.use")
    (False, True, True)
    """
    return re.split(r"[.\[]", path, maxsplit=1)[0] not in _RELOADABLE_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadOutcome:
    """What the service did with the file's current content.

    Attributes:
        problems: Why it is ignored; empty = it is applied.
        waiting: The sections whose changes take effect after a restart.
    """

    problems: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


class ConfigReloader:
    """Watches one configuration file.

    Attributes:
        started: The configuration at the start.
        applied: The configuration that was last read from the file.

    Args:
        config: The configuration at the start.
        agents: Receives the agent's sections.
        on_applied: Called with each new configuration, to reconfigure logging and hooks.
        overrides: Keys of the `gateway` section set on the command line.
    """

    def __init__(
        self,
        config: Config,
        agents: AgentFactory,
        *,
        on_applied: Callable[[Config], None],
        overrides: Mapping[str, str],
    ) -> None:
        self.started = self.applied = config
        self._agents = agents
        self._on_applied = on_applied
        self._overrides = overrides
        self._hash = _content_hash(config.source)
        self._outcome = ReloadOutcome()
        self._checking = anyio.Lock()

    async def run(self) -> None:
        """Check the file periodically. Returns at once if there is no file."""
        while self.applied.source is not None:
            await anyio.sleep(POLL_INTERVAL_S)
            await self.check()

    async def check(self) -> ReloadOutcome:
        """Apply the file if its content changed. Logs and ignores an invalid file."""
        async with self._checking:
            mark = await to_thread.run_sync(_content_hash, self.applied.source)
            if mark != self._hash and mark is not None:
                self._hash = mark
                self._outcome = await self._apply_file()
            return self._outcome

    async def _apply_file(self) -> ReloadOutcome:
        try:
            return await self._apply(await to_thread.run_sync(self.load))
        except ConfigError as error:
            problems = error.problems
        except AgentError as error:
            problems = (error.user_message,)
        for problem in problems:
            log.error("the changed configuration is ignored: %s", problem)
        return ReloadOutcome(problems=problems)

    def load(self, text: str | None = None) -> Config:
        """Read the file, or a text in its place, as at the start. Blocking. Raises ConfigError."""
        started = self.started
        return load_config(
            str(started.source), started.environment, gateway=self._overrides, text=text
        )

    async def _apply(self, config: Config) -> ReloadOutcome:
        if config.agent != self.applied.agent:
            await self._agents.replace_config(config.agent)
        # Keep redacting the previous secrets, because active runs still use them.
        config = replace(config, secrets=config.secrets | self.applied.secrets)
        self.applied = config
        self._on_applied(config)
        unknown = await to_thread.run_sync(_unknown_model_keys, config)
        for warning in (*config.unknown_keys, *unknown, *config.warnings):
            log.warning("%s", warning)
        log.info("the changed configuration has been applied")
        waiting = self.sections_waiting(config)
        if waiting:
            log.warning(
                "changes in these sections take effect after a restart: %s", ", ".join(waiting)
            )
        return ReloadOutcome(waiting=waiting)

    def sections_waiting(self, config: Config) -> tuple[str, ...]:
        """Return the sections of a configuration that would take effect only after a restart."""
        return tuple(sorted(_sections_needing_restart(self.started, config)))


def _unknown_model_keys(config: Config) -> tuple[str, ...]:
    return tuple(find_unknown_model_keys(config, imports=False))


def _sections_needing_restart(before: Config, after: Config) -> set[str]:
    """Return the changed sections that are only read at startup."""
    changed = {
        SECTION_NAMES.get(field.name, field.name)
        for field in fields(Config)
        if field.name not in RELOADABLE_FIELDS
        and getattr(before, field.name) != getattr(after, field.name)
    }
    if before.agent.sandbox != after.agent.sandbox:
        changed.add("sandbox")
    return changed


def _content_hash(source: Path | None) -> str | None:
    """Return a hash of the file's content; None if it cannot be read."""
    if source is None:
        return None
    try:
        return hashlib.sha256(source.read_bytes()).hexdigest()
    except OSError:
        return None
