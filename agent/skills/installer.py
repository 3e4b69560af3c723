"""Where skills of this installation are made: installed, edited, removed, and taken back."""

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TypeVar

import anyio
import anyio.to_thread

from agent.errors import SkillBlocked, SkillExists, SkillInvalid, SkillNotFound, SkillWriteFailed
from agent.skills import archive, manifest
from agent.skills.archive import UnpackedSkill
from agent.skills.history import Action, SkillChange, SkillHistory, timestamp
from agent.skills.loader import Skill
from agent.skills.registry import SkillRegistry
from agent.skills.scanner import MAX_CHARS, TOO_LARGE, ScanResult, SkillFile, SkillScanner

logger = logging.getLogger(__name__)

_STAGED: Final = ".staging-"
_STALE_S: Final = 3600.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledSkill:
    """A skill that was installed, and what there is to say about it."""

    skill: Skill
    notes: tuple[str, ...] = ()


class SkillInstaller:
    """Changes the custom skills. Each change is checked, judged, and then done at once or not at all.

    Args:
        skills: The skills.
        folder: Where the custom ones lie.
        scanner: Judges what is new.
    """

    def __init__(self, skills: SkillRegistry, folder: Path, scanner: SkillScanner) -> None:
        self._skills = skills
        self._folder = folder
        self._scanner = scanner
        self._history = SkillHistory(folder / ".history")
        self._changing = anyio.Lock()

    async def install(self, source: IO[bytes], filename: str) -> InstalledSkill:
        """Install a `.skill` archive; whatever goes wrong leaves nothing behind.

        Args:
            source: The open archive; the caller closes it.
            filename: Its name.

        Raises:
            SkillInvalid, SkillBlocked, SkillExists, SkillWriteFailed: It is not installed.
        """
        staged = await _written(self._stage)
        try:
            unpacked = await _written(lambda: archive.unpack_skill(source, filename, staged))
            name = unpacked.manifest.name
            await self._require_free(name)
            pieces = (
                await _written(lambda: _pieces(staged, unpacked))
                if self._scanner.is_enabled
                else ()
            )
            verdict = await self._scanner.scan(pieces)
            async with self._changing:
                await self._require_free(name)
                await self._note(name, "install", verdict, None, unpacked.text)
                await _written(lambda: staged.rename(self._folder / name))
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_removed, staged)
        shelf = await self._skills.load()
        hides = shelf.find(name, "public") is not None
        return InstalledSkill(
            skill=await self._skills.get(name), notes=_notes(unpacked, verdict, hides=hides)
        )

    async def content(self, name: str) -> tuple[Skill, str]:
        """Return a custom skill and its SKILL.md. Raises SkillNotFound, SkillInvalid when it cannot be read."""
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
        """Remove a custom skill with its files; its history stays. Raises SkillNotFound, SkillWriteFailed."""
        async with self._changing:
            skill = await self._custom(name)
            text = await anyio.to_thread.run_sync(_text_or_none, skill)
            await self._note(name, "delete", None, text, None)
            await _written(lambda: _remove(skill.folder, self._folder))
        await self._skills.load()

    async def history(self, name: str) -> list[SkillChange]:
        """Return what was done to a custom skill, oldest first. Raises SkillNotFound."""
        changes = await anyio.to_thread.run_sync(self._history.changes, _named(name))
        if not changes:
            await self._custom(name)
        return changes

    async def rollback(self, name: str, index: int) -> Skill:
        """Give a SKILL.md the text that it had before a change; one that was deleted is made again, without its files.

        Args:
            name: The skill.
            index: Which change of `history`; -1 is the newest.

        Raises:
            SkillNotFound: There is no such skill or change.
            SkillInvalid: There was no text before that change.
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
        said = manifest.parse_manifest(content, strict=True)
        raw = content.encode()
        if said.name != name:
            raise SkillInvalid(f"`name` must stay {name!r}: install a new skill for another name")
        if len(raw) > manifest.MAX_BYTES:
            raise SkillInvalid(f"SKILL.md has more than {manifest.MAX_BYTES // 1024} KB")
        verdict = await self._scanner.scan([SkillFile.from_bytes(manifest.FILE, raw)])
        async with self._changing:
            skill = (await self._skills.load()).find(name, "custom")
            if skill is None and action == "update":
                raise SkillNotFound("There is no custom skill of this name.")
            folder = await self._own(skill) if skill is not None else self._folder / name
            previous = None
            if skill is not None:
                previous = await anyio.to_thread.run_sync(_text_or_none, skill)
            await self._note(name, action, verdict, previous, content)
            await _written(lambda: _write(folder / manifest.FILE, raw))
        return await self._skills.get(name)

    async def _custom(self, name: str) -> Skill:
        found = (await self._skills.load()).find(name, "custom")
        if found is None:
            raise SkillNotFound("There is no custom skill of this name.")
        await self._own(found)
        return found

    async def _own(self, skill: Skill) -> Path:
        """Return the skill's folder; refuse one that only a link brought here: it belongs to somebody else."""
        folder, root = skill.folder, self._folder
        if not folder.is_relative_to(await anyio.to_thread.run_sync(os.path.realpath, root)):
            raise SkillInvalid(
                "the skill lies elsewhere and is linked here: change it where it lies"
            )
        return folder

    async def _require_free(self, name: str) -> None:
        taken = (await self._skills.load()).find(name, "custom") is not None
        target = self._folder / name
        if taken or await anyio.to_thread.run_sync(os.path.lexists, target):
            raise SkillExists(f"There is a skill named {name} already: remove it first.")

    async def _note(
        self,
        name: str,
        action: Action,
        verdict: ScanResult | None,
        previous: str | None,
        new: str | None,
    ) -> None:
        change = SkillChange(
            ts=timestamp(),
            action=action,
            prev_content=previous,
            new_content=new,
            decision=verdict.decision if verdict else None,
            reason=verdict.reason if verdict else "",
        )
        await _written(lambda: self._history.add(name, change))

    def _stage(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        _sweep(self._folder)
        # On the same disk, so that it is renamed into its place; a dot hides it from the agent.
        return Path(tempfile.mkdtemp(dir=self._folder, prefix=_STAGED))


def _named(name: str) -> str:
    """Return a name that can be a file's name. Raises SkillNotFound."""
    if not manifest.is_name(name):
        raise SkillNotFound("There is no custom skill of this name.")
    return name


def _pieces(folder: Path, unpacked: UnpackedSkill) -> list[SkillFile]:
    """Return the files; what is not text is not kept. Raises SkillBlocked when that is too much for a scan."""
    pieces: list[SkillFile] = []
    left = 4 * MAX_CHARS  # UTF-8 has at most four bytes a character
    for parts in unpacked.files:
        file = folder.joinpath(*parts)
        is_program = bool(file.stat().st_mode & 0o111)
        with file.open("rb") as source:
            piece = SkillFile.from_bytes(
                "/".join(parts), source.read(left + 1), is_program=is_program
            )
        left -= len(piece.text or "")
        if left < 0:
            raise SkillBlocked(TOO_LARGE)
        pieces.append(piece)
    return pieces


def _notes(unpacked: UnpackedSkill, verdict: ScanResult, *, hides: bool) -> tuple[str, ...]:
    hidden = "it hides the public skill of the same name" if hides else ""
    skipped = (
        f"links were left out: {', '.join(unpacked.skipped)[:300]}" if unpacked.skipped else ""
    )
    warned = f"the scan warns: {verdict.reason}" if verdict.decision == "warn" else ""
    return tuple(note for note in (hidden, skipped, warned) if note)


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


def _write(file: Path, raw: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".SKILL.")
    try:
        with os.fdopen(handle, "wb") as target:
            target.write(raw)
            os.fchmod(target.fileno(), 0o444)
        Path(name).replace(file)
    finally:
        Path(name).unlink(missing_ok=True)


def _sweep(root: Path) -> None:
    """Remove what a killed process left behind; an installation under way is younger."""
    for entry in root.glob(f"{_STAGED}*"):
        if time.time() - entry.stat().st_mtime > _STALE_S:
            _removed(entry)


def _remove(folder: Path, root: Path) -> None:
    aside = Path(tempfile.mkdtemp(dir=root, prefix=_STAGED))
    try:
        folder.rename(aside / "gone")
    finally:
        _removed(aside)


def _removed(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


async def _written(work: Callable[[], T]) -> T:
    """Do disk work in a worker thread. Raises SkillWriteFailed for what the disk refuses."""
    try:
        return await anyio.to_thread.run_sync(work)
    except OSError as error:
        logger.warning("a skill cannot be written: %s", error)
        raise SkillWriteFailed from error
