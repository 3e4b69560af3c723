"""What has to be copied between an area's folder and the bucket. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from store.files.index import KnownFile
from store.files.rows import StoredFile
from store.files.tree import LocalFile


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """What has to change on disk.

    Attributes:
        wanted: What has to be put in its place.
        removed: Paths that have to be removed first.
        known: What is known about the files that stay as they are.
    """

    wanted: tuple[StoredFile, ...]
    removed: tuple[str, ...]
    known: Mapping[str, KnownFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalChanges:
    """What changed on disk and is not stored."""

    changed: Mapping[str, LocalFile]
    removed: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        return not self.changed and not self.removed


def plan_fetch(
    local: Mapping[str, LocalFile],
    known: Mapping[str, KnownFile],
    stored: Mapping[str, StoredFile],
    *,
    drops_changes: bool,
) -> FetchPlan:
    """Compare what is on disk with what is stored. Of two changes of one file, the one on disk wins.

    Args:
        local: What is on disk.
        known: What was on disk when it was last compared.
        stored: What is stored now.
        drops_changes: Whether changes on disk are dropped instead: those of an earlier process.
    """
    wanted, kept = [], {}
    for path, file in stored.items():
        before = known.get(path)
        is_unchanged = before is not None and before.matches(local.get(path))
        if before is not None and before.stored == file and (is_unchanged or not drops_changes):
            kept[path] = before
        elif drops_changes or is_unchanged or path not in local:
            wanted.append(file)
        elif before is not None:
            kept[path] = before
    removed = [
        path
        for path, file in local.items()
        if path not in stored
        and (drops_changes or ((before := known.get(path)) is not None and before.matches(file)))
    ]
    # What is of another kind now has to go first.
    removed += [
        file.path for file in wanted if file.path in local and local[file.path].kind != file.kind
    ]
    # What is in a folder comes before it.
    return FetchPlan(wanted=tuple(wanted), removed=tuple(sorted(removed, reverse=True)), known=kept)


def find_changes(local: Mapping[str, LocalFile], known: Mapping[str, KnownFile]) -> LocalChanges:
    """Return what changed on disk since it was last compared."""
    changed = {
        path: file
        for path, file in local.items()
        if path not in known or not known[path].matches(file)
    }
    return LocalChanges(changed=changed, removed=tuple(path for path in known if path not in local))
