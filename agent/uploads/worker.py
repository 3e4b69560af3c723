"""Child process that converts a document to Markdown, or an image to a smaller one. Limited memory, no network.

Usage: `python -I worker.py SUFFIX DEADLINE_S MEMORY_BYTES`, with the document on stdin. For an image, the suffix is
`IMAGE`. With exit code 0, stdout is the text or a JPEG. With exit code 3, it is a sentence that says why there is none.
"""

import ctypes
import io
import os
import resource
import sys
import zipfile
from contextlib import suppress
from typing import Any, BinaryIO

IMAGE = ".image"

FITTED_SIDE = 2_000
"""Longest side of a smaller image, pixels. Models cannot see more detail."""

MAX_PIXELS = 64_000_000
"""Maximum pixels of an image to decode. Bounds memory, to stop decompression bombs."""

REFUSED = 3
"""Exit code if the document is not converted."""

MAX_MARKDOWN_BYTES = 10_000_000
"""Longest text, bytes. A note replaces the rest."""

MAX_UNPACKED_BYTES = 400_000_000
"""Maximum unpacked size of an Office file, bytes. Normal files have less than a tenth of this."""

MAX_PARTS = 20_000
CONVERTER_PACKAGE = "markitdown"
_CUT = "\n\n[The document is too long: the rest is omitted.]\n"
_OLE = b"\xd0\xcf\x11\xe0"  # Office formats before 2007, and encrypted files since
_ZIPPED = {".doc": ".docx", ".ppt": ".pptx", ".xls": ".xlsx"}
_CLONE_NEWUSER_NEWNET = 0x10000000 | 0x40000000

DAMAGED = "the document is damaged, or its type does not match its name"
PROTECTED = "the document is password-protected"
TOO_LARGE = "the document is too large to convert"
WITHOUT_TEXT = "the document contains no text; it may consist of images"
UNAVAILABLE = "the document converter cannot be loaded"
NOT_INSTALLED = "document conversion is not installed; the operator of Parley can install it with `make documents`"


class ConversionRefused(Exception):
    """The document is not converted; the message says why."""


def main() -> int:
    """Convert the document on stdin."""
    suffix, deadline_s, memory_bytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    target = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # output of libraries is not part of the text
    _confine(deadline_s, memory_bytes)
    code, text = _converted(suffix, sys.stdin.buffer)
    with os.fdopen(target, "wb") as output:
        output.write(text)
    return code


def _confine(deadline_s: int, memory_bytes: int) -> None:
    for limit, soft, hard in (
        (resource.RLIMIT_AS, memory_bytes, memory_bytes),
        # The soft limit, one second earlier, ends the process with a signal that shows the reason.
        (resource.RLIMIT_CPU, deadline_s, deadline_s + 1),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_NOFILE, 256, 256),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        resource.setrlimit(limit, (soft, hard))
    # No network from here on, if the kernel supports this. The converters do not use it anyway.
    with suppress(AttributeError):
        ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER_NEWNET)


def _converted(suffix: str, document: BinaryIO) -> tuple[int, bytes]:
    """Return the exit code, and the text or the reason."""
    try:
        if suffix == IMAGE:
            return 0, _smaller_image(document)
        text = _markdown(_kind(suffix, document), document)
    except Exception as error:  # noqa: BLE001 - every parser raises its own types
        return REFUSED, _reason(error).encode()
    return 0, _cut(text.replace("\0", "").encode("utf-8", "replace"))


def _reason(error: Exception) -> str:
    if isinstance(error, ConversionRefused):
        return str(error)
    if isinstance(error, MemoryError):
        return TOO_LARGE
    if isinstance(error, ImportError):
        return NOT_INSTALLED if error.name == CONVERTER_PACKAGE else UNAVAILABLE
    is_protected = "Password" in type(error).__name__ or "password" in str(error).lower()
    return PROTECTED if is_protected else DAMAGED


def _cut(text: bytes) -> bytes:
    if len(text) <= MAX_MARKDOWN_BYTES:
        return text
    head = text[: MAX_MARKDOWN_BYTES - len(_CUT)].decode("utf-8", "ignore")
    return head.encode() + _CUT.encode()


def _kind(suffix: str, document: BinaryIO) -> str:
    """Return the suffix of the document's actual type.

    Raises:
        Refused: The document cannot be converted.
    """
    head = document.read(8)
    document.seek(0)
    if head.startswith(b"PK"):
        suffix = _ZIPPED.get(suffix, suffix)
        if suffix == ".pdf":
            raise ConversionRefused(DAMAGED)
        _check_parts(document)
        return suffix
    if suffix in (".doc", ".ppt"):
        raise ConversionRefused(
            f"the old {suffix} format is not supported; save the document as {suffix}x or PDF"
        )
    if head.startswith(_OLE) and suffix != ".xls":
        raise ConversionRefused(PROTECTED)
    if suffix in (".docx", ".pptx", ".xlsx"):
        raise ConversionRefused(DAMAGED)
    return suffix


def _check_parts(document: BinaryIO) -> None:
    """Reject archives that unpack to far more than any document."""
    with zipfile.ZipFile(document) as archive:
        parts = archive.infolist()
    document.seek(0)
    if len(parts) > MAX_PARTS or sum(part.file_size for part in parts) > MAX_UNPACKED_BYTES:
        raise ConversionRefused(TOO_LARGE)


def _markdown(suffix: str, document: BinaryIO) -> str:
    # Import it after the limits are set. Choose the converter explicitly: other converters of the package start
    # # programs or use the network.
    from markitdown import StreamInfo, converters  # noqa: PLC0415

    kinds: dict[str, Any] = {
        ".pdf": converters.PdfConverter,
        ".docx": converters.DocxConverter,
        ".pptx": converters.PptxConverter,
        ".xlsx": converters.XlsxConverter,
        ".xls": converters.XlsConverter,
    }
    result = kinds[suffix]().convert(document, StreamInfo(extension=suffix))
    text = str(result.markdown)
    if not text.strip():
        raise ConversionRefused(WITHOUT_TEXT)
    return text


def _smaller_image(file: BinaryIO) -> bytes:
    from PIL import Image, ImageOps  # noqa: PLC0415 - imported after the limits are set

    with Image.open(file, formats=("JPEG", "PNG", "WEBP", "GIF")) as image:
        if image.width * image.height > MAX_PIXELS:
            raise ConversionRefused(TOO_LARGE)
        image.draft("RGB", (FITTED_SIDE, FITTED_SIDE))
        small = ImageOps.exif_transpose(image).convert("RGBA")
    small.thumbnail((FITTED_SIDE, FITTED_SIDE))
    white = Image.new("RGBA", small.size, "white")
    fitted = io.BytesIO()
    Image.alpha_composite(white, small).convert("RGB").save(fitted, "JPEG", quality=85)
    return fitted.getvalue()


if __name__ == "__main__":
    sys.exit(main())
