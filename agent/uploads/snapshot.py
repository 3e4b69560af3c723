"""Snapshots of a thread's uploads, for the model. Blocking: runs in worker threads."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from agent.uploads.images import HEAD_BYTES, ModelImages, image_type
from agent.uploads.names import CONVERTIBLE, is_basename, markdown_name, suffix_of
from agent.uploads.prompt_block import MAX_EARLIER, EarlierFiles, FileSummary
from agent.uploads.store import ConversionRecord, UploadEntry, UploadStore

MAX_IMAGES = 8
"""Maximum number of images in a message to show or try to show."""

MAX_IMAGE_BYTES = 20 * 1024 * 1024
"""Largest image of a message to read for the model, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReference:
    """A file reference in a message; `size` in bytes, 0 if unknown."""

    name: str
    size: int


def file_references(additional_kwargs: Mapping[str, Any]) -> list[FileReference]:
    """Return the files that a message refers to. Ignores invalid entries. Pure.

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


class UploadSnapshot:
    """A snapshot of one thread's uploads."""

    def __init__(self, store: UploadStore, images: ModelImages) -> None:
        self._store = store
        self._images = images
        self._entries = store.entries()
        self._conversions = store.conversions() if self._entries else {}

    def present(self, files: Iterable[FileReference]) -> list[FileReference]:
        """Return the references whose files exist."""
        return [file for file in files if file.name in self._entries]

    def summarize(self, file: FileReference) -> FileSummary:
        """Summarize a file of a message."""
        made = self._conversion(file.name)
        return FileSummary(
            name=file.name,
            size=file.size,
            markdown=made.markdown if made.markdown in self._entries else None,
            problem=made.error,
        )

    def has_unlisted(self, known: Collection[str]) -> bool:
        """Return whether there is a file that no message lists yet."""
        return bool(self._others(known))

    def earlier(self, new: Collection[str]) -> EarlierFiles:
        """Return the other files. If there are many, list only the newest ones."""
        others = self._others(new)
        newest = sorted(others, key=lambda entry: entry.modified_s, reverse=True)[:MAX_EARLIER]
        kept = {entry.name for entry in newest}
        files = tuple(
            self.summarize(FileReference(name=entry.name, size=entry.size))
            for entry in others
            if entry.name in kept
        )
        return EarlierFiles(files=files, left_out=len(others) - len(files))

    def deadline(self) -> float:
        """Return the common deadline, counted from now, of the images in one request."""
        return self._images.deadline()

    def images(self, files: Iterable[FileReference], until: float) -> list[dict[str, Any]]:
        """Return the images among the files as content blocks, within the limits. `until` is a `deadline`."""
        blocks = [
            self._images.block(
                entry.version,
                mime,
                partial(self._store.read, entry.name, MAX_IMAGE_BYTES),
                until=until,
            )
            for entry, mime in islice(self._image_files(files), MAX_IMAGES)
        ]
        return [block for block in blocks if block is not None]

    def _image_files(self, files: Iterable[FileReference]) -> Iterator[tuple[UploadEntry, str]]:
        """Yield the images among the files that may be read, with their types."""
        for file in files:
            entry = self._entries.get(file.name)
            if entry is not None and entry.size <= MAX_IMAGE_BYTES:
                mime = self._mime(entry)
                if mime is not None:
                    yield entry, mime

    def _others(self, names: Collection[str]) -> list[UploadEntry]:
        texts = {
            made.markdown for name in self._entries if (made := self._conversion(name)).markdown
        }
        return [e for e in self._entries.values() if e.name not in names and e.name not in texts]

    def _conversion(self, name: str) -> ConversionRecord:
        """Return the conversion result of a document. Without one, use a text file with the same name."""
        if suffix_of(name) not in CONVERTIBLE:
            return ConversionRecord()
        if name in self._conversions:
            return self._conversions[name]
        markdown = markdown_name(name)
        return ConversionRecord(markdown=markdown if markdown in self._entries else None)

    def _mime(self, entry: UploadEntry) -> str | None:
        try:
            return image_type(self._store.read(entry.name, HEAD_BYTES))
        except OSError:
            return None


def _size(given: object) -> int:
    try:
        return max(0, int(given)) if isinstance(given, int | float | str) else 0
    except (ValueError, OverflowError):
        return 0
