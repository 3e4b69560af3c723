"""The archive of a backup: a .tar.gz whose last member is a manifest with the checksum of every file. Blocking."""

import hashlib
import io
import json
import os
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from typing_extensions import override

from gateway.command_errors import CommandFailed

FORMAT = 1
MANIFEST = "manifest.json"
JOURNAL = "databases/parley.db"
CHECKPOINTS = "databases/checkpoints.db"
HOME = "home/"

_MAX_MANIFEST_BYTES = 500_000_000
_LEVEL = 3
"""gzip's compression level. It is low because the service may be running."""

_BLOCK = 1_000_000

Entry = dict[str, Any]
"""`{path, type}`, and `{mode, size, sha256}` of a file or `{target}` of a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of an archive.

    Attributes:
        version: The version of Parley that wrote it.
        created_at: ISO 8601, UTC.
        schema: Number of the last migration of the journal.
        skipped: Files of threads that could not be read, relative to the data folder.
    """

    version: str
    created_at: str
    schema: int
    skipped: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = field(default=(), repr=False)

    @property
    def file_count(self) -> int:
        """Number of files, databases included."""
        return sum(entry["type"] == "file" for entry in self.entries)

    @property
    def total_bytes(self) -> int:
        """Size of all files, uncompressed."""
        return sum(int(entry["size"]) for entry in self.entries if entry["type"] == "file")


class _HashingReader(io.RawIOBase):
    """Reads exactly `size` bytes of a file that may change. If the file gets shorter, zeros fill the rest."""

    def __init__(self, source: IO[bytes], size: int) -> None:
        self._source = source
        self._left = size
        self.digest = hashlib.sha256()

    @override
    def read(self, size: int = -1, /) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._source.read(wanted).ljust(wanted, b"\0")
        self._left -= wanted
        self.digest.update(data)
        return data


