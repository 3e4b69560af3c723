"""Installs, edits, deletes and rolls back custom skills."""

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

import anyio
import anyio.to_thread

from agent.atomic_write import write_atomically
from agent.errors import SkillBlocked, SkillExists, SkillInvalid, SkillNotFound, SkillWriteFailed
from agent.skills import archive, manifest
from agent.skills.archive import UnpackedSkill
from agent.skills.history import Action, SkillChange, SkillHistory, timestamp
from agent.skills.loader import Skill
from agent.skills.registry import SkillRegistry
from agent.skills.scanner import MAX_CHARS, TOO_LARGE, ScanResult, SkillFile, SkillScanner

log = logging.getLogger(__name__)

NO_SUCH_SKILL = "There is no custom skill with this name."

_STAGED = ".staging-"
_STALE_S = 3600.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledSkill:
    """A skill that was just installed, with notes for the person who installed it."""

    skill: Skill
    notes: tuple[str, ...] = ()


class SkillInstaller:
    """Changes custom skills. Each change is validated, scanned, and then applied atomically.

    Args:
        skills: The registry.
        folder: The folder of custom skills.
        scanner: Scans new content.
    """

    def __init__(self, skills: SkillRegistry, folder: Path, scanner: SkillScanner) -> None:
        self._skills = skills
        self._folder = folder
        self._scanner = scanner
        self._history = SkillHistory(folder / ".history")
        self._lock = anyio.Lock()

    async def install(self, source: IO[bytes], filename: str) -> InstalledSkill:
        """Install a `.skill` archive. A failed installation leaves nothing behind.

        Args:
            source: The open archive; the caller closes it.
            filename: Its name.

        Raises:
            SkillInvalid, SkillBlocked, SkillExists, SkillWriteFailed: The skill is not installed.
        """
        staged = await _on_disk(self._stage)
        try:
            unpacked = await _on_disk(lambda: archive.unpack_skill(source, filename, staged))
            name = unpacked.manifest.name
            await self._require_free(name)
            files: Sequence[SkillFile] = ()
            if self._scanner.is_enabled:
                files = await _on_disk(lambda: _skill_files(staged, unpacked))
            scan = await self._scanner.scan(files)
            async with self._lock:
                await self._require_free(name)
                await self._record(name, "install", scan, None, unpacked.text)
                await _on_disk(lambda: staged.rename(self._folder / name))
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_remove_tree, staged)
        snapshot = await self._skills.load()
        hides = snapshot.find(name, "public") is not None
        return InstalledSkill(
            skill=await self._skills.get(name), notes=_notes(unpacked, scan, hides=hides)
        )

    async def content(self, name: str) -> tuple[Skill, str]:
        """Return a custom skill and its SKILL.md. Raises SkillNotFound; SkillInvalid if it cannot be read."""
        skill = await self._custom(name)
        return skill, await anyio.to_thread.run_sync(_text_of, skill)

    async def edit(self, name: str, content: str) -> Skill:
        """Replace the SKILL.md of a custom skill.

        Raises:
            SkillNotFound, SkillInvalid, SkillBlocked, SkillWriteFailed: Nothing was changed.
        """
        await self._custom(name)
        return await self._rewrite(name, content, "update")

    async def delete(self, name: str) -> None:
        """Delete a custom skill. Its history is kept. Raises SkillNotFound, SkillWriteFailed."""
        async with self._lock:
            skill = await self._custom(name)
            text = await anyio.to_thread.run_sync(_text_or_none, skill)
            await self._record(name, "delete", None, text, None)
            await _on_disk(lambda: _delete(skill.folder, self._folder))
        await self._skills.load()

    async def history(self, name: str) -> list[SkillChange]:
        """Return the changes of a custom skill, oldest first. Raises SkillNotFound."""
        if not manifest.is_name(name):  # the name becomes a file name
            raise SkillNotFound(NO_SUCH_SKILL)
        changes = await anyio.to_thread.run_sync(self._history.changes, name)
        if not changes:
            await self._custom(name)
        return changes

    async def rollback(self, name: str, index: int) -> Skill:
        """Restore the SKILL.md from before a change. A deleted skill is created again, without its other files.

        Args:
            name: The skill.
            index: Index of the change in `history`; -1 is the newest.

        Raises:
            SkillNotFound: The skill or change does not exist.
            SkillInvalid: There was no SKILL.md before that change.
            SkillBlocked, SkillWriteFailed: Nothing was changed.
        """
        changes = await self.history(name)
        if not -len(changes) <= index < len(changes):
            raise SkillNotFound("There is no such entry in the skill's history.")
        content = changes[index].prev_content
        if content is None:
            raise SkillInvalid("the skill did not exist before that change")
        return await self._rewrite(name, content, "rollback")

    async def _rewrite(self, name: str, content: str, action: Action) -> Skill:
        parsed = manifest.parse_manifest(content, strict=True)
        raw = content.encode()
        if parsed.name != name:
            raise SkillInvalid(f"`name` must stay {name!r}: install a new skill for another name")
        if len(raw) > manifest.MAX_BYTES:
            raise SkillInvalid(f"SKILL.md is larger than {manifest.MAX_BYTES // 1024} KB")
        scan = await self._scanner.scan([SkillFile.from_bytes(manifest.FILE, raw)])
        async with self._lock:
            skill = (await self._skills.load()).find(name, "custom")
            if skill is None and action == "update":
                raise SkillNotFound(NO_SUCH_SKILL)
            folder, previous = self._folder / name, None
            if skill is not None:
                folder = await self._require_own(skill)
                previous = await anyio.to_thread.run_sync(_text_or_none, skill)
            await self._record(name, action, scan, previous, content)
            await _on_disk(lambda: write_atomically(folder / manifest.FILE, raw, mode=0o444))
        return await self._skills.get(name)

    async def _custom(self, name: str) -> Skill:
        found = (await self._skills.load()).find(name, "custom")
        if found is None:
            raise SkillNotFound(NO_SUCH_SKILL)
        await self._require_own(found)
        return found

    async def _require_own(self, skill: Skill) -> Path:
        """Return the skill's folder. Reject a folder that is only a link."""
        root = await anyio.to_thread.run_sync(os.path.realpath, self._folder)
        if not skill.folder.is_relative_to(root):
            raise SkillInvalid("the skill's folder is a link: change the skill where it is stored")
        return skill.folder

    async def _require_free(self, name: str) -> None:
        taken = (await self._skills.load()).find(name, "custom") is not None
        if taken or await anyio.to_thread.run_sync(os.path.lexists, self._folder / name):
            raise SkillExists(f"A skill named {name} already exists: delete it first.")

    async def _record(
        self,
        name: str,
        action: Action,
        scan: ScanResult | None,
        previous: str | None,
        new: str | None,
    ) -> None:
        change = SkillChange(
            ts=timestamp(),
            action=action,
            prev_content=previous,
            new_content=new,
            decision=scan.decision if scan else None,
            reason=scan.reason if scan else "",
        )
        await _on_disk(lambda: self._history.add(name, change))

    def _stage(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        # Remove folders that a killed process left behind. Folders of current installations are younger.
        for entry in self._folder.glob(f"{_STAGED}*"):
            if time.time() - entry.stat().st_mtime > _STALE_S:
                _remove_tree(entry)
        # The folder is on the same disk, so that it can be renamed into place. The dot hides it from the agent.
        return Path(tempfile.mkdtemp(dir=self._folder, prefix=_STAGED))


def _skill_files(folder: Path, unpacked: UnpackedSkill) -> list[SkillFile]:
    """Read the files, without binary content. Raises SkillBlocked if they are too large to scan."""
    files: list[SkillFile] = []
    left = 4 * MAX_CHARS  # UTF-8 has at most four bytes per character
    for parts in unpacked.files:
        path = folder.joinpath(*parts)
        is_program = bool(path.stat().st_mode & 0o111)
        with path.open("rb") as source:
            content = source.read(left + 1)
        file = SkillFile.from_bytes("/".join(parts), content, is_program=is_program)
        left -= len(file.text or "")
        if left < 0:
            raise SkillBlocked(TOO_LARGE)
        files.append(file)
    return files


def _notes(unpacked: UnpackedSkill, scan: ScanResult, *, hides: bool) -> tuple[str, ...]:
    notes = []
    if hides:
        notes.append("it hides the public skill with the same name")
    if unpacked.skipped:
        notes.append(f"links were ignored: {', '.join(unpacked.skipped)[:300]}")
    if scan.decision == "warn":
        notes.append(f"the scan warns: {scan.reason}")
    return tuple(notes)


def _text_of(skill: Skill) -> str:
    try:
        return (skill.folder / manifest.FILE).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SkillInvalid(f"{manifest.FILE} cannot be read") from error


def _text_or_none(skill: Skill) -> str | None:
    try:
        return _text_of(skill)
    except SkillInvalid:
        return None


def _delete(folder: Path, root: Path) -> None:
    trash = Path(tempfile.mkdtemp(dir=root, prefix=_STAGED))
    try:
        folder.rename(trash / "deleted")
    finally:
        _remove_tree(trash)


def _remove_tree(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


async def _on_disk(work: Callable[[], T]) -> T:
    """Do disk work in a worker thread. Raises SkillWriteFailed for an OSError."""
    try:
        return await anyio.to_thread.run_sync(work)
    except OSError as error:
        log.warning("cannot write a skill: %s", error)
        raise SkillWriteFailed from error
