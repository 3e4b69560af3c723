"""Configuration reload: applies changes of the file to the running service without interrupting runs."""

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
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


class ConfigReloader:
    """Watches one configuration file.

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
        self._initial = self._config = config
        self._agents = agents
        self._on_applied = on_applied
        self._overrides = overrides
        self._hash = _content_hash(config.source)

    async def run(self) -> None:
        """Check the file periodically. Returns at once if there is no file."""
        while self._config.source is not None:
            await anyio.sleep(POLL_INTERVAL_S)
            await self.check()

    async def check(self) -> None:
        """Apply the file if its content changed. Logs and ignores an invalid file."""
        mark = await to_thread.run_sync(_content_hash, self._config.source)
        if mark == self._hash or mark is None:
            return
        self._hash = mark
        try:
            await self._apply(await to_thread.run_sync(self._load))
        except ConfigError as error:
            for problem in error.problems:
                log.error("the changed configuration is ignored: %s", problem)  # noqa: TRY400
        except AgentError as error:
            log.error("the changed configuration is ignored: %s", error.user_message)  # noqa: TRY400

    def _load(self) -> Config:
        return load_config(
            str(self._config.source), self._initial.environment, gateway=self._overrides
        )

    async def _apply(self, config: Config) -> None:
        if config.agent != self._config.agent:
            await self._agents.replace_config(config.agent)
        # Keep redacting the previous secrets, because active runs still use them.
        config = replace(config, secrets=config.secrets | self._config.secrets)
        self._config = config
        self._on_applied(config)
        unknown = await to_thread.run_sync(_unknown_model_keys, config)
        for warning in (*config.unknown_keys, *unknown, *config.warnings):
            log.warning("%s", warning)
        log.info("the changed configuration has been applied")
        if waiting := sorted(_sections_needing_restart(self._initial, config)):
            log.warning(
                "changes in these sections take effect after a restart: %s", ", ".join(waiting)
            )


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
