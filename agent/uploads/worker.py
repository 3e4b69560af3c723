"""Child process that converts a document to Markdown, or makes an image smaller. Limited memory, no network.

Usage: `python -I worker.py SUFFIX DEADLINE_S MEMORY_BYTES [FIRST LAST]`, with the document on stdin. FIRST and LAST are
pages of a PDF. For an image, the suffix is `IMAGE`. With exit code 0, stdout contains the text or a JPEG. With exit
code 3, stdout is a sentence that says why the conversion failed.
"""

import ctypes
import io
import os
import resource
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

IMAGE = ".image"

FITTED_SIDE = 2_000
"""Longest side of a smaller image, pixels. Models cannot see more detail."""

MAX_PIXELS = 64_000_000
"""Maximum pixels of an image to decode. Bounds memory, to stop decompression bombs."""

REFUSED = 3
"""Exit code if the document cannot be converted."""

MAX_MARKDOWN_BYTES = 10_000_000
"""Longest text, bytes. A note replaces the rest."""

MAX_UNPACKED_BYTES = 400_000_000
"""Maximum unpacked size of an Office file, bytes. Normal files have less than a tenth of this."""

MAX_PARTS = 20_000
_CUT = "\n\n[The document is too long: the rest is omitted.]\n"
_OLE = b"\xd0\xcf\x11\xe0"  # Office formats before 2007, and encrypted files since
_ZIPPED = {".doc": ".docx", ".ppt": ".pptx", ".xls": ".xlsx"}
_CLONE_NEWUSER_NEWNET = 0x10000000 | 0x40000000

DAMAGED = "the document is damaged, or its type does not match its name"
PROTECTED = "the document is password-protected"
TOO_LARGE = "the document is too large to convert"
WITHOUT_TEXT = "the document contains no text; it may consist of images"
UNAVAILABLE = "the document converter cannot be loaded"


class ConversionRefused(Exception):
    """The document cannot be converted. The message says why."""


def main() -> int:
    """Convert the document on stdin."""
    suffix, deadline_s, memory_bytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    target = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # keep output of libraries out of the text
    _confine(deadline_s, memory_bytes)
    code, text = _converted(suffix, sys.stdin.buffer, [int(page) for page in sys.argv[4:]])
    with os.fdopen(target, "wb") as output:
        output.write(text)
    return code


def _confine(deadline_s: int, memory_bytes: int) -> None:
    for limit, soft, hard in (
        (resource.RLIMIT_AS, memory_bytes, memory_bytes),
        # The soft limit is one second earlier. It ends the process with a signal that shows the reason.
        (resource.RLIMIT_CPU, deadline_s, deadline_s + 1),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_NOFILE, 256, 256),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        resource.setrlimit(limit, (soft, hard))
    # No network from here on, if the kernel supports this. The converters do not use it anyway.
    with suppress(AttributeError):
        ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER_NEWNET)


def _converted(suffix: str, document: BinaryIO, pages: Sequence[int] = ()) -> tuple[int, bytes]:
    """Return the exit code, and the text or the reason. `pages`: the first and last page, or empty."""
    try:
        if suffix == IMAGE:
            return 0, _smaller_image(document)
        kind = _kind(suffix, document)
        is_range = kind == ".pdf" and bool(pages)
        text = _read_pages(document, *pages) if is_range else _markdown(kind, document)
    except Exception as error:  # noqa: BLE001 - every parser raises its own types
        return REFUSED, _reason(error).encode()
    return 0, _cut(text.replace("\0", "").encode("utf-8", "replace"))


def _reason(error: Exception) -> str:
    if isinstance(error, ConversionRefused):
        return str(error)
    if isinstance(error, MemoryError):
        return TOO_LARGE
    if isinstance(error, ImportError):
        return UNAVAILABLE
    is_protected = any(word in str(error).lower() for word in ("password", "encrypted"))
    return PROTECTED if is_protected else DAMAGED


def _cut(text: bytes) -> bytes:
    if len(text) <= MAX_MARKDOWN_BYTES:
        return text
    head = text[: MAX_MARKDOWN_BYTES - len(_CUT)].decode("utf-8", "ignore")
    return head.encode() + _CUT.encode()


