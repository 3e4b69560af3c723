"""The editor of the configuration file: its text without secrets, findings beside its lines, saving and undo."""

import difflib
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from gateway.config import Config
from gateway.config_file import ConfigError, parse_yaml, read_config_text
from gateway.config_reload import ConfigReloader, ReloadOutcome
from gateway.config_sources import KeyInForce, changed_keys, list_keys
from gateway.config_text import HiddenText, KeyNotSettable, hide_secrets, set_key
from gateway.file_drafts import FileDraft, backup_draft, read_text, write_drafts

_LINE = re.compile(r"line (\d+)(?:, column \d+)?: ")
_LAST_SEGMENT = re.compile(r"(\.[^.\[\]]*|\[\d+\]|^[^.\[\]]+)$")

NO_FILE = (
    "There is no configuration file: the service runs with its defaults. `parley init` writes one."
)
CHANGED_MEANWHILE = "The file has changed: load it again."
NOTHING_TO_UNDO = "There is no previous version."


class ConfigNotSaved(Exception):
    """The file was not written.

    Attributes:
        problems: The reasons, one line each.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class ConfigChangedMeanwhile(ConfigNotSaved):
    """The file is no longer the version that was edited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigText:
    """The file as people may see it.

    Attributes:
        path: The file.
        text: Its text, with marks instead of secrets.
        version: A hash of its content.
        problem: Why it cannot be saved; "" = it can.
        has_previous: Whether a previous version is kept.
    """

    path: str
    text: str
    version: str
    problem: str
    has_previous: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFinding:
    """A finding of `parley check`.

    Attributes:
        line: The line of the file, from 1; 0 = it belongs to no line.
        message: The key and the problem.
        prevents_saving: Whether the service would ignore the file or the key.
    """

    line: int
    message: str
    prevents_saving: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedText:
    """The effects that saving a text would have.

    Attributes:
        difference: Lines of a unified diff from the file to the text, without secrets.
        waiting: Sections that would take effect after a restart.
    """

    findings: tuple[ConfigFinding, ...]
    difference: tuple[str, ...]
    waiting: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedText:
    """The file was written.

    Attributes:
        changed: The keys whose values changed.
        outcome: What the running service did with the new file.
    """

    version: str
    changed: tuple[str, ...]
    outcome: ReloadOutcome


