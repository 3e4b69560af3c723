"""Loads skills from folders with a SKILL.md, public and custom ones."""

import logging
import os
import stat
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from agent.errors import SkillInvalid
from agent.skills import manifest
from agent.skills.manifest import SkillManifest, ToolGrant

log = logging.getLogger(__name__)

Category = Literal["public", "custom"]

MAX_DEPTH = 6
"""Maximum depth of a skill's folder below its root."""

MAX_FOLDERS = 5_000
"""Maximum number of folders per root."""

STABLE_S = 0.1
"""Changes younger than this are checked again, because file system timestamps may be 10 ms apart."""

Stamp = tuple[int, int, int, int]
"""Modification and change time (ns), size, inode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One skill on disk.

    Attributes:
        name: The name in its frontmatter; the folder's name if the skill is broken.
        category: `public` (part of the program) or `custom` (in the data folder).
        folder: Its folder on this machine, links resolved.
        virtual_folder: Its folder as the agent sees it.
        compatibility: What it needs from its environment.
        metadata: Further keys and texts in its frontmatter.
        allowed_tools: The tools that need no approval while it is in use.
        only_tools: The only tools that may be called while it is in use; None = all.
        enabled: Whether the agent may use it; never true for a broken skill.
        error: Why it is broken; None = it is valid.
    """

    name: str
    description: str = ""
    license: str | None = None
    category: Category
    folder: Path
    virtual_folder: str
    compatibility: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    allowed_tools: tuple[ToolGrant, ...] = ()
    only_tools: tuple[str, ...] | None = None
    enabled: bool = True
    error: str | None = None

    @property
    def location(self) -> str:
        """Return the virtual path of its SKILL.md."""
        return f"{self.virtual_folder}/{manifest.FILE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillSnapshot:
    """All skills at one point in time, sorted by name, including broken ones."""

    skills: tuple[Skill, ...] = ()

    @property
    def enabled(self) -> tuple[Skill, ...]:
        """Return the enabled skills."""
        return tuple(skill for skill in self.skills if skill.enabled)

    def find(self, name: str, category: Category | None = None) -> Skill | None:
        """Return the skill with this name, preferably a valid one; None if there is no such skill."""
        found = [
            skill
            for skill in self.skills
            if skill.name == name and category in (None, skill.category)
        ]
        return min(found, key=lambda skill: skill.error is not None, default=None)


class SkillLoader:
    """Loads skills. While nothing changes, loading takes one `stat` per folder and file.

    Args:
        public: The folder of public skills.
        custom: The folder of custom skills, which hide public ones with the same name.
        container_path: The virtual folder of both.
    """

    def __init__(self, *, public: Path, custom: Path, container_path: str) -> None:
        self._roots: tuple[tuple[Category, Path], ...] = (("custom", custom), ("public", public))
        self._container_path = container_path.rstrip("/")
        self._read: dict[Path, tuple[Stamp | None, SkillManifest | str]] = {}
        self._logged: set[tuple[Path, str | None]] = set()
        self._watched: dict[str, Stamp | None] = {}
        self._is_stable = False
        self._switches: dict[str, bool] = {}
        self._snapshot = SkillSnapshot()

    def load(self, switches: Mapping[str, bool]) -> SkillSnapshot:
        """Return the current skills; the same object while nothing changes. Blocking.

        Args:
            switches: Whether each skill is enabled, by name. The default is true.
        """
        if self._is_stable and switches == self._switches and self._is_unchanged():
            return self._snapshot
        began_s = time.time()
        self._watched = {}
        snapshot = self._search(switches)
        if snapshot != self._snapshot:
            self._snapshot = snapshot
        self._switches = dict(switches)
        # Two changes within one clock tick look the same, so check recent ones again.
        stamps = [stamp for stamp in self._watched.values() if stamp is not None]
        newest_ns = max((max(stamp[:2]) for stamp in stamps), default=0)
        self._is_stable = began_s - newest_ns / 1e9 > STABLE_S
        return self._snapshot

    def _is_unchanged(self) -> bool:
        return all(_stamp(path) == stamp for path, stamp in self._watched.items())

    def _search(self, switches: Mapping[str, bool]) -> SkillSnapshot:
        known, self._read = self._read, {}
        valid: dict[str, Skill] = {}
        broken: list[Skill] = []
        for category, root in self._roots:
            for parts, folder in _folders(root, self._watched):
                skill = self._skill(category, parts, folder, known)
                rival = valid.get(skill.name)
                if skill.error is not None:
                    broken.append(skill)
                elif rival is None:
                    valid[skill.name] = replace(skill, enabled=switches.get(skill.name, True))
                elif rival.category == category:
                    error = f"the name is already used by {rival.virtual_folder}"
                    broken.append(replace(skill, enabled=False, error=error))
        self._log_broken(broken)
        listed = (*valid.values(), *broken)
        return SkillSnapshot(
            skills=tuple(sorted(listed, key=lambda skill: (skill.name, skill.virtual_folder)))
        )

    def _skill(
        self,
        category: Category,
        parts: tuple[str, ...],
        folder: Path,
        known: Mapping[Path, tuple[Stamp | None, SkillManifest | str]],
    ) -> Skill:
        place = "/".join((self._container_path, category, *parts))
        parsed = self._manifest(folder / manifest.FILE, known)
        if isinstance(parsed, SkillManifest) and not place.isprintable():
            parsed = "the folder name contains unprintable characters"
        if isinstance(parsed, str):
            return Skill(
                name=parts[-1],
                category=category,
                folder=folder,
                virtual_folder=place,
                enabled=False,
                error=parsed,
            )
        return Skill(
            name=parsed.name,
            description=parsed.description,
            license=parsed.license,
            category=category,
            folder=folder,
            virtual_folder=place,
            compatibility=parsed.compatibility,
            metadata=parsed.metadata,
            allowed_tools=parsed.allowed_tools,
            only_tools=parsed.only_tools,
        )

    def _manifest(
        self, file: Path, known: Mapping[Path, tuple[Stamp | None, SkillManifest | str]]
    ) -> SkillManifest | str:
        """Return the parsed manifest, or a description of the error."""
        stamp = self._watched[str(file)] = _stamp(str(file))
        before = known.get(file)
        parsed = (
            before[1] if before is not None and self._is_stable and before[0] == stamp else None
        )
        if parsed is None:
            parsed = _parse_file(file)
        self._read[file] = (stamp, parsed)
        return parsed

    def _log_broken(self, broken: Sequence[Skill]) -> None:
        """Log each broken skill once, and again when its error changes."""
        for skill in broken:
            if (skill.folder, skill.error) not in self._logged:
                log.warning("skill %r cannot be used: %s", str(skill.folder), skill.error)
        self._logged = {(skill.folder, skill.error) for skill in broken}


