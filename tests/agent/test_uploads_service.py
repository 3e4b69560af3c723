"""The upload service under errors and concurrency."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from agent.errors import ThreadIdInvalid, UploadNotAllowed, UploadNotFound, UploadTooLarge
from agent.thread_storage import ThreadFolders, ThreadStorage
from agent.uploads.batch import IncomingFile, UploadRequestLimits, file_from_path
from agent.uploads.converter import DocumentConverter
from agent.uploads.names import numbered, safe_name
from agent.uploads.service import UploadService
from agent.uploads.store import RECORDS_FILE, ConversionRecord, UploadStore
from tests.agent.agent_harness import open_agent
from tests.agent.incoming_files import file_from_bytes
from tests.agent.plain_agent import THREAD
from tests.eventually import eventually
from tests.fakes.scripted import ScriptedChatModel


class SlowConverter(DocumentConverter):
    """Converts a document once the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.began = anyio.Event()
        self.may_end = anyio.Event()

    @override
    async def convert(
        self, document: int, suffix: str, pages: tuple[int, int] | None = None
    ) -> str:
        content = os.read(document, 100)
        self.began.set()
        await self.may_end.wait()
        return content.decode()


def service(
    home: Path, converter: DocumentConverter | None = None, max_files: int = 3
) -> UploadService:
    return UploadService(
        ThreadStorage(home),
        converts=lambda: converter is not None,
        converter=converter,
        limits=UploadRequestLimits(max_files=max_files, max_file_size=100, max_total_size=150),
    )


def rooms(home: Path) -> ThreadFolders:
    return ThreadStorage(home).folders(THREAD)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def stream(*files: IncomingFile) -> AsyncIterator[IncomingFile]:
    for file in files:
        yield file


async def test_a_cancelled_request_leaves_nothing(tmp_path: Path) -> None:
    begun = anyio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"begun"
        begun.set()
        await anyio.sleep_forever()

    files = stream(
        file_from_bytes("whole.txt", b"x"), IncomingFile(filename="a.txt", chunks=endless())
    )
    async with anyio.create_task_group() as group:
        group.start_soon(service(tmp_path).accept, THREAD, files)
        await begun.wait()
        group.cancel_scope.cancel()
    assert names(rooms(tmp_path).uploads) == []
    assert [name for name in names(rooms(tmp_path).root) if name.endswith(".part")] == []


async def test_a_source_that_fails_leaves_nothing(tmp_path: Path) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"half"
        raise RuntimeError("the platform hung up")

    with pytest.raises(RuntimeError):
        await service(tmp_path).accept(THREAD, stream(IncomingFile(filename="a", chunks=failing())))
    assert names(rooms(tmp_path).uploads) == []


@pytest.mark.parametrize(
    ("sizes", "told"),
    [([101], "A file can"), ([80, 80], "in total"), ([1, 1, 1, 1], "3 files")],
)
async def test_limits_apply_while_receiving(tmp_path: Path, sizes: list[int], told: str) -> None:
    files = [file_from_bytes(f"{n}.bin", bytes(size)) for n, size in enumerate(sizes)]
    uploads = service(tmp_path)
    with pytest.raises(UploadTooLarge, match=told):
        await uploads.accept(THREAD, stream(*files))
    assert names(rooms(tmp_path).uploads) == []
    fits = [file_from_bytes("a.bin", bytes(100)), file_from_bytes("b.bin", bytes(50))]
    assert len((await uploads.accept(THREAD, stream(*fits))).files) == 2


async def test_files_without_a_name_are_reported(tmp_path: Path) -> None:
    given = [file_from_bytes(name, b"x") for name in ("..", "", "a\n/.", "ok.txt", "y" * 300)]
    accepted = await service(tmp_path, max_files=5).accept(THREAD, stream(*given))
    assert [file.name for file in accepted.files] == ["ok.txt", "y" * 255]
    assert accepted.skipped == ("..", "(no name)", "a_/.")


async def test_interrupted_uploads_of_an_earlier_process_are_removed(tmp_path: Path) -> None:
    left = [
        ThreadStorage(tmp_path).folders(thread).root / f".upload-{thread}.part"
        for thread in ("t1", "t2")
    ]
    for file in left:
        file.parent.mkdir(parents=True)
        file.write_bytes(b"half")
        os.utime(file, (0, 0))
    uploads = service(tmp_path)
    new = UploadStore(ThreadStorage(tmp_path).folders("t1")).stage()
    uploads.sweep()
    assert not any(file.exists() for file in left)
    assert (left[0].parent / new.staging).exists()
    os.close(new.descriptor)
    left[0].write_bytes(b"half")
    os.utime(left[0], (0, 0))
    async with open_agent(tmp_path, ScriptedChatModel.playing()):
        await eventually(lambda: not left[0].exists())


async def test_files_of_this_machine(tmp_path: Path) -> None:
    source = tmp_path / "notes.txt"
    source.write_text("hello")
    accepted = await service(tmp_path).accept(
        THREAD, stream(file_from_path(source), file_from_path(source, "other.txt"))
    )
    assert [(file.name, file.size) for file in accepted.files] == [
        ("notes.txt", 5),
        ("other.txt", 5),
    ]
    assert (rooms(tmp_path).uploads / "other.txt").read_text() == "hello"