class ArchiveWriter:
    """Adds members to an archive and records their checksums."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._entries: list[Entry] = []

    def add_file(self, name: str, source: IO[bytes]) -> None:
        """Add an open file from its current position, with its current size and mode. Raises OSError."""
        status = os.fstat(source.fileno())
        info = _member(name, tarfile.REGTYPE)
        info.mode = stat.S_IMODE(status.st_mode) & 0o777
        info.size, info.mtime = status.st_size, int(status.st_mtime)
        reader = _HashingReader(source, info.size)
        self._tar.addfile(info, reader)
        facts = {"mode": info.mode, "size": info.size, "sha256": reader.digest.hexdigest()}
        self._entries.append({"path": name, "type": "file", **facts})

    def add_folder(self, name: str) -> None:
        """Add a folder. Raises OSError."""
        self._tar.addfile(_member(name, tarfile.DIRTYPE, 0o700))
        self._entries.append({"path": name, "type": "folder"})

    def add_link(self, name: str, target: str) -> None:
        """Add a symbolic link without following it. Raises OSError."""
        info = _member(name, tarfile.SYMTYPE, 0o777)
        info.linkname = target
        self._tar.addfile(info)
        self._entries.append({"path": name, "type": "link", "target": target})

    def finish(self, manifest: Manifest) -> Manifest:
        """Complete the manifest with the added members, add it and return it. Raises OSError."""
        text = {
            "format": FORMAT,
            "parley": manifest.version,
            "created_at": manifest.created_at,
            "schema": manifest.schema,
            "skipped": manifest.skipped,
            "entries": self._entries,
        }
        data = json.dumps(text, indent=0).encode()
        info = _member(MANIFEST, tarfile.REGTYPE)
        info.size = len(data)
        self._tar.addfile(info, io.BytesIO(data))
        return Manifest(
            version=manifest.version,
            created_at=manifest.created_at,
            schema=manifest.schema,
            skipped=manifest.skipped,
            entries=tuple(self._entries),
        )


def _member(name: str, kind: bytes, mode: int = 0o600) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = kind, mode
    return info


@contextmanager
def create_archive(file: Path, scratch: Path) -> Iterator[ArchiveWriter]:
    """Write an archive that only its owner can read. It gets its final name when it is complete and on disk.

    Args:
        file: The final path.
        scratch: A folder on the same file system, for the incomplete archive.

    Raises:
        CommandFailed: The file exists already, or cannot be written.
    """
    if file.exists():
        raise CommandFailed(f"{file} exists: choose another name")
    partial = scratch / "archive"
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as raw:
            with tarfile.open(
                fileobj=raw, mode="w:gz", compresslevel=_LEVEL, format=tarfile.PAX_FORMAT
            ) as tar:
                yield ArchiveWriter(tar)
            raw.flush()
            os.fsync(raw.fileno())
        partial.replace(file)
    except OSError as error:
        raise CommandFailed(f"{file}: the backup cannot be written ({error})") from error


def extract_archive(file: Path, folder: Path, *, wanted: Callable[[str], bool]) -> Manifest:
    """Unpack the requested members into an empty folder. Check all members against the manifest.

    The owner can read and write the unpacked files. Links are created last, so that nothing is written through a link.

    Raises:
        CommandFailed: The archive is incomplete, changed, not a backup, or from a newer Parley; or the folder
            cannot be written. The folder then contains some of the files.
    """
    try:
        with tarfile.open(file, mode="r:gz") as tar:
            return _extract_members(tar, folder, wanted)
    except OSError as error:
        if error.strerror:
            raise CommandFailed(
                f"{file}: cannot be unpacked into {folder.parent} ({error.strerror})"
            ) from error
        reason = str(error)
    except (tarfile.TarError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        reason = str(error)
    raise CommandFailed(f"{file}: is not a complete and unchanged backup: {reason}")


def _extract_members(tar: tarfile.TarFile, folder: Path, wanted: Callable[[str], bool]) -> Manifest:
    """Unpack the archive. Raises ValueError with a reason."""
    found: list[Entry] = []
    manifest: Manifest | None = None
    for info in tar:
        if manifest is not None:
            raise ValueError("there is data after the manifest")
        if info.name == MANIFEST:
            manifest = _read_manifest(tar, info)
        else:
            path = _local_path(folder, info.name)
            found.append(_extract_member(tar, info, path if wanted(info.name) else None))
    if manifest is None:
        raise ValueError("its end is missing")
    if list(manifest.entries) != found:
        raise ValueError("the files do not match the manifest")
    _create_links(folder, found, wanted)
    return manifest


def _create_links(folder: Path, entries: Iterable[Entry], wanted: Callable[[str], bool]) -> None:
    links = {entry["path"]: entry["target"] for entry in entries if entry["type"] == "link"}
    for entry in entries:
        if any(str(parent) in links for parent in PurePosixPath(entry["path"]).parents):
            raise ValueError(f"{entry['path']!r} is behind a link")
    for name in filter(wanted, links):
        _local_path(folder, name).symlink_to(links[name])


def _read_manifest(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Manifest:
    source = tar.extractfile(info)
    if source is None or info.size > _MAX_MANIFEST_BYTES:
        raise ValueError("the manifest is not a file")
    known: Mapping[str, Any] = json.loads(source.read())
    if int(known["format"]) > FORMAT:
        raise CommandFailed(
            f"the backup has format {known['format']}, this Parley knows format {FORMAT}: restore it with the"
            f" version that wrote it ({known['parley']}) or a newer one"
        )
    return Manifest(
        version=str(known["parley"]),
        created_at=str(known["created_at"]),
        schema=int(known["schema"]),
        skipped=tuple(map(str, known["skipped"])),
        entries=tuple(known["entries"]),
    )


def _extract_member(tar: tarfile.TarFile, info: tarfile.TarInfo, path: Path | None) -> Entry:
    """Write one member (None = only read it) and return its description. Does not create links yet."""
    if info.issym():
        return {"path": info.name, "type": "link", "target": info.linkname}
    if info.isdir():
        if path is not None:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {"path": info.name, "type": "folder"}
    source = tar.extractfile(info) if info.isreg() else None
    if source is None:
        raise ValueError(f"{info.name!r} is neither a file nor a folder nor a link")
    digest = _copy(source, path, info.mode)
    facts = {"mode": info.mode, "size": info.size, "sha256": digest}
    return {"path": info.name, "type": "file", **facts}


def _copy(source: IO[bytes], path: Path | None, mode: int) -> str:
    digest = hashlib.sha256()
    if path is None:
        path, flags = Path(os.devnull), os.O_WRONLY
    else:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(path, flags, mode & 0o777 | 0o600), "wb") as target:
        while block := source.read(_BLOCK):
            digest.update(block)
            target.write(block)
    return digest.hexdigest()


def _local_path(folder: Path, name: str) -> Path:
    """Return the path to unpack a member to. Raises ValueError if it is outside the folder.

    >>> _local_path(Path("/x"), "home/a").as_posix()
    '/x/home/a'
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise ValueError(f"{name!r} is outside the data folder")
    return folder.joinpath(*path.parts)
