"""Attachments of a message: their kind by MIME type, and safe file names. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from bus.characters import clean_name
from bus.messages import Attachment


def attachment_kind(mime: str) -> Literal["file", "image", "audio", "video"]:
    """Return the kind of a MIME type.

    >>> attachment_kind("image/png"), attachment_kind("application/pdf")
    ('image', 'file')
    """
    match mime.partition("/")[0]:
        case "image" | "audio" | "video" as kind:
            return kind
    return "file"


def file_name(name: str) -> str:
    r"""Return a file name without folders and line breaks.

    >>> file_name("../../etc/pass\nwd")
    '.._.._etc_pass wd'
    """
    return clean_name(name).replace("/", "_").replace("\\", "_") or "file"


def as_quoted(files: Iterable[Attachment]) -> tuple[Attachment, ...]:
    """Mark files as part of a quoted message, which another message forwards or replies to."""
    return tuple(replace(file, is_quoted=True) for file in files)
