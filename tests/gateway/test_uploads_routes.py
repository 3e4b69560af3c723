"""/api/threads/{id}/uploads: sending, listing and deleting files."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from gateway.multipart import MultipartForm
from tests.agent.test_document_conversion import docx
from tests.gateway.composed import ComposedService, composed

NO_CONVERSION = "uploads: {auto_convert_documents: false}"
THREAD = str(uuid4())


def folder(service: ComposedService, thread: str) -> Path:
    return service.services.agent_services.folders.folders(thread).uploads


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def left_over(service: ComposedService, thread: str) -> list[str]:
    root = service.services.agent_services.folders.folders(thread).root
    return [path.name for path in root.rglob("*.part")]


async def send(
    service: ComposedService, thread: str, *files: tuple[str, bytes], field: str = "files"
) -> httpx.Response:
    return await service.client.post(
        f"/api/threads/{thread}/uploads", files=[(field, file) for file in files]
    )


async def test_files_for_a_thread_that_has_no_run_yet(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        answer = await send(service, THREAD, ("notes one.txt", b"hello"), ("b.bin", b"\0\1"))
        assert answer.status_code == 200
        body = answer.json()
        assert (body["success"], body["skipped_files"]) == (True, [])
        path = "/mnt/user-data/uploads/notes one.txt"
        assert body["files"][0] == {
            "filename": "notes one.txt",
            "size": 5,
            "path": path,
            "virtual_path": path,
            "artifact_url": f"/api/threads/{THREAD}/artifacts/mnt/user-data/uploads/notes%20one.txt",
            "extension": ".txt",
        }
        assert str(folder(service, THREAD)) not in answer.text
        got = await service.client.get(body["files"][0]["artifact_url"])
        assert got.content == b"hello"
        assert left_over(service, THREAD) == []


async def test_uploads_and_their_limits_are_listed(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        empty = await service.client.get(f"/api/threads/{THREAD}/uploads/list")
        assert empty.json() == {"files": [], "count": 0}
        await send(service, THREAD, ("b.txt", b"bb"), ("a.PDF", b"a"))
        listed = (await service.client.get(f"/api/threads/{THREAD}/uploads/list")).json()
        assert listed["count"] == 2
        assert [(f["filename"], f["size"], f["extension"]) for f in listed["files"]] == [
            ("a.PDF", 1, ".pdf"),
            ("b.txt", 2, ".txt"),
        ]
        assert listed["files"][0]["modified"].endswith(("Z", "+00:00"))
        limits = await service.client.get(f"/api/threads/{THREAD}/uploads/limits")
        assert limits.json() == {
            "max_files": 10,
            "max_file_size": 50 * 1024 * 1024,
            "max_total_size": 100 * 1024 * 1024,
        }


async def test_only_the_last_part_of_a_files_name_is_used(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        answer = await send(
            service, THREAD, ("../../../etc/passwd", b"1"), ("C:\\x\\y.txt", b"2"), ("..", b"3")
        )
        assert [file["filename"] for file in answer.json()["files"]] == ["passwd", "y.txt"]
        assert names(folder(service, THREAD)) == ["passwd", "y.txt"]


async def test_the_same_name_twice_in_one_request(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        files = (await send(service, THREAD, ("a.txt", b"1"), ("a.txt", b"2"))).json()["files"]
        assert [file["filename"] for file in files] == ["a.txt", "a_1.txt"]
        assert "original_filename" not in files[0]
        assert files[1]["original_filename"] == "a.txt"
        again = (await send(service, THREAD, ("a.txt", b"3"))).json()["files"]
        assert [file["filename"] for file in again] == ["a.txt"]
        assert (folder(service, THREAD) / "a.txt").read_bytes() == b"3"
        assert (folder(service, THREAD) / "a_1.txt").read_bytes() == b"2"


async def test_too_many_files_leave_nothing(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        answer = await send(service, THREAD, *[(f"{n}.txt", b"x") for n in range(11)])
        assert answer.status_code == 413
        assert "10 files" in answer.json()["detail"]
        assert names(folder(service, THREAD)) == []
        assert left_over(service, THREAD) == []


def form(*parts: tuple[str, int], end: bool = True) -> tuple[dict[str, str], AsyncIterator[bytes]]:
    """Return the headers and body of a form with files of these sizes in MB. The body is generated while it is sent."""

    async def body() -> AsyncIterator[bytes]:
        for name, size_mb in parts:
            disposition = f'form-data; name="files"; filename="{name}"'
            yield f"--cut\r\nContent-Disposition: {disposition}\r\n\r\n".encode()
            for _ in range(size_mb):
                yield bytes(1024 * 1024)
            yield b"\r\n"
        if end:
            yield b"--cut--\r\n"

    return {"Content-Type": "multipart/form-data; boundary=cut"}, body()


async def test_too_large_leaves_the_old_file(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        await send(service, THREAD, ("old.bin", b"old"))
        for parts in ([("old.bin", 51)], [("old.bin", 49), ("b.bin", 49), ("c.bin", 3)]):
            headers, body = form(*parts)
            answer = await service.client.post(
                f"/api/threads/{THREAD}/uploads", headers=headers, content=body
            )
            assert answer.status_code == 413
            assert "MB" in answer.json()["detail"]
            assert names(folder(service, THREAD)) == ["old.bin"]
            assert (folder(service, THREAD) / "old.bin").read_bytes() == b"old"
            assert left_over(service, THREAD) == []


async def test_a_form_that_ends_early_leaves_nothing(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        headers, body = form(("a.bin", 1), end=False)
        answer = await service.client.post(
            f"/api/threads/{THREAD}/uploads", headers=headers, content=body
        )
        assert answer.status_code == 400
        assert names(folder(service, THREAD)) == []
        assert left_over(service, THREAD) == []


async def test_requests_without_files_are_refused(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        url = f"/api/threads/{THREAD}/uploads"
        assert (await service.client.post(url)).status_code == 400
        assert (await service.client.post(url, json={"files": []})).status_code == 400
        assert (await service.client.post(url, data={"a": "b"})).status_code == 400
        other = await send(service, THREAD, ("a.txt", b"x"), field="other")
        assert other.status_code == 400
        assert "`files`" in other.json()["detail"]
        broken = {"Content-Type": "multipart/form-data; boundary=" + "x" * 300}
        assert (await service.client.post(url, content=b"x", headers=broken)).status_code == 400
        wrong = {"Content-Type": "multipart/form-data; boundary=cut"}
        assert (
            await service.client.post(url, content=b"nothing", headers=wrong)
        ).status_code == 400


async def test_fields_beside_the_files_are_passed_over(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        answer = await service.client.post(
            f"/api/threads/{THREAD}/uploads",
            data={"comment": "mine"},
            files=[
                ("files", ("a.txt", b"1")),
                ("preview", ("p.txt", b"2")),
                ("files", ("b.txt", b"3")),
            ],
        )
        assert [file["filename"] for file in answer.json()["files"]] == ["a.txt", "b.txt"]


async def test_a_bad_thread_id_is_refused(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        for bad in ("a.b", "x" * 65, "a b"):
            url = f"/api/threads/{bad}/uploads"
            asked = [
                await service.client.post(url, files=[("files", ("a.txt", b"x"))]),
                await service.client.get(f"{url}/list"),
                await service.client.get(f"{url}/limits"),
                await service.client.delete(f"{url}/a.txt"),
            ]
            assert [answer.status_code for answer in asked] == [400] * 4
            assert all("detail" in answer.json() for answer in asked)


@pytest.mark.parametrize("name", ["..", ".", "a/..", "..\\..", " ", ".upload-1.part"])
async def test_a_name_that_cannot_be_used_is_refused(tmp_path: Path, name: str) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        answer = await send(service, THREAD, (name, b"1"))
        assert answer.status_code == 400
        assert "No file was stored" in answer.json()["detail"]
        both = await send(service, THREAD, (name, b"1"), ("a.txt", b"2"))
        assert [file["filename"] for file in both.json()["files"]] == ["a.txt"]
        assert both.json()["success"] is False


async def test_an_unsafe_place_is_skipped(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        await send(service, THREAD, ("first.txt", b"1"))
        outside = tmp_path / "outside.txt"
        outside.write_text("theirs")
        here = folder(service, THREAD)
        (here / "link.txt").symlink_to(outside)
        (here / "dangling.txt").symlink_to(tmp_path / "nowhere")
        os.link(outside, here / "hard.txt")
        os.mkfifo(here / "pipe.txt")
        (here / "folder.txt").mkdir()
        unsafe = ["link.txt", "dangling.txt", "hard.txt", "pipe.txt", "folder.txt"]
        answer = await send(service, THREAD, *[(name, b"mine") for name in [*unsafe, "good.txt"]])
        body = answer.json()
        assert body["success"] is False
        assert body["skipped_files"] == unsafe
        assert [file["filename"] for file in body["files"]] == ["good.txt"]
        assert outside.read_text() == "theirs"
        assert not (tmp_path / "nowhere").exists()
        assert left_over(service, THREAD) == []


async def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        await send(service, THREAD, ("first.txt", b"1"))
        here = folder(service, THREAD)
        here.rename(here.with_name("moved"))
        (tmp_path / "target").mkdir()
        here.symlink_to(tmp_path / "target")
        answer = await send(service, THREAD, ("a.txt", b"x"))
        assert answer.status_code == 507
        assert str(tmp_path) not in answer.text
        assert names(tmp_path / "target") == []


async def test_uploads_can_be_deleted(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        await send(service, THREAD, ("a b.txt", b"x"), ("a b.md", b"mine"))
        url = f"/api/threads/{THREAD}/uploads"
        done = await service.client.delete(f"{url}/a%20b.txt")
        assert done.json()["success"] is True
        assert names(folder(service, THREAD)) == ["a b.md"]
        assert (await service.client.delete(f"{url}/a%20b.txt")).status_code == 404
        for path in ("..%2F..%2Fx", "%2E%2E", "sub%2Fa.txt", "a%5Cb"):
            assert (await service.client.delete(f"{url}/{path}")).status_code == 400, path
        (folder(service, THREAD) / "dir").mkdir()
        assert (await service.client.delete(f"{url}/dir")).status_code == 404


async def test_a_document_brings_its_text(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        answer = await send(service, THREAD, ("my plan.docx", docx(("Heading1", "Plan"))))
        (file,) = answer.json()["files"]
        assert file["markdown_file"] == "my plan.md"
        assert file["markdown_path"] == file["markdown_virtual_path"]
        assert file["markdown_path"] == "/mnt/user-data/uploads/my plan.md"
        assert (await service.client.get(file["markdown_artifact_url"])).text == "# Plan"
        broken = (await send(service, THREAD, ("b.docx", b"words"), ("c.doc", b"words"))).json()
        assert broken["success"] is True
        assert all("markdown_error" in file for file in broken["files"])
        assert "b.docx: the document is damaged" in broken["message"]
        assert ".docx or PDF" in broken["files"][1]["markdown_error"]
        await service.client.delete(f"/api/threads/{THREAD}/uploads/my%20plan.docx")
        assert names(folder(service, THREAD)) == ["b.docx", "c.doc"]


async def test_the_token_is_asked_for(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        answer = await service.stranger.post(
            f"/api/threads/{THREAD}/uploads", files=[("files", ("a.txt", b"x"))]
        )
        assert answer.status_code == 401
        assert not service.services.agent_services.folders.folders(THREAD).root.exists()


async def test_uploads_may_be_larger_than_other_bodies(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_CONVERSION) as service:
        headers, body = form(("big.bin", 12))
        answer = await service.client.post(
            f"/api/threads/{THREAD}/uploads", headers=headers, content=body
        )
        assert answer.status_code == 200
        assert answer.json()["files"][0]["size"] == 12 * 1024 * 1024
        elsewhere = await service.client.post(
            "/api/threads/search", headers={"Content-Length": "12000000"}, content=b"{}"
        )
        assert elsewhere.status_code == 413


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100_000])
async def test_a_form_cut_anywhere_is_refused(size: int) -> None:
    whole = (
        b'--b\r\nContent-Disposition: form-data; name="files"; filename="\xc3\xa4.txt"\r\n'
        b"Content-Type: text/plain\r\n\r\nline\r\n--not the end\r\n\r\n--b\r\n"
        b'content-disposition: form-data; name="other"\r\n\r\nvalue\r\n--b\r\n'
        b'Content-Disposition: form-data; filename="two"; name="files"\r\n\r\n\r\n--b--\r\n'
    )

    async def body() -> AsyncIterator[bytes]:
        for start in range(0, len(whole), size):
            yield whole[start : start + size]

    found: list[Any] = []
    async for file in MultipartForm("multipart/form-data; boundary=b", body()).files():
        content = b"".join([chunk async for chunk in file.chunks])
        found.append((file.filename, content))
    assert found == [("ä.txt", b"line\r\n--not the end\r\n"), ("two", b"")]
