"""Which skills there are: folders with a SKILL.md, public ones and those of this installation."""

import logging
import os
import stat
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from agent.errors import SkillInvalid
from agent.skills import manifest
from agent.skills.manifest import SkillManifest

logger = logging.getLogger(__name__)

Category = Literal["public", "custom"]

MAX_DEPTH: Final = 6
"""How deep below its root a skill's folder may lie."""

MAX_FOLDERS: Final = 5_000
"""How many folders of one root are looked at."""

SETTLED_S: Final = 0.1
"""How old a change must be before its time stamp is believed; file systems count in steps of up to 10 ms."""

Stamp = tuple[int, int, int, int]
"""Times of the last changes, nanoseconds; size; number of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One skill as it lies on disk.

    Attributes:
        name: Of its frontmatter; its folder's name when it is broken.
        category: `public` (of the program's installation) or `custom` (of this data folder).
        folder: Where it is on this machine, without links.
        virtual_folder: Where the agent sees that folder.
        allowed_tools: Tools that it is made for; None = it says nothing of them.
        enabled: Whether the agent may use it; a broken one is never enabled.
        error: What is wrong with it; None = nothing.
    """

    name: str
    description: str = ""
    license: str | None = None
    category: Category
    folder: Path
    virtual_folder: str
    allowed_tools: tuple[str, ...] | None = None
    enabled: bool = True
    error: str | None = None

    @property
    def location(self) -> str:
        """Return the path under which the agent reads its SKILL.md."""
        return f"{self.virtual_folder}/{manifest.FILE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillSnapshot:
    """The skills of one moment, sorted by name; broken ones are among them."""

    skills: tuple[Skill, ...] = ()

    @property
    def enabled(self) -> tuple[Skill, ...]:
        """Return those that the agent may use."""
        return tuple(skill for skill in self.skills if skill.enabled)

    def find(self, name: str, category: Category | None = None) -> Skill | None:
        """Return the skill of this name, sound ones first; None = there is none."""
        found = [
            skill
            for skill in self.skills
            if skill.name == name and category in (None, skill.category)
        ]
        return min(found, key=lambda skill: skill.error is not None, default=None)


class SkillLoader:
    """Looks at the folders; while nothing in them changes, a look costs one `stat` for each folder and file.

    Args:
        public: The folder of the skills that come with the program.
        custom: The folder of this installation's own; they hide public ones of the same name.
        container_path: Under which path the agent sees both.
    """

    def __init__(self, *, public: Path, custom: Path, container_path: str) -> None:
        self._roots: tuple[tuple[Category, Path], ...] = (("custom", custom), ("public", public))
        self._container_path = container_path.rstrip("/")
        self._read: dict[Path, tuple[Stamp | None, SkillManifest | str]] = {}
        self._told: set[tuple[Path, str | None]] = set()
        self._watched: dict[str, Stamp | None] = {}
        self._is_settled = False
        self._switches: dict[str, bool] = {}
        self._shelf = SkillSnapshot()

    def load(self, switches: Mapping[str, bool]) -> SkillSnapshot:
        """Return the skills that are there now; the same object as before while they are the same. Blocking.

        Args:
            switches: Whether a skill is enabled, by name; one that is not named is.
        """
        if self._is_settled and switches == self._switches and self._is_as_before():
            return self._shelf
        began_s = time.time()
        self._watched = {}
        shelf = self._searched(switches)
        if shelf != self._shelf:
            self._shelf = shelf
        self._switches = dict(switches)
        # Two changes within one tick of the disk's clock look the same: what is that young is looked at again.
        stamps = [stamp for stamp in self._watched.values() if stamp is not None]
        newest_ns = max((max(stamp[:2]) for stamp in stamps), default=0)
        self._is_settled = began_s - newest_ns / 1e9 > SETTLED_S
        return self._shelf

    def _is_as_before(self) -> bool:
        return all(_stamp(path) == stamp for path, stamp in self._watched.items())

    def _searched(self, switches: Mapping[str, bool]) -> SkillSnapshot:
        known, self._read = self._read, {}
        sound: dict[str, Skill] = {}
        broken: list[Skill] = []
        for category, root in self._roots:
            for parts, folder in _folders(root, self._watched):
                skill = self._skill(category, parts, folder, known)
                rival = sound.get(skill.name)
                if skill.error is not None:
                    broken.append(skill)
                elif rival is None:
                    sound[skill.name] = replace(skill, enabled=switches.get(skill.name, True))
                elif rival.category == category:
                    error = f"the name is taken by {rival.virtual_folder}"
                    broken.append(replace(skill, enabled=False, error=error))
        self._tell(broken)
        listed = (*sound.values(), *broken)
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
        said = self._manifest(folder / manifest.FILE, known)
        if isinstance(said, SkillManifest) and not place.isprintable():
            said = "the folder's name holds characters that cannot be shown"
        if isinstance(said, str):
            return Skill(
                name=parts[-1],
                category=category,
                folder=folder,
                virtual_folder=place,
                enabled=False,
                error=said,
            )
        return Skill(
            name=said.name,
            description=said.description,
            license=said.license,
            category=category,
            folder=folder,
            virtual_folder=place,
            allowed_tools=said.allowed_tools,
        )

    def _manifest(
        self, file: Path, known: Mapping[Path, tuple[Stamp | None, SkillManifest | str]]
    ) -> SkillManifest | str:
        """Return what the file says, or what is wrong with it."""
        stamp = self._watched[str(file)] = _stamp(str(file))
        before = known.get(file)
        said = before[1] if before is not None and self._is_settled and before[0] == stamp else None
        if said is None:
            said = _said(file)
        self._read[file] = (stamp, said)
        return said

    def _tell(self, broken: Sequence[Skill]) -> None:
        """Log what is wrong, once for as long as it stays so."""
        for skill in broken:
            if (skill.folder, skill.error) not in self._told:
                logger.warning("the skill %r cannot be used: %s", str(skill.folder), skill.error)
        self._told = {(skill.folder, skill.error) for skill in broken}


def _stamp(path: str) -> Stamp | None:
    """Return what changes with the content of a file or folder; None where there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - several times faster than Path, and asked for every run
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def _said(file: Path) -> SkillManifest | str:
    try:
        return manifest.parse_manifest(_text(file))
    except SkillInvalid as error:
        return error.user_message


def _text(file: Path) -> str:
    try:
        status = file.stat()
    except OSError as error:
        reason = f"there must be a file {manifest.FILE}, written like this"
        raise SkillInvalid(reason) from error
    if not stat.S_ISREG(status.st_mode):
        raise SkillInvalid(f"{manifest.FILE} is no regular file")
    if status.st_size > manifest.MAX_BYTES:
        raise SkillInvalid(f"{manifest.FILE} has more than {manifest.MAX_BYTES // 1024} KB")
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise SkillInvalid(f"{manifest.FILE} is not UTF-8") from error
    except OSError as error:
        raise SkillInvalid(f"{manifest.FILE} cannot be read: {error.strerror}") from error


def _folders(
    root: Path, watched: dict[str, Stamp | None]
) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yield the skills' folders below a root, with their way there. What lies inside a skill is part of it.

    Args:
        root: Where to begin.
        watched: Takes the stamps of the folders that were looked into, from before the look.
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
    """Return the folder of the skills that come with the program. Blocking.

    Args:
        path: As configured.
        bases: Where a relative one is looked for; the first that has it wins, else the last counts.
    """
    candidates = [base / path / "public" for base in bases]
    return next((folder for folder in candidates if folder.is_dir()), candidates[-1])
