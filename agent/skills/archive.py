"""Unpacks `.skill` archives: untrusted ZIP files. Blocking."""

import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from agent.errors import SkillInvalid
from agent.skills import manifest
from agent.skills.manifest import SkillManifest
from agent.zip_limits import MAX_ENTRIES, has_small_directory

SUFFIX = ".skill"

MAX_ARCHIVE_BYTES = 64 * 1024 * 1024
MAX_TOTAL_BYTES = 512 * 1024 * 1024
"""Maximum total size of all files, counted during unpacking because headers are not trusted."""

MAX_DEPTH = 16
MAX_PART_BYTES = 255  # Linux: NAME_MAX

_CHUNK_BYTES = 256 * 1024
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackedSkill:
    """A skill unpacked into a folder.

    Attributes:
        manifest: Its parsed SKILL.md.
        text: The text of that file.
        files: Paths of its files, including SKILL.md, sorted.
        skipped: Links that were ignored.
    """

    manifest: SkillManifest
    text: str
    files: tuple[Parts, ...]
    skipped: tuple[str, ...] = ()


def unpack_skill(source: IO[bytes], filename: str, into: Path) -> UnpackedSkill:
    """Unpack an archive into an empty folder. Files become read-only for everyone.

    Args:
        source: The archive; must be seekable.
        filename: Its name.
        into: The folder. After an error, its content is undefined.

    Raises:
        SkillInvalid: It is not an archive of exactly one skill, or breaks a rule. The message says which one.
        OSError: The folder cannot be written.
    """
    if not filename.lower().endswith(SUFFIX):
        raise SkillInvalid(f"the file name must end with {SUFFIX}")
    _check_size(source)
    try:
        archive = zipfile.ZipFile(source)
    except (*_DAMAGED, OSError) as error:
        raise SkillInvalid("the file is not a ZIP archive, or it is damaged") from error
    with archive:
        members, skipped = _members(archive.infolist())
        _write_all(archive, members, into)
    text = _manifest_text(into / manifest.FILE)
    return UnpackedSkill(
        manifest=manifest.parse_manifest(text, strict=True),
        text=text,
        files=tuple(sorted(members)),
        skipped=tuple(skipped),
    )


def _check_size(source: IO[bytes]) -> None:
    """Reject archives that are too expensive to open."""
    size = source.seek(0, 2)
    if size > MAX_ARCHIVE_BYTES:
        raise SkillInvalid(f"the archive is larger than {MAX_ARCHIVE_BYTES // 2**20} MB")
    if not has_small_directory(source):
        raise SkillInvalid(f"the archive has more than {MAX_ENTRIES} entries")


def _members(
    infos: Sequence[zipfile.ZipInfo],
) -> tuple[dict[Parts, zipfile.ZipInfo], list[str]]:
    """Return the files by their paths below the skill's folder, and the ignored links."""
    if len(infos) > MAX_ENTRIES:
        raise SkillInvalid(f"the archive has more than {MAX_ENTRIES} entries")
    found: dict[Parts, zipfile.ZipInfo] = {}
    skipped: list[str] = []
    for info in infos:
        parts = _parts(info)
        if any(part == "__MACOSX" or part.startswith(".") for part in parts):
            continue
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind == stat.S_IFLNK:
            skipped.append("/".join(parts))
        elif not info.is_dir():
            _check_kind(info, kind)
            if parts in found:
                raise SkillInvalid(f"the archive contains {_shown(info)} twice")
            found[parts] = info
    below = _below_top(found)
    _check_names(below)
    return below, skipped


def _parts(info: zipfile.ZipInfo) -> Parts:
    """Return the checked path of a member."""
    name = info.orig_filename
    if not name.isprintable() or "\\" in name or (len(name) > 1 and name[1] == ":"):
        raise SkillInvalid(f"the archive contains a name that is not allowed: {_shown(info)}")
    parts = tuple(name.removesuffix("/").split("/"))
    if any(part in ("", ".", "..") for part in parts):
        raise SkillInvalid(f"the archive contains a path that leads out of it: {_shown(info)}")
    if len(parts) > MAX_DEPTH or any(len(part.encode()) > MAX_PART_BYTES for part in parts):
        raise SkillInvalid(f"the archive contains a path that is too long: {_shown(info)}")
    return parts


def _check_kind(info: zipfile.ZipInfo, kind: int) -> None:
    if kind not in (0, stat.S_IFREG):
        raise SkillInvalid(f"the archive contains something other than a file: {_shown(info)}")
    if info.flag_bits & 0x1:
        raise SkillInvalid("the archive is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise SkillInvalid(f"the archive compresses {_shown(info)} with an unsupported method")


def _below_top(found: dict[Parts, zipfile.ZipInfo]) -> dict[Parts, zipfile.ZipInfo]:
    """Remove the top folder, if everything is inside one."""
    if (manifest.FILE,) in found:
        return found
    tops = {parts[0] for parts in found}
    if len(tops) != 1 or (*tops, manifest.FILE) not in found:
        raise SkillInvalid(
            f"the archive must contain {manifest.FILE} at the top level, or one folder with {manifest.FILE}"
        )
    return {parts[1:]: info for parts, info in found.items()}


def _check_names(found: dict[Parts, zipfile.ZipInfo]) -> None:
    """Reject names that collide on some file systems, files that are also folders, and nested skills."""
    seen: set[Parts] = set()
    for parts, info in found.items():
        if parts[-1].lower() == manifest.FILE.lower() and parts != (manifest.FILE,):
            raise SkillInvalid(f"there is a second {manifest.FILE}: {_shown(info)}")
        alike = tuple(unicodedata.normalize("NFC", part).casefold() for part in parts)
        if alike in seen:
            raise SkillInvalid(f"the archive contains {_shown(info)} twice")
        seen.add(alike)
    for parts in seen:
        if any(parts[:length] in seen for length in range(1, len(parts))):
            raise SkillInvalid(
                f"the archive contains a file that is also a folder: {parts[0][:80]!r}"
            )


def _write_all(archive: zipfile.ZipFile, members: dict[Parts, zipfile.ZipInfo], into: Path) -> None:
    left = MAX_TOTAL_BYTES
    for parts, info in members.items():
        target = into.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            for chunk in _chunks(archive, info):
                left -= len(chunk)
                if left < 0:
                    raise SkillInvalid(
                        f"the archive unpacks to more than {MAX_TOTAL_BYTES // 2**20} MB"
                    )
                file.write(chunk)
        is_program = bool((info.external_attr >> 16) & 0o111)
        target.chmod(0o555 if is_program else 0o444)
    for folder in (into, *(entry for entry in into.rglob("*") if entry.is_dir())):
        folder.chmod(0o755)


def _chunks(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    left = info.file_size
    try:
        with archive.open(info) as member:
            while chunk := member.read(_CHUNK_BYTES):
                left -= len(chunk)
                yield chunk
    except (*_DAMAGED, OSError) as error:
        raise SkillInvalid(f"the archive is damaged at {_shown(info)}") from error
    if left:
        raise SkillInvalid(f"the archive is damaged at {_shown(info)}")


def _manifest_text(file: Path) -> str:
    if file.stat().st_size > manifest.MAX_BYTES:
        raise SkillInvalid(f"{manifest.FILE} has more than {manifest.MAX_BYTES // 1024} KB")
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise SkillInvalid(f"{manifest.FILE} is not UTF-8") from error


def _shown(info: zipfile.ZipInfo) -> str:
    return repr("".join(char if char.isprintable() else "?" for char in info.orig_filename)[:80])