def _stamp(path: str) -> Stamp | None:
    """Return a stamp that changes with the content of a file or folder; None if it does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116 - several times faster than Path, and called for every run
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def _parse_file(file: Path) -> SkillManifest | str:
    try:
        return manifest.parse_manifest(_text(file))
    except SkillInvalid as error:
        return error.user_message


def _text(file: Path) -> str:
    try:
        status = file.stat()
    except OSError as error:
        reason = f"there is no file named exactly {manifest.FILE}"
        raise SkillInvalid(reason) from error
    if not stat.S_ISREG(status.st_mode):
        raise SkillInvalid(f"{manifest.FILE} is not a regular file")
    if status.st_size > manifest.MAX_BYTES:
        raise SkillInvalid(f"{manifest.FILE} is larger than {manifest.MAX_BYTES // 1024} KB")
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise SkillInvalid(f"{manifest.FILE} is not UTF-8") from error
    except OSError as error:
        raise SkillInvalid(f"{manifest.FILE} cannot be read: {error.strerror}") from error


def _folders(
    root: Path, watched: dict[str, Stamp | None]
) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yield skill folders below a root, with their relative path. Folders inside a skill belong to it.

    Args:
        root: The root.
        watched: Receives the stamps of the visited folders, taken before reading them.
    """
    seen: set[tuple[int, int]] = set()
    waiting: deque[tuple[tuple[str, ...], str]] = deque([((), os.fspath(root))])
    while waiting and len(seen) < MAX_FOLDERS:
        parts, folder = waiting.popleft()
        watched[folder] = _stamp(folder)
        try:
            status = os.stat(folder)  # noqa: PTH116 - as above
            with os.scandir(folder) as entries:
                found = sorted((entry.name, entry.is_dir()) for entry in entries)
        except OSError:
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        if parts and any(name.lower() == manifest.FILE.lower() for name, _ in found):
            yield parts, Path(os.path.realpath(folder))
        elif len(parts) < MAX_DEPTH:
            waiting += [
                ((*parts, name), f"{folder}/{name}")
                for name, is_folder in found
                if is_folder and not name.startswith(".")
            ]


def public_root(path: str, bases: Sequence[Path]) -> Path:
    """Return the folder of public skills. Blocking.

    Args:
        path: As configured.
        bases: Folders to resolve a relative path against. Uses the first one that contains the path, otherwise the
            last.
    """
    candidates = [base / path / "public" for base in bases]
    return next((folder for folder in candidates if folder.is_dir()), candidates[-1])
