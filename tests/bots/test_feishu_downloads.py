"""Downloads from Feishu: files are streamed, and error responses are not mistaken for files."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from bots.feishu.adapter import FeishuAdapter
from bots.feishu.timeouts import FeishuTimeouts
from bus.errors import DeliveryError
from bus.messages import Attachment
from gateway.playground.feishu.server import FakeFeishu, FeishuMessage
from tests.bots.feishu_rig import QUICK, adapter_for, running
from tests.fakes.intake import RecordingIntake

LIMIT = 50_000_000


async def fetched(adapter: FeishuAdapter, ref: str, limit: int = LIMIT) -> bytes:
    file = Attachment(name="a", ref=ref)
    async with adapter.download(file, max_bytes=limit) as chunks:
        return b"".join([chunk async for chunk in chunks])


@asynccontextmanager
async def connected(
    intake: RecordingIntake | None = None, timeouts: FeishuTimeouts = QUICK
) -> AsyncIterator[tuple[FakeFeishu, FeishuAdapter]]:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu, timeouts=timeouts)
        async with running(adapter, intake or RecordingIntake()):
            yield feishu, adapter


def ref_of(message: FeishuMessage) -> str:
    kind = message.type
    key = message.content["image_key" if kind == "image" else "file_key"]
    return f"messages/{message.id}/resources/{key}?type={kind}"


async def test_files_and_pictures_of_messages_are_fetched() -> None:
    content, picture = bytes(range(256)) * 1000, b"\x89PNG" + bytes(100)
    intake = RecordingIntake()
    async with connected(intake) as (feishu, adapter):
        await feishu.file("图.bin", content)
        await feishu.picture(picture)
        await feishu.wait_for(lambda: len(intake.received) == 2)
        got = []
        for inbound in intake.received:
            [attachment] = inbound.attachments
            async with adapter.download(attachment, max_bytes=LIMIT) as chunks:
                got.append(b"".join([chunk async for chunk in chunks]))
        assert got == [content, picture]
    assert feishu.violations == []


async def test_a_json_file_is_a_file() -> None:
    text = b'{"code": 0, "msg": "mine"}' + b" " * 200_000
    async with connected() as (feishu, adapter):
        message = await feishu.file("a.json", text, mime="application/json")
        assert await fetched(adapter, ref_of(message)) == text


async def test_an_old_token_is_renewed() -> None:
    async with connected() as (feishu, adapter):
        message = await feishu.file("a")
        feishu.revoke_tokens()
        assert await fetched(adapter, ref_of(message)) == b"content"
    # Works after the adapter stopped, too, because a turn that is being finished may still need its files.
    async with FakeFeishu() as feishu:
        message = await feishu.file("a")
        assert await fetched(adapter_for(feishu), ref_of(message)) == b"content"


async def test_files_that_are_too_large_are_reported() -> None:
    async with connected() as (feishu, adapter):
        message = await feishu.file("a", bytes(2000))
        with pytest.raises(DeliveryError, match="it is larger"):
            await fetched(adapter, ref_of(message), limit=1000)


@pytest.mark.parametrize(
    ("how", "retryable", "wait_s"),
    [
        ({"status": 429, "code": 99991400, "headers": {"x-ogw-ratelimit-reset": "3"}}, True, 3.0),
        ({"status": 400, "code": 234003}, False, None),
        ({"status": 200, "code": 234003}, False, None),
        ({"status": 400, "code": 99991672}, False, None),
        ({"status": 502, "text": "bad gateway"}, True, None),
        ({"drop": "before"}, True, None),
        ({"delay_s": 5.0}, True, None),
    ],
    ids=str,
)
async def test_failures_are_decisions_without_the_token(
    caplog: pytest.LogCaptureFixture,
    how: dict[str, object],
    *,
    retryable: bool,
    wait_s: float | None,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with connected(timeouts=replace(QUICK, call_s=1, upload_s=1)) as (feishu, adapter):
        message = await feishu.file("a")
        feishu.fail("resource", **how)  # type: ignore[arg-type]
        with pytest.raises(DeliveryError) as caught:
            await fetched(adapter, ref_of(message))
        error = caught.value
        assert (error.retryable, error.retry_after_s) == (retryable, wait_s)
        assert not error.ambiguous
        assert feishu.settings["app_secret"] not in f"{error!r} {error.__cause__!r} {caplog.text}"
