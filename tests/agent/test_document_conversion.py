"""Converting documents to text in a child process."""

import io
import os
import struct
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import anyio
import psutil
import pytest
from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from typing_extensions import override

from agent.errors import ConversionFailed
from agent.thread_storage import ThreadStorage
from agent.uploads import converter, worker
from agent.uploads.batch import IncomingFile
from agent.uploads.converter import DocumentConverter
from agent.uploads.outline import MAX_HEADINGS, outline_lines
from agent.uploads.service import UploadResult, UploadService
from tests.agent.incoming_files import file_from_bytes
from tests.agent.plain_agent import THREAD
from tests.eventually import eventually

DOCX_TYPES = """<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="xml" ContentType="application/xml"/>
<Override PartName="/word/document.xml"
 ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>"""
DOCX_RELS = """<?xml version="1.0"?><Relationships
 xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1"
 Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
 Target="word/document.xml"/></Relationships>"""
PARAGRAPH = '<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'


def docx(*paragraphs: tuple[str, str]) -> bytes:
    """Return a Word document of (style, text)."""
    body = "".join(PARAGRAPH.format(style=style, text=text) for style, text in paragraphs)
    namespace = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    document = f'<?xml version="1.0"?><w:document xmlns:w="{namespace}"><w:body>{body}</w:body></w:document>'
    return archive(
        {
            "[Content_Types].xml": DOCX_TYPES.encode(),
            "_rels/.rels": DOCX_RELS.encode(),
            "word/document.xml": document.encode(),
        }
    )


def archive(parts: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return packed.getvalue()


def xlsx(rows: int = 2) -> bytes:
    # Not imported at the top: it imports numpy, whose thread would exist when tests/workers.py forks.
    import openpyxl  # type: ignore[import-untyped]  # noqa: PLC0415

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Costs")
    for n in range(rows):
        sheet.append([f"item {n}", n])
    packed = io.BytesIO()
    book.save(packed)
    return packed.getvalue()


def xls() -> bytes:
    """Return a workbook in Excel's oldest format, with a label and a number."""
    label = struct.pack("<HHHH3sB5s", 0x04, 13, 0, 0, bytes(3), 5, b"Costs")
    number = struct.pack("<HHHH3sd", 0x03, 15, 1, 0, bytes(3), 12.0)
    return struct.pack("<HHHH", 0x09, 4, 2, 0x10) + label + number + struct.pack("<HH", 0x0A, 0)


def pptx() -> bytes:
    slides = Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[5])
    assert slide.shapes.title is not None
    slide.shapes.title.text = "Our plan"
    box = slide.shapes.add_textbox(0, 0, 100, 100)
    box.text_frame.text = "First we read."
    table = slide.shapes.add_table(2, 2, 0, 0, 100, 100).table
    for number, words in enumerate(("who", "when", "Ann", "May")):
        table.cell(number // 2, number % 2).text = words
    chart = CategoryChartData()  # type: ignore[no-untyped-call]
    chart.categories = ["Q1", "Q2"]
    chart.add_series("Sales", (3, 4.5))  # type: ignore[no-untyped-call]
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, 100, 100, chart)
    notes = slide.notes_slide.notes_text_frame
    assert notes is not None
    notes.text = "Speak slowly."
    packed = io.BytesIO()
    slides.save(packed)
    return packed.getvalue()


def pdf(text: str = "Quarterly report", *more: str, trailer: str = "") -> bytes:
    """Return a PDF with a page for each text."""
    kids = [3, *range(7, 7 + 2 * len(more), 2)]
    first, *others = (_pdf_page(each, at + 1) for at, each in zip(kids, (text, *more), strict=True))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>"
        % (b" ".join(b"%d 0 R" % kid for kid in kids), len(kids)),
        *first,
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Filter /Standard /V 1 /R 2 /P -4 /O <%s> /U <%s> >>" % (b"41" * 32, b"42" * 32),
        *(each for page in others for each in page),
    ]
    out, offsets = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    return out + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer << /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF"
        % (size, table, size, trailer.encode(), len(out))
    )


def _pdf_page(text: str, content_at: int) -> tuple[bytes, bytes]:
    """Return a page object and its content, which becomes the object `content_at`."""
    content = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode() if text else b""
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>" % content_at
    )
    return page, b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content)


ENCRYPTED = "/Encrypt 6 0 R /ID [<00> <00>]"


def zip_bomb() -> bytes:
    """Return a small Word document with a part whose declared unpacked size exceeds the limit."""
    packed = io.BytesIO(docx(("Normal", "x")))
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("word/media/bomb.bin", bytes(1000))
        file.infolist()[-1].file_size = worker.MAX_UNPACKED_BYTES
    return packed.getvalue()


@pytest.fixture(scope="module")
def converters() -> None:
    """Let one worker run all tests that convert in-process, because the import takes a second (tests/workers.py)."""
    for name in ("mammoth", "markdownify", "openpyxl", "pptx", "pypdfium2"):
        import_module(name)


