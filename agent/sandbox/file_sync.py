"""FileSync: synchronizes a thread's files between this machine and a remote sandbox.

This machine has the authoritative copy: uploads arrive here, answers send files from here, and a sandbox may be deleted
at any time. Before a command, changes made here are pushed to the sandbox; after it, changes made there are pulled
back. If a file changed on both sides, the command's version wins. Links and special files stay in the sandbox.

Pulled files are untrusted. This module writes only regular files and folders that it requested, only below the thread's
own folders, without following links, and within the thread's disk quota.
"""

import contextlib
import logging
import os
import stat
import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from secrets import token_hex

import anyio
from anyio import to_thread

from agent.errors import PathNotAllowed, SandboxError, SandboxLost
from agent.paths import WORKSPACE, Mount, MountTable, normalize_path
from agent.sandbox import files
from agent.sandbox.aio_api import SCRATCH, AioSandboxClient
from agent.sandbox.disk import DiskMeter

log = logging.getLogger(__name__)

Stamp = tuple[int, str]
"""Size in bytes and time of the last change. -1 and "" for folders."""

MAX_LIST_BYTES = 64_000_000
"""Largest list of files that a sandbox may send: 200,000 paths of 300 bytes."""

_FOLDER: Stamp = (-1, "")
_DELETED = ".parley-deleted"
_TAR_OVERHEAD = 4096  # bytes per file: headers and padding

_PUSH = f"""\
set -e
cd /
tar -xOf {SCRATCH}/push.tar {_DELETED} | xargs -0 -r rm -rf --
tar -xf {SCRATCH}/push.tar --no-same-owner --exclude={_DELETED}
rm -f {SCRATCH}/push.tar"""

_PULL = f"""\
tar -C / --no-recursion --null -T {SCRATCH}/wanted -cf {SCRATCH}/pull.tar
[ $? -le 1 ]"""  # 1 = a file changed while it was read; the next pull fetches it again