def _kind(suffix: str, document: BinaryIO) -> str:
    """Return the suffix of the document's actual type.

    Raises:
        ConversionRefused: The document cannot be converted.
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
    """Reject archives that unpack to far more than any document needs."""
    with zipfile.ZipFile(document) as archive:
        parts = archive.infolist()
    document.seek(0)
    if len(parts) > MAX_PARTS or sum(part.file_size for part in parts) > MAX_UNPACKED_BYTES:
        raise ConversionRefused(TOO_LARGE)


def _markdown(suffix: str, document: BinaryIO) -> str:
    text = _READERS[suffix](document)
    if not text.strip():
        raise ConversionRefused(WITHOUT_TEXT)
    return text


# The functions import the packages that read documents, so that the limits are set first.


def _read_pages(document: BinaryIO, first: int, last: int) -> str:
    """Return the text of some pages of a PDF, and a line with their numbers and the total number of pages."""
    text, total = _pdf_text(document, first, last)
    if first > total:
        raise ConversionRefused(f"the document has only {total} pages")
    shown = text or "(no text on these pages; they may consist of images)"
    end = min(last, total)
    more = f'; continue with pages="{end + 1}-{min(2 * end - first + 1, total)}"'
    return f"{shown}\n\n[pages {first} to {end} of {total}{more if end < total else ''}]"


def _read_pdf(document: BinaryIO) -> str:
    return _pdf_text(document, 1, sys.maxsize)[0]


def _pdf_text(document: BinaryIO, first: int, last: int) -> tuple[str, int]:
    """Return the text of the pages, each under a heading with its number, and the total number of pages.

    Pages without text are left out.
    """
    import pypdfium2  # type: ignore[import-untyped]  # noqa: PLC0415

    pages = []
    pdf = pypdfium2.PdfDocument(document)
    for number in range(first, min(last, len(pdf)) + 1):
        page = pdf[number - 1]
        # U+FFFE marks where a word is hyphenated at the end of a line.
        text = page.get_textpage().get_text_bounded().replace("\r\n", "\n").replace("\ufffe", "")
        if text.strip():
            pages.append(f"## Page {number}\n\n{text.strip()}")
    return "\n\n".join(pages), len(pdf)


def _read_docx(document: BinaryIO) -> str:
    import mammoth  # type: ignore[import-untyped]  # noqa: PLC0415
    from markdownify import markdownify  # noqa: PLC0415

    html = mammoth.convert_to_html(document, ignore_empty_paragraphs=True).value
    text = markdownify(
        html, heading_style="ATX", bullets="-", strip=["img"], table_infer_header=True
    )
    return text.strip()


def _read_pptx(document: BinaryIO) -> str:
    from pptx import Presentation  # noqa: PLC0415

    slides = []
    for number, slide in enumerate(Presentation(document).slides, 1):
        title = slide.shapes.title
        heading = " ".join(title.text_frame.text.split()) if title is not None else ""
        parts = [f"# {heading or 'No title'} (slide {number})"]
        parts += _shape_texts(
            shape for shape in slide.shapes if shape.shape_id != getattr(title, "shape_id", None)
        )
        if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame):
            parts.append(f"Notes: {notes.text}" if notes.text.strip() else "")
        slides.append("\n\n".join(filter(None, parts)))
    return "\n\n".join(slides)


def _shape_texts(shapes: Iterable[Any]) -> Iterator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shape_texts(shape.shapes)
        elif getattr(shape, "has_table", False):
            yield _table([cell.text for cell in row.cells] for row in shape.table.rows)
        elif getattr(shape, "has_chart", False):
            plot = shape.chart.plots[0]
            yield _table(
                [["", *plot.categories], *([series.name, *series.values] for series in plot.series)]
            )
        elif shape.has_text_frame:
            yield shape.text_frame.text.strip()


def _read_xlsx(document: BinaryIO) -> str:
    import openpyxl  # type: ignore[import-untyped]  # noqa: PLC0415

    book = openpyxl.load_workbook(document, read_only=True, data_only=True)
    sheets = []
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # some programs write wrong ones
        sheets.append((sheet.title, sheet.iter_rows(values_only=True)))
    return _sheets(sheets)


def _read_xls(document: BinaryIO) -> str:
    import xlrd  # type: ignore[import-untyped]  # noqa: PLC0415

    book = xlrd.open_workbook(file_contents=document.read())

    def value(cell: xlrd.sheet.Cell) -> object:
        is_date = cell.ctype == xlrd.XL_CELL_DATE
        return xlrd.xldate_as_datetime(cell.value, book.datemode) if is_date else cell.value

    return _sheets((sheet.name, (map(value, row) for row in sheet.get_rows())) for sheet in book)


def _sheets(sheets: Iterable[tuple[str, Iterable[Iterable[object]]]]) -> str:
    return "\n\n".join(f"## {name}\n\n{text}" for name, rows in sheets if (text := _table(rows)))


def _table(rows: Iterable[Iterable[object]]) -> str:
    r"""Return rows as a Markdown table whose first row is its header. Empty rows and columns at the end are left out.

    >>> print(_table([["a", None], [1.0, "x|y"], [None, None]]))
    | a |  |
    | --- | --- |
    | 1 | x\|y |
    """
    table = [[_cell(value) for value in row] for row in rows]
    width = max((n for row in table for n, cell in enumerate(row, 1) if cell), default=0)
    while table and not any(table[-1]):
        table.pop()
    lines = [f"| {' | '.join([*row[:width], *[''] * (width - len(row))])} |" for row in table]
    return "\n".join([*lines[:1], f"|{' --- |' * width}", *lines[1:]]) if lines else ""


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return " ".join(str(value).split()).replace("|", "\\|")


_READERS: dict[str, Callable[[BinaryIO], str]] = {
    ".pdf": _read_pdf,
    ".docx": _read_docx,
    ".pptx": _read_pptx,
    ".xlsx": _read_xlsx,
    ".xls": _read_xls,
}


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
