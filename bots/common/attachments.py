"""Attachments of a message: their kind by MIME type, and safe file names. Pure."""

from typing import Literal

from bus.characters import clean_name


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