class FileSync:
    """Exchanges the files of one thread with its sandbox. Calls must not overlap.

    Args:
        sandbox: The sandbox.
        written: The thread's own folders, which commands may change.
        meter: Measures these folders.
    """

    def __init__(
        self, sandbox: AioSandboxClient, written: Sequence[Mount], meter: DiskMeter
    ) -> None:
        self._sandbox = sandbox
        self._written = tuple(mount for mount in written if not mount.read_only)
        self._meter = meter
        self._here: dict[str, Stamp] = {}
        self._there: dict[str, Stamp] = {}
        self._is_shared = False
        self._sends_read_only = True

    async def attach(self) -> None:
        """Create the folders in the sandbox, and find out whether it mounts the same storage.

        Raises:
            SandboxError: It does not respond, or its user cannot write there.
        """
        folders = " ".join(mount.virtual for mount in self._written)
        await self._sandbox.run_script(
            f"mkdir -p {SCRATCH} {folders} && cd {WORKSPACE} && test -w ."
        )
        workspace = next(mount.host for mount in self._written if mount.virtual == WORKSPACE)
        mark = workspace / f".parley-{token_hex(8)}"
        await to_thread.run_sync(mark.touch)
        try:
            answer = await self._sandbox.run_script(
                f"test -e {WORKSPACE}/{mark.name} && echo shared || :"
            )
        finally:
            await to_thread.run_sync(lambda: mark.unlink(missing_ok=True))
        self._is_shared = answer.strip() == "shared"
        self._there = await self._list()
        # The origin of these files is unknown: the first push deletes every file that does not exist on this machine.
        self._here = dict.fromkeys(self._there, (0, "unknown"))

    async def push(self, mounts: Sequence[Mount]) -> None:
        """Send the changes made here since the last exchange.

        Args:
            mounts: The folders to send.

        Raises:
            SandboxError: The sandbox does not respond, or cannot store the files.
        """
        if self._is_shared:
            return
        own = [mount for mount in mounts if mount in self._written]
        read_only = [mount for mount in mounts if mount not in self._written]
        if sent := await self._send(own):
            # A command that is still running may have changed other files. `pull` fetches them.
            there = await self._list()
            kept = {path: stamp for path, stamp in self._there.items() if path not in sent}
            self._there = kept | {path: there[path] for path in sent if path in there}
        if self._sends_read_only:
            try:
                await self._send(read_only)
            except SandboxLost:
                raise
            except SandboxError as error:
                # For example, the provisioner mounts its own skills there, and nobody can write to them.
                log.warning("read-only folders cannot be copied into the sandbox: %s", error)
                self._sends_read_only = False

    async def pull(self) -> str:
        """Fetch the changes in the sandbox. Return a sentence for the model if some could not be kept, else "".

        The next call fetches the missing changes, if the sandbox still exists.
        """
        try:
            there = await self._list()
            if not self._is_shared:
                changed = {p: stamp for p, stamp in there.items() if self._there.get(p) != stamp}
                gone = [path for path in self._there if path not in there]
                await self._fetch(changed, gone)
                self._there = there
        except SandboxLost:
            return "Files that this command changed may be lost: the sandbox stopped responding after it."
        except SandboxError as error:
            return f"Not all files of this command could be kept: {error.user_message}."
        return ""

    async def _send(self, mounts: Sequence[Mount]) -> frozenset[str]:
        """Send the changes of some folders. Return the paths of the changed and the deleted files."""
        roots = tuple(mount.virtual for mount in mounts)
        table = MountTable(mounts)
        found = await to_thread.run_sync(_scan, mounts)
        known = {path: stamp for path, stamp in self._here.items() if _is_below(path, roots)}
        changed = [path for path, stamp in found.items() if known.get(path) != stamp]
        gone = [path for path in known if path not in found]
        if not changed and not gone:
            return frozenset()
        async with anyio.TemporaryDirectory() as scratch:
            archive = Path(scratch) / "push.tar"
            await to_thread.run_sync(_pack, archive, table, sorted(changed), gone)
            await self._sandbox.upload(f"{SCRATCH}/push.tar", archive)
        await self._sandbox.run_script(_PUSH)
        self._here = {**{p: s for p, s in self._here.items() if p not in known}, **found}
        return frozenset((*changed, *gone))

    async def _list(self) -> dict[str, Stamp]:
        """List the files and folders that commands may have changed, and mark the sandbox as used."""
        roots = tuple(mount.virtual for mount in self._written)
        if self._is_shared:
            await self._sandbox.run_script(f"touch {SCRATCH}/used")
            return {}
        await self._sandbox.run_script(
            f"mkdir -p {SCRATCH} {' '.join(roots)}; touch {SCRATCH}/used; "
            f"find {' '.join(roots)} -mindepth 1 \\( -type f -o -type d \\) "
            f"-printf '%y %s %T@ %p\\0' > {SCRATCH}/list || :"  # a folder may disappear while find runs
        )
        async with anyio.TemporaryDirectory() as scratch:
            target = Path(scratch) / "list"
            await self._sandbox.download(f"{SCRATCH}/list", target, max_bytes=MAX_LIST_BYTES)
            return await to_thread.run_sync(_read_list, target, roots)

    async def _fetch(self, changed: Mapping[str, Stamp], gone: Collection[str]) -> None:
        if not changed and not gone:
            return
        table = MountTable(self._written)
        wanted = {path for path, stamp in changed.items() if stamp != _FOLDER}
        size = sum(changed[path][0] + _TAR_OVERHEAD for path in wanted)
        if wanted:
            await to_thread.run_sync(self._meter.require_space, size)
        async with anyio.TemporaryDirectory() as scratch:
            archive = Path(scratch) / "pull.tar"
            if wanted:
                names = Path(scratch) / "wanted"
                await anyio.Path(names).write_bytes(
                    b"".join(path.removeprefix("/").encode() + b"\0" for path in sorted(wanted))
                )
                await self._sandbox.upload(f"{SCRATCH}/wanted", names)
                await self._sandbox.run_script(_PULL)
                await self._sandbox.download(
                    f"{SCRATCH}/pull.tar", archive, max_bytes=size + 2 * tarfile.RECORDSIZE
                )
            self._here.update(await to_thread.run_sync(self._apply, table, archive, changed, gone))
        for path in gone:
            self._here.pop(path, None)

    def _apply(
        self, table: MountTable, archive: Path, changed: Mapping[str, Stamp], gone: Collection[str]
    ) -> dict[str, Stamp]:
        """Write the fetched changes to this machine. Return the new stamps. Blocking."""
        before = _scan(self._written)
        for path in sorted(gone, reverse=True):  # a folder's content before the folder itself
            if path in before and before[path] == self._here.get(path):
                files.remove(files.resolve_path(table, path, write=True))
        written: dict[str, Stamp] = {}
        for path in sorted(path for path, stamp in changed.items() if stamp == _FOLDER):
            files.make_folder(files.resolve_path(table, path, write=True))
            written[path] = _FOLDER
        if archive.exists():
            for path in _unpack(table, archive, changed):
                written[path] = _stamp(Path(files.resolve_path(table, path).host).lstat())
        return written