class ConfigEditor:
    """Shows and saves the file that a `ConfigReloader` watches.

    Args:
        reload: Applies the saved file.
        find_problems: Yields the findings of `parley check` for a valid configuration. Blocking.
    """

    def __init__(
        self, reload: ConfigReloader, find_problems: Callable[[Config], Iterable[str]]
    ) -> None:
        self._reload = reload
        self._find_problems = find_problems
        self._saving = anyio.Lock()
        self._checks = anyio.CapacityLimiter(1)

    def list_keys(self) -> list[KeyInForce]:
        """Return the configuration in force."""
        return list_keys(self._reload.started, self._reload.applied)

    @property
    def _file(self) -> Path:
        source = self._reload.started.source
        if source is None:
            raise ConfigNotSaved(NO_FILE)
        return source

    async def read(self) -> ConfigText:
        """Return the file. Raises ConfigNotSaved if it does not exist, ConfigError if it cannot be read."""
        return await to_thread.run_sync(self._read)

    def _read(self) -> ConfigText:
        text = read_config_text(self._file)
        return ConfigText(
            path=str(self._file),
            text=hide_secrets(text).text,
            version=_version(text),
            problem=_find_write_problem(self._file),
            has_previous=_backup(self._file).exists(),
        )

    async def check(self, edited: str) -> CheckedText:
        """Check an edited text. Raises the same errors as `read`."""
        return await to_thread.run_sync(self._check, edited, limiter=self._checks)

    def _check(self, edited: str) -> CheckedText:
        hidden = hide_secrets(read_config_text(self._file))
        lines = difflib.unified_diff(
            hidden.text.splitlines(), edited.splitlines(), "", "", n=2, lineterm=""
        )
        difference = tuple(lines)[2:]
        try:
            config, problems = self._load(hidden.restore(edited))
        except KeyNotSettable as error:
            finding = _finding(str(error), {}, prevents_saving=True)
            return CheckedText(findings=(finding,), difference=difference, waiting=())
        return CheckedText(
            findings=tuple(
                sorted(self._findings(hidden, edited, config, problems), key=lambda one: one.line)
            ),
            difference=difference,
            waiting=self._reload.sections_waiting(config) if config and not problems else (),
        )

    def _load(self, text: str) -> tuple[Config | None, list[str]]:
        """Return the readable part of a text, and why the service would not use it."""
        try:
            config = self._reload.load(text)
        except ConfigError as error:
            config_part = error.partial if isinstance(error.partial, Config) else None
            return config_part, list(error.problems)
        return config, []

    def _findings(
        self, hidden: HiddenText, edited: str, config: Config | None, problems: list[str]
    ) -> Iterator[ConfigFinding]:
        try:
            lines = parse_yaml(hidden.restore(edited), self._file).lines
        except ConfigError:
            lines = {}
        fatal = [*problems, *(config.unknown_keys if config else ())]
        others = [*self._find_problems(config), *config.warnings] if config else []
        for line in dict.fromkeys([*fatal, *others]):
            text = line.removeprefix(f"{self._file}: ")
            yield _finding(text, lines, prevents_saving=line in fatal)

    async def save(self, edited: str, version: str) -> SavedText:
        """Write an edited text, keep the previous version, and apply it.

        Args:
            edited: The text, with the marks of the version that was read.
            version: The version that was read.

        Raises:
            ConfigChangedMeanwhile: The file has another version.
            ConfigNotSaved: The service would not use the text, or the file cannot be written.
            ConfigError: The file cannot be read.
        """
        async with self._saving:
            saved = await to_thread.run_sync(self._save, edited, version)
            return await self._applied(*saved)

    async def undo(self, version: str) -> SavedText:
        """Swap the file with its previous version, and apply it. Raises the same errors as `save`."""
        async with self._saving:
            saved = await to_thread.run_sync(self._undo, version)
            return await self._applied(*saved)

    async def _applied(self, text: str, before: str) -> SavedText:
        outcome = await self._reload.check()
        changed = await to_thread.run_sync(self._changed, before, text)
        return SavedText(version=_version(text), changed=changed, outcome=outcome)

    def _save(self, edited: str, version: str) -> tuple[str, str]:
        current = self._current(version)
        try:
            text = hide_secrets(current).restore(edited)
        except KeyNotSettable as error:
            raise ConfigNotSaved(str(error)) from None
        config, problems = self._load(text)
        if fatal := [*problems, *(config.unknown_keys if config else ())]:
            prefix = f"{self._file}: "
            raise ConfigNotSaved(*(line.removeprefix(prefix) for line in fatal))
        self._write(current, text)
        return text, current

    def _undo(self, version: str) -> tuple[str, str]:
        current = self._current(version)
        previous = read_text(_backup(self._file))
        if previous is None:
            raise ConfigNotSaved(NOTHING_TO_UNDO)
        self._write(current, previous)
        return previous, current

    def _current(self, version: str) -> str:
        current = read_config_text(self._file)
        if _version(current) != version:
            raise ConfigChangedMeanwhile(CHANGED_MEANWHILE)
        return current

    def _write(self, current: str, text: str) -> None:
        draft = FileDraft(path=self._file, current_text=current, new_text=text, replaced_keys=())
        if not draft.changed:
            return
        try:
            write_drafts([backup_draft(draft), draft])
        except OSError as error:
            raise ConfigNotSaved(
                _find_write_problem(self._file) or f"{self._file}: {error.strerror}"
            ) from None

    def _changed(self, before: str, after: str) -> tuple[str, ...]:
        old, new = self._load(before)[0], self._load(after)[0]
        return tuple(changed_keys(old, new)) if old and new else ()

    async def set_key(self, edited: str, key: str, value: str) -> str:
        """Return an edited text with one key set. Raises KeyNotSettable."""
        return await to_thread.run_sync(set_key, edited, key, value)


def _finding(text: str, lines: Mapping[str, int], *, prevents_saving: bool) -> ConfigFinding:
    """Find the line of a problem that `load_config` reported: "key.path: what", or "line N: what"."""
    if found := _LINE.match(text):
        line, message = int(found[1]), text[found.end() :]
        return ConfigFinding(line=line, message=message, prevents_saving=prevents_saving)
    key = text.partition(": ")[0]
    while key and key not in lines:
        key = _LAST_SEGMENT.sub("", key) if " " not in key else ""
    return ConfigFinding(line=lines.get(key, 0), message=text, prevents_saving=prevents_saving)


def _version(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _backup(file: Path) -> Path:
    return file.with_name(f"{file.name}.bak")


def _find_write_problem(file: Path) -> str:
    """Return why a file cannot be replaced; "" = it can."""
    target = file.resolve()
    if not os.access(target, os.W_OK) or not os.access(target.parent, os.W_OK | os.X_OK):
        return f"{file} is read-only here: change it where it comes from, such as a ConfigMap or a mount."
    return ""