def text_of(content: bytes, suffix: str) -> str:
    """Convert in this process, for tests with `converters`."""
    code, text = worker._converted(suffix, io.BytesIO(content))
    if code != 0:
        raise ConversionFailed(text.decode())
    return text.decode()


async def convert(folder: Path, content: bytes, suffix: str, **limits: float) -> str:
    """Convert like the service."""
    document = folder / f"document{suffix}"
    document.write_bytes(content)
    descriptor = os.open(document, os.O_RDONLY)
    try:
        return await DocumentConverter(**limits).convert(descriptor, suffix)  # type: ignore[arg-type]
    finally:
        os.close(descriptor)


# ---- formats -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("converters")
@pytest.mark.parametrize(
    ("suffix", "make", "expected"),
    [
        (".docx", lambda: docx(("Heading1", "Plan"), ("Normal", "Words.")), "# Plan"),
        (".doc", lambda: docx(("Normal", "A new document under an old name.")), "A new document"),
        (
            ".xlsx",
            xlsx,
            "## Costs\n\n| item 0 | 0 |\n| --- | --- |\n| item 1 | 1 |",
        ),
        (".xls", xls, "| Costs |\n| --- |\n| 12 |"),
        (".pptx", pptx, "# Our plan (slide 1)\n\nFirst we read.\n\n| who | when |\n"),
        (".pptx", pptx, "|  | Q1 | Q2 |\n| --- | --- | --- |\n| Sales | 3 | 4.5 |"),
        (".pptx", pptx, "Notes: Speak slowly."),
        (".pdf", pdf, "## Page 1\n\nQuarterly report"),
    ],
)
def test_documents_become_markdown(suffix: str, make: Callable[[], bytes], expected: str) -> None:
    assert expected in text_of(make(), suffix)


OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2000)


@pytest.mark.usefixtures("converters")
@pytest.mark.parametrize(
    ("suffix", "make", "reason"),
    [
        (".docx", lambda: b"PK\x03\x04 broken", worker.DAMAGED),
        (".docx", lambda: b"", worker.DAMAGED),
        (".docx", lambda: b"only words", worker.DAMAGED),
        (".docx", lambda: OLD, worker.PROTECTED),
        (".doc", lambda: OLD, "save the document as .docx"),
        (".ppt", lambda: OLD, "save the document as .pptx"),
        (".xls", lambda: OLD, worker.DAMAGED),
        (".pdf", lambda: archive({"a.txt": b"x"}), worker.DAMAGED),
        (".pdf", lambda: b"%PDF-1.7\n" + b"\x07" * 5000, worker.DAMAGED),
        (".pdf", lambda: pdf(trailer=ENCRYPTED), worker.PROTECTED),
        (".pdf", lambda: pdf(""), "contains no text"),
        (".pptx", lambda: archive({"a.txt": b"x"}), worker.DAMAGED),
        (".docx", zip_bomb, worker.TOO_LARGE),
        (".xlsx", lambda: archive({str(n): b"" for n in range(20_001)}), worker.TOO_LARGE),
    ],
)
def test_documents_without_text_say_why(
    suffix: str, make: Callable[[], bytes], reason: str
) -> None:
    with pytest.raises(ConversionFailed, match=reason):
        text_of(make(), suffix)


# ---- limits ------------------------------------------------------------------------------------


async def test_conversion_runs_in_a_child_process(tmp_path: Path) -> None:
    assert await convert(tmp_path, docx(("Heading1", "Plan")), ".docx") == "# Plan"
    with pytest.raises(ConversionFailed, match=worker.DAMAGED):
        await convert(tmp_path, b"only words", ".docx")


async def test_a_giant_sheet_is_stopped_at_the_deadline(tmp_path: Path) -> None:
    with pytest.raises(ConversionFailed, match=converter.TOO_SLOW):
        await convert(tmp_path, xlsx(15_000), ".xlsx", deadline_s=0.2)
    assert workers() == []


async def test_insufficient_memory_is_reported(tmp_path: Path) -> None:
    # The converters alone need more memory than this, so importing them fails.
    with pytest.raises(ConversionFailed):
        await convert(tmp_path, xlsx(), ".xlsx", memory_bytes=20_000_000)


async def test_cancelling_kills_the_process(tmp_path: Path) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(convert, tmp_path, xlsx(), ".xlsx")
        await eventually(workers)
        group.cancel_scope.cancel()
    await eventually(lambda: not workers())


