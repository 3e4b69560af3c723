"""A thread's uploads as they are at one moment, for the model. Blocking: everything here runs in worker threads."""

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.thread_storage import ThreadStorage
from agent.uploads.images import HEAD_BYTES, image_block, image_type
from agent.uploads.names import CONVERTIBLE, is_basename, markdown_name, suffix_of
from agent.uploads.outline import Outline, extract_outline
from agent.uploads.prompt_block import MAX_EARLIER, EarlierFiles, FileSummary
from agent.uploads.store import ConversionRecord, UploadEntry, UploadStore

MAX_OUTLINE_BYTES = 2_000_000
"""So much of a text is looked through for its headings."""

MAX_IMAGES = 8
MAX_IMAGE_BYTES = 5 * 1024 * 1024
"""What models of all providers take in one message; larger ones can be asked for by view_image."""

_KEPT_OUTLINES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReference:
    """A file as a message names it; `size` in bytes, 0 when nobody said."""

    name: str
    size: int


def file_references(additional_kwargs: Mapping[str, Any]) -> list[FileReference]:
    """Return the files that a message says came with it; what cannot be a file's entry is dropped. Pure.

    >>> file_references({"files": [{"filename": "a.txt", "size": "12"}, {"filename": "../b"}, "c", {}]})
    [FileReference(name='a.txt', size=12)]
    """
    given = additional_kwargs.get("files")
    names: dict[str, FileReference] = {}
    for entry in given if isinstance(given, list | tuple) else ():
        name = entry.get("filename") if isinstance(entry, Mapping) else None
        if isinstance(name, str) and is_basename(name):
            names[name] = FileReference(name=name, size=_size(entry.get("size")))
    return list(names.values())


class OutlineCache:
    """Remembers the outlines of texts, as long as the texts do not change. For many threads at once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int, int], Outline] = OrderedDict()
        self._changing = threading.Lock()

    def get(self, shelf: UploadStore, entry: UploadEntry) -> Outline | None:
        """Return the outline of a file; None when it cannot be read."""
        with self._changing:
            found = self._kept.get(entry.version)
        if found is None:
            try:
                text = shelf.read(entry.name, MAX_OUTLINE_BYTES).decode("utf-8", "replace")
            except OSError:
                return None
            found = extract_outline(text)
        with self._changing:
            self._kept[entry.version] = found
            self._kept.move_to_end(entry.version)
            if len(self._kept) > _KEPT_OUTLINES:
                self._kept.popitem(last=False)
        return found


class UploadSnapshots:
    """Looks at the uploads of threads."""

    def __init__(self, folders: ThreadStorage) -> None:
        self._folders = folders
        self._outlines = OutlineCache()

    def take(self, thread_id: str) -> "UploadSnapshot":
        """Look at a thread's uploads now.

        Raises:
            ThreadIdInvalid: The id must not become a folder's name.
        """
        return UploadSnapshot(UploadStore(self._folders.folders(thread_id)), self._outlines)


class UploadSnapshot:
    """One look at the uploads of one thread."""

    def __init__(self, shelf: UploadStore, outlines: OutlineCache) -> None:
        self._shelf = shelf
        self._outlines = outlines
        self._entries = shelf.entries()
        self._record = shelf.conversions() if self._entries else {}

    def present(self, files: Iterable[FileReference]) -> list[FileReference]:
        """Keep the files that are there."""
        return [file for file in files if file.name in self._entries]

    def summarize(self, file: FileReference) -> FileSummary:
        """Return what the model is told of a file that came with a message."""
        made = self._conversion(file.name)
        text = self._entries.get(made.markdown) if made.markdown else None
        return FileSummary(
            name=file.name,
            size=file.size,
            markdown=text.name if text else None,
            outline=self._outlines.get(self._shelf, text) if text else None,
            problem=made.error,
        )

    def has_unlisted(self, known: Collection[str]) -> bool:
        """Say whether there is a file of which the model was not told."""
        return bool(self._others(known))

    def earlier(self, new: Collection[str]) -> EarlierFiles:
        """Return the files besides those that just came, the newest of them where there are many."""
        others = self._others(new)
        newest = sorted(others, key=lambda entry: entry.modified_s, reverse=True)[:MAX_EARLIER]
        kept = {entry.name for entry in newest}
        files = tuple(self._short(entry) for entry in others if entry.name in kept)
        return EarlierFiles(files=files, left_out=len(others) - len(files))

    def images(self, files: Iterable[FileReference]) -> list[dict[str, Any]]:
        """Return the images among some files as content blocks, within the limits."""
        blocks: list[dict[str, Any]] = []
        for file in files:
            entry = self._entries.get(file.name)
            if entry is None or entry.size > MAX_IMAGE_BYTES or len(blocks) == MAX_IMAGES:
                continue
            mime = self._mime(entry)
            if mime is not None:
                blocks.append(image_block(self._shelf.read(entry.name, MAX_IMAGE_BYTES), mime))
        return blocks

    def _others(self, names: Collection[str]) -> list[UploadEntry]:
        texts = {
            made.markdown for name in self._entries if (made := self._conversion(name)).markdown
        }
        return [e for e in self._entries.values() if e.name not in names and e.name not in texts]

    def _conversion(self, name: str) -> ConversionRecord:
        """Return what became of a document; where nobody wrote it down, a text of its name counts as its own."""
        if suffix_of(name) not in CONVERTIBLE:
            return ConversionRecord()
        if name in self._record:
            return self._record[name]
        beside = markdown_name(name)
        return ConversionRecord(markdown=beside if beside in self._entries else None)

    def _short(self, entry: UploadEntry) -> FileSummary:
        made = self._conversion(entry.name)
        markdown = made.markdown if made.markdown in self._entries else None
        return FileSummary(name=entry.name, size=entry.size, markdown=markdown)

    def _mime(self, entry: UploadEntry) -> str | None:
        try:
            return image_type(self._shelf.read(entry.name, HEAD_BYTES))
        except OSError:
            return None


def _size(given: object) -> int:
    try:
        return max(0, int(given)) if isinstance(given, int | float | str) else 0
    except (ValueError, OverflowError):
        return 0
