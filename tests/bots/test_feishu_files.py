"""Uploads to Feishu: the type of each file, and files that cannot be sent. Real adapter, fake platform."""

from pathlib import Path

import anyio
import pytest

from bots.feishu.adapter import FeishuAdapter
from bots.feishu.errors import FeishuError
from bus.messages import MessageId
from bus.platform import OutgoingFile
from gateway.playground.feishu.server import FakeFeishu, FeishuMessage
from tests.bots.feishu_rig import adapter_for, place_of

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 100


async def test_pictures_and_files_are_uploaded_and_sent(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("draw")
        picture = await _send_file(adapter, asked, tmp_path / "chart.png", PNG, "image/png")
        report = await _send_file(
            adapter, asked, tmp_path / '报告 "1".pdf', b"%PDF" * 50_000, "application/pdf"
        )
        await _send_file(adapter, asked, tmp_path / "clip.mp4", b"0000", "video/mp4")
        await _send_file(adapter, asked, tmp_path / "fake.png", b"no picture", "image/png")
        assert [answer.type for answer in feishu.answers_to(asked)] == [
            "image",
            "file",
            "file",
            "file",
        ]
        assert [answer.id for answer in feishu.answers_to(asked)][:2] == [picture, report]
        kinds = [(kind, name) for kind, name, _ in feishu.files.values()]
        assert kinds == [
            ("image", ""),
            ("pdf", '报告 "1".pdf'),
            ("stream", "clip.mp4"),
            ("stream", "fake.png"),
        ]
        assert list(feishu.files.values())[1][2] == b"%PDF" * 50_000
        assert feishu.violations == []


async def _send_file(
    adapter: FeishuAdapter, asked: FeishuMessage, path: Path, data: bytes, mime: str
) -> MessageId:
    await anyio.Path(path).write_bytes(data)
    file = OutgoingFile(path=path, name=path.name, mime=mime, size_bytes=len(data))
    return await adapter.send_file(place_of(asked), file, key=f"file/{path.name}")


async def test_files_that_cannot_be_sent_say_why(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("send")
        with pytest.raises(FeishuError, match="is empty") as caught:
            await _send_file(adapter, asked, tmp_path / "empty.txt", b"", "text/plain")
        assert not caught.value.retryable
        large = tmp_path / "large.bin"
        with large.open("wb") as file:
            file.truncate(31 * 1024 * 1024)
        missing = OutgoingFile(path=tmp_path / "none", name="none", mime="text/plain", size_bytes=1)
        for outgoing, why in (
            (OutgoingFile(path=large, name="large.bin", mime="x/y", size_bytes=1), "30 MB"),
            (missing, "cannot be read"),
        ):
            with pytest.raises(FeishuError, match=why) as caught:
                await adapter.send_file(place_of(asked), outgoing, key="k")
            assert not caught.value.retryable
        assert feishu.calls("file.create") == []


async def test_an_upload_that_broke_off_is_not_ambiguous(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu:
        asked = await feishu.dm("send")
        feishu.fail("file.create", drop="after")
        with pytest.raises(FeishuError) as caught:
            await _send_file(adapter_for(feishu), asked, tmp_path / "a.txt", b"text", "text/plain")
        assert (caught.value.retryable, caught.value.ambiguous) == (True, False)


async def test_a_refused_token_does_not_spoil_an_upload(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu:
        asked = await feishu.dm("send")
        feishu.fail("file.create", status=400, code=99991677)
        await _send_file(adapter_for(feishu), asked, tmp_path / "a.txt", b"text", "text/plain")
        assert [content for _, _, content in feishu.files.values()] == [b"text"]
