"""Plans what to copy between an area's folder and the bucket. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from store.files.index import KnownFile
from store.files.rows import StoredFile
from store.files.tree import LocalFile


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """The changes to make on disk.

    Attributes:
        wanted: Files to put in place.
        removed: Paths to remove first.
        known: The entries of the files that stay unchanged.
    """

    wanted: tuple[StoredFile, ...]
    removed: tuple[str, ...]
    known: Mapping[str, KnownFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalChanges:
    """The changes on disk that are not stored."""

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
    """Compare the files on disk with the stored ones. If both changed, the one on disk wins.

    Args:
        local: The files on disk.
        known: The files on disk at the last comparison.
        stored: The stored files.
        drops_changes: Drop changes on disk instead, because an earlier process made them.
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
    # If an entry has changed its kind, remove it before fetching the new one.
    removed += [
        file.path for file in wanted if file.path in local and local[file.path].kind != file.kind
    ]
    # In reverse order, so that a folder's content is removed before the folder.
    return FetchPlan(wanted=tuple(wanted), removed=tuple(sorted(removed, reverse=True)), known=kept)


def find_changes(local: Mapping[str, LocalFile], known: Mapping[str, KnownFile]) -> LocalChanges:
    """Return the changes on disk since the last comparison."""
    changed = {
        path: file
        for path, file in local.items()
        if path not in known or not known[path].matches(file)
    }
    return LocalChanges(changed=changed, removed=tuple(path for path in known if path not in local))
