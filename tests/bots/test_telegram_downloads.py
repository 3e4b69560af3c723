"""Downloads from Telegram: streamed, within the size limit, and no error contains the token."""

import logging

import pytest

from bots.telegram.adapter import TelegramAdapter
from bus.errors import DeliveryError, FileTooLarge
from bus.messages import Attachment
from gateway.playground.telegram.chats import TelegramUpload
from gateway.playground.telegram.server import TelegramServer
from tests.bots.telegram_rig import FAST, adapter_for, running
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake

LIMIT = 50_000_000


async def fetched(adapter: TelegramAdapter, ref: str, limit: int = LIMIT) -> bytes:
    file = Attachment(name="a", ref=ref)
    async with adapter.download(file, max_bytes=limit) as chunks:
        return b"".join([chunk async for chunk in chunks])


def kept(telegram: TelegramServer, content: bytes = b"content") -> str:
    upload = TelegramUpload(name="a.bin", content=content, mime="application/octet-stream")
    return telegram.keep("document", upload).file_id


async def test_a_file_of_a_message_is_fetched() -> None:
    content = bytes(range(256)) * 1000
    intake = RecordingIntake()
    async with TelegramServer() as telegram:
        adapter = adapter_for(telegram)
        async with running(adapter, intake):
            telegram.send_file(
                1001, TelegramUpload(name="图.bin", content=content), caption="see this"
            )
            await eventually(lambda: bool(intake.received))
            [attachment] = intake.received[0].attachments
            async with adapter.download(attachment, max_bytes=LIMIT) as chunks:
                assert b"".join([chunk async for chunk in chunks]) == content
        # Works after the adapter stopped, too, because a turn that is being finished may still need its files.
        assert await fetched(adapter, attachment.ref) == content
        assert telegram.violations == []


async def test_files_that_telegram_refuses_are_reported() -> None:
    async with TelegramServer() as telegram:
        adapter = adapter_for(telegram)
        big = kept(telegram, bytes(20_000_001))
        with pytest.raises(FileTooLarge, match="larger than 20 MB"):
            await fetched(adapter, big)
        with pytest.raises(FileTooLarge, match="larger than 20 MB"):
            async with adapter.download(
                Attachment(name="a", ref="r", size_bytes=30_000_000), max_bytes=LIMIT
            ):
                raise AssertionError("the download was opened")
        with pytest.raises(DeliveryError) as caught:
            await fetched(adapter, "unknown")
        assert not caught.value.retryable
        with pytest.raises(DeliveryError, match="it is larger"):
            await fetched(adapter, kept(telegram), limit=3)


@pytest.mark.parametrize(
    ("method", "how", "retryable", "wait_s"),
    [
        ("getFile", {"status": 429, "parameters": {"retry_after": 3}}, True, 3.0),
        ("getFile", {"drop": "before", "times": 2}, True, None),
        ("getFile", {"status": 502, "body": "bad gateway"}, True, None),
        ("getFile", {"delay_s": 1.5}, True, None),
        ("download", {"status": 429, "headers": {"Retry-After": "3"}}, True, 3.0),
        ("download", {"status": 502, "body": "bad gateway"}, True, None),
        ("download", {"status": 404}, False, None),
        ("download", {"drop": "before", "times": 2}, True, None),
        ("download", {"delay_s": 1.5}, True, None),
    ],
    ids=str,
)
async def test_failures_are_decisions_without_the_token(
    caplog: pytest.LogCaptureFixture,
    method: str,
    how: dict[str, object],
    *,
    retryable: bool,
    wait_s: float | None,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with TelegramServer() as telegram:
        adapter = adapter_for(telegram, timeouts=SLOW_SOON)
        ref = kept(telegram)
        telegram.fail(method, **how)  # type: ignore[arg-type]
        with pytest.raises(DeliveryError) as caught:
            await fetched(adapter, ref)
        error = caught.value
        assert (error.retryable, error.retry_after_s) == (retryable, wait_s)
        assert not error.ambiguous
        chain = f"{error!r} {error.__cause__!r} {error} {caplog.text}"
        assert telegram.token not in chain
        assert telegram.token.partition(":")[2] not in chain


SLOW_SOON = type(FAST)(
    poll_s=2, connect_s=0.3, answer_s=0.3, upload_s=0.5, retry_min_s=0.01, retry_max_s=0.05
)