async def test_many_requests_at_once(tmp_path: Path) -> None:
    uploads = service(tmp_path)

    async def send(n: int) -> None:
        files = [
            file_from_bytes("same.txt", f"{n:02}".encode() * 10),
            file_from_bytes(f"{n}.txt", b"x"),
        ]
        await uploads.accept(THREAD, stream(*files))

    async with anyio.create_task_group() as group:
        for n in range(20):
            group.start_soon(send, n)
    content = (rooms(tmp_path).uploads / "same.txt").read_text()
    assert content == content[:2] * 10
    assert len(await uploads.list_files(THREAD)) == 21


@pytest.mark.parametrize("change", ["replaced", "deleted"])
async def test_a_document_replaced_during_conversion(tmp_path: Path, change: str) -> None:
    slow = SlowConverter()
    uploads, without = service(tmp_path, slow), service(tmp_path)
    document = file_from_bytes("plan.docx", b"old words")
    async with anyio.create_task_group() as group:
        group.start_soon(uploads.accept, THREAD, stream(document))
        await slow.began.wait()
        if change == "deleted":
            await without.delete(THREAD, "plan.docx")
        else:
            await without.accept(THREAD, stream(file_from_bytes("plan.docx", b"new")))
        slow.may_end.set()
    expected = ["plan.docx"] if change == "replaced" else []
    assert names(rooms(tmp_path).uploads) == expected


async def test_replacing_a_document_removes_its_text_version(tmp_path: Path) -> None:
    slow = SlowConverter()
    slow.may_end.set()
    await service(tmp_path, slow).accept(THREAD, stream(file_from_bytes("plan.docx", b"old words")))
    assert names(rooms(tmp_path).uploads) == ["plan.docx", "plan.md"]
    await service(tmp_path).accept(THREAD, stream(file_from_bytes("plan.docx", b"new")))
    assert names(rooms(tmp_path).uploads) == ["plan.docx"]


async def test_files_that_cannot_be_deleted_are_reported(tmp_path: Path) -> None:
    uploads = service(tmp_path)
    rooms(tmp_path).create()
    with pytest.raises(UploadNotFound):
        await uploads.delete(THREAD, "none.txt")
    with pytest.raises(UploadNotAllowed):
        await uploads.delete(THREAD, "../x")
    with pytest.raises(UploadNotFound):
        await uploads.delete(THREAD, "x" * 5000)
    with pytest.raises(ThreadIdInvalid):
        await uploads.delete("../t", "x")
    with pytest.raises(ThreadIdInvalid):
        await uploads.accept("..", stream())
    with pytest.raises(UploadNotFound):
        await uploads.delete("another-thread", "none.txt")


# ---- after a crash -----------------------------------------------------------------------------


async def test_temporary_files_of_a_crash_are_removed(tmp_path: Path) -> None:
    root = rooms(tmp_path).root
    rooms(tmp_path).create()
    (root / ".upload-old.part").write_bytes(b"half")
    os.utime(root / ".upload-old.part", (0, 0))
    (root / ".upload-new.part").write_bytes(b"still arriving")
    await service(tmp_path).accept(THREAD, stream(file_from_bytes("a.txt", b"x")))
    assert [name for name in names(root) if name.endswith(".part")] == [".upload-new.part"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"a": 1, "b": null}', b"\xff"])
def test_an_invalid_conversions_file_counts_as_empty(tmp_path: Path, content: bytes) -> None:
    rooms(tmp_path).create()
    (rooms(tmp_path).root / RECORDS_FILE).write_bytes(content)
    shelf = UploadStore(rooms(tmp_path))
    assert shelf.conversions() == {}
    shelf.save_conversion("a.pdf", ConversionRecord(error="damaged"))
    assert shelf.conversions() == {"a.pdf": ConversionRecord(error="damaged")}


# ---- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("plan.txt", "plan.txt"),
        ("Übersicht 你好 🎉.txt", "Übersicht 你好 🎉.txt"),
        ("U\u0308.txt", "Ü.txt"),
        ("  spaced.txt ", "spaced.txt"),
        ("a/b\\c.txt", "c.txt"),
        ("new\nline\t.txt", "new_line_.txt"),
        ("gpj.\u202eexe", "gpj._exe"),
        ("</uploaded_files>.txt", "uploaded_files_.txt"),
        ("a<b>.txt", "a_b_.txt"),
        (".env", ".env"),
        ("nul\0.txt", "nul_.txt"),
        ("folder/", None),
        (".", None),
        ("..", None),
        ("", None),
        ("   ", None),
        (".upload-1.part", None),
        ("\ud800.txt", None),
        ("ü" * 128, "ü" * 127),
        ("ü" * 200 + ".pdf", "ü" * 125 + ".pdf"),
        ("a." + "x" * 300, "a." + "x" * 253),
        ("x" * 255, "x" * 255),
    ],
)
def test_names(raw: str, name: str | None) -> None:
    assert safe_name(raw) == name


def test_a_numbered_name_still_fits() -> None:
    name = numbered("ü" * 125 + ".text", 7)
    assert name.endswith("_7.text")
    assert len(name.encode()) <= 255