def workers() -> list[int]:
    """Return the converting processes that this process started."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # It has exited, but its parent has not reaped it.
            if worker.__file__ in child.cmdline():
                found.append(child.pid)
    return found


def test_long_texts_are_truncated_with_a_note() -> None:
    text = "ü".encode() * worker.MAX_MARKDOWN_BYTES
    cut = worker._cut(text)
    assert len(cut) <= worker.MAX_MARKDOWN_BYTES
    assert cut.decode().endswith("omitted.]\n")


# ---- in a thread's folder ----------------------------------------------------------------------


class PlainTextConverter(DocumentConverter):
    """Returns a document's bytes as its text. An empty document has no text."""

    @override
    async def convert(
        self, document: int, suffix: str, pages: tuple[int, int] | None = None
    ) -> str:
        content = os.read(document, 1000)
        if not content:
            raise ConversionFailed(worker.DAMAGED)
        return f"# {content.decode()}"


def uploads(tmp_path: Path, *, converts: bool = True) -> UploadService:
    return UploadService(
        ThreadStorage(tmp_path), converts=lambda: converts, converter=PlainTextConverter()
    )


async def send(service: UploadService, *files: tuple[str, bytes]) -> UploadResult:
    async def stream() -> AsyncIterator[IncomingFile]:
        for name, content in files:
            yield file_from_bytes(name, content)

    return await service.accept(THREAD, stream())


async def test_text_versions_are_stored_and_deleted_with_their_document(tmp_path: Path) -> None:
    service, folder = uploads(tmp_path), ThreadStorage(tmp_path).folders(THREAD).uploads
    (first,) = (await send(service, ("plan.docx", b"Plan"))).files
    assert (first.markdown, first.markdown_error) == ("plan.md", None)
    assert (folder / "plan.md").read_text() == "# Plan"
    (again,) = (await send(service, ("plan.docx", b"Second"))).files
    assert again.markdown == "plan.md"
    assert (folder / "plan.md").read_text() == "# Second"
    await service.delete(THREAD, "plan.docx")
    assert list(folder.iterdir()) == []


async def test_user_files_are_never_overwritten_by_text_versions(tmp_path: Path) -> None:
    service, folder = uploads(tmp_path), ThreadStorage(tmp_path).folders(THREAD).uploads
    accepted = await send(service, ("plan.docx", b"Plan"), ("plan.md", b"mine"))
    assert [file.markdown for file in accepted.files] == ["plan_1.md", None]
    assert (folder / "plan.md").read_bytes() == b"mine"
    await service.delete(THREAD, "plan.docx")
    assert [path.name for path in folder.iterdir()] == ["plan.md"]
    # If the user replaces a generated text version, it becomes the user's own file.
    await service.delete(THREAD, "plan.md")
    await send(service, ("plan.docx", b"Plan"))
    await send(service, ("plan.md", b"mine"))
    await service.delete(THREAD, "plan.docx")
    assert (folder / "plan.md").read_bytes() == b"mine"


async def test_a_document_without_text_is_kept_and_says_why(tmp_path: Path) -> None:
    service, folder = uploads(tmp_path), ThreadStorage(tmp_path).folders(THREAD).uploads
    (file,) = (await send(service, ("plan.docx", b""))).files
    assert (file.markdown, file.markdown_error) == (None, worker.DAMAGED)
    assert [path.name for path in folder.iterdir()] == ["plan.docx"]
    (listed,) = await service.list_files(THREAD)
    assert listed.markdown_error == worker.DAMAGED
    told = service.snapshot(THREAD).earlier(())
    assert [f.markdown for f in told.files] == [None]


async def test_conversion_can_be_disabled(tmp_path: Path) -> None:
    service, folder = (
        uploads(tmp_path, converts=False),
        ThreadStorage(tmp_path).folders(THREAD).uploads,
    )
    (file,) = (await send(service, ("plan.docx", b"PK"))).files
    assert (file.markdown, file.markdown_error) == (None, None)
    assert [path.name for path in folder.iterdir()] == ["plan.docx"]


# ---- outlines ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("# One\n## Two ##\n###### Six\n####### no\n#no\n#\n", ["One", "Two", "Six"]),
        ("**Bold**\n__Under__\n**not** whole\n****\n", ["Bold", "Under"]),
        ("# **Both**\n", ["Both"]),
        ("```\n# no\n```\n# yes\n", ["yes"]),
        ("~~~py\n# no\n```\n# no\n~~~\n# yes\n", ["yes"]),
        ("````\n```\n# no\n````\n# yes", ["yes"]),
        ("```\n# never closed\n", []),
        ("    # code\n   # yes\n", ["yes"]),
        ("# win\r\n", ["win"]),
        ("", []),
    ],
)
def test_headings(text: str, titles: list[str]) -> None:
    assert [line.partition(": ")[2] for line in outline_lines(text)] == titles


def test_at_most_fifty_headings() -> None:
    exactly = outline_lines("# h\n" * MAX_HEADINGS)
    assert (len(exactly), exactly[-1]) == (50, "L50: h")
    more = outline_lines("# h\n" * (MAX_HEADINGS + 1))
    assert more == [*exactly, "... there are more; find them with grep '^#'"]