def _scan(mounts: Sequence[Mount]) -> dict[str, Stamp]:
    """Return the stamps of the regular files and folders in the mounts. Does not follow links. Blocking."""
    found: dict[str, Stamp] = {}
    for mount in mounts:
        root = str(mount.host)
        with contextlib.suppress(FileNotFoundError):
            for folder, subfolders, names, fd in os.fwalk(root, follow_symlinks=False):
                virtual = mount.virtual + folder[len(root) :]
                for name in (*subfolders, *names):
                    with contextlib.suppress(FileNotFoundError, UnicodeEncodeError):
                        name.encode()
                        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                            found[f"{virtual}/{name}"] = _stamp(status)
    return found


def _stamp(status: os.stat_result) -> Stamp:
    if stat.S_ISDIR(status.st_mode):
        return _FOLDER
    return status.st_size, str(status.st_mtime_ns)


def _pack(archive: Path, table: MountTable, paths: Sequence[str], gone: Sequence[str]) -> None:
    """Write an archive of the files and of the list of deleted files. Skips files that have disappeared. Blocking.

    Raises:
        SandboxError: A file changed while it was read, or there is no space for the archive.
    """
    with files.os_errors_explained("the thread's files"), tarfile.open(archive, "w") as tar:
        names = b"".join(path.removeprefix("/").encode() + b"\0" for path in gone)
        listed = tarfile.TarInfo(_DELETED)
        listed.size = len(names)
        tar.addfile(listed, BytesIO(names))
        for path in paths:
            with contextlib.suppress(SandboxError):
                _pack_one(tar, table, path)


def _pack_one(tar: tarfile.TarFile, table: MountTable, path: str) -> None:
    with files.open_path(files.resolve_path(table, path)) as fd:
        status = os.fstat(fd)
        info = tarfile.TarInfo(path.removeprefix("/"))
        info.mode = stat.S_IMODE(status.st_mode) & 0o777 | 0o600
        info.mtime = int(status.st_mtime)
        if stat.S_ISDIR(status.st_mode):
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
            return
        info.size = status.st_size
        with os.fdopen(os.dup(fd), "rb") as file:
            tar.addfile(info, file)


def _read_list(file: Path, roots: tuple[str, ...]) -> dict[str, Stamp]:
    """Parse the output of `find`. Skips names that Parley's paths cannot express. Blocking."""
    found: dict[str, Stamp] = {}
    for record in file.read_bytes().split(b"\0"):
        with contextlib.suppress(ValueError, PathNotAllowed):
            kind, size, changed, path = record.decode().split(" ", 3)
            if _is_below(path, roots) and normalize_path(path) == path:
                found[path] = _FOLDER if kind == "d" else (int(size), changed)
    return found


def _unpack(table: MountTable, archive: Path, wanted: Mapping[str, Stamp]) -> Iterator[str]:
    """Write the wanted files of an archive. Yield the path of each. Blocking.

    Raises:
        SandboxError: The archive is damaged, or a file cannot be written.
    """
    try:
        with tarfile.open(archive, "r|") as tar:
            for member in tar:
                path = f"/{member.name.removeprefix('/')}"
                content = tar.extractfile(member) if member.isreg() and path in wanted else None
                if content is not None:
                    resolved = files.resolve_path(table, path, write=True)
                    files.write_stream(resolved, content, member.mode & 0o777 | 0o600)
                    yield path
    except tarfile.TarError as error:
        raise SandboxError("the sandbox sent a damaged archive") from error


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path.startswith(f"{root}/") for root in roots)
