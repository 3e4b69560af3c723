"""People's files reach the thread, and the agent learns which ones did not."""

import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest

from bus.errors import DeliveryError
from bus.messages import Attachment, OutboundFile, ReplyTarget
from bus.outbound.artifacts import _write
from bus.runs.uploads import MAX_FILE_BYTES, MAX_FILES, upload_filename
from tests.bus.harness import BusHarness, running_bus
from tests.eventually import eventually
from tests.fakes.platform import FakePlatform


class DownloadingPlatform(FakePlatform):
    """A platform with downloads: `content` by reference. It raises the `troubles` first."""

    def __init__(self) -> None:
        super().__init__()
        self.content: dict[str, list[bytes]] = {}
        self.troubles: deque[DeliveryError] = deque()
        self.fetched: list[str] = []
        self.hangs = False

    @asynccontextmanager
    async def download(
        self, attachment: Attachment, *, max_bytes: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        assert max_bytes == MAX_FILE_BYTES
        self.fetched.append(attachment.ref)
        if self.hangs:
            await anyio.sleep_forever()
        if self.troubles:
            raise self.troubles.popleft()
        yield self._chunks(attachment.ref)

    async def _chunks(self, ref: str) -> AsyncIterator[bytes]:
        for chunk in self.content[ref]:
            yield chunk


def message(harness: BusHarness) -> dict[str, object]:
    [run] = harness.server.runs
    said: dict[str, object] = run.body["input"]["messages"][0]
    return said


async def test_a_file_becomes_an_upload_of_the_thread(tmp_path: Path) -> None:
    platform = DownloadingPlatform()
    platform.content = {"r1": [b"one ", b"two"], "r2": [b"png"]}
    files = (
        Attachment(name="Bericht „Q3“.pdf", mime="application/pdf", ref="r1", size_bytes=7),
        Attachment(name="image.png", mime="image/png", kind="image", ref="r2"),
    )
    async with running_bus(tmp_path, platform=platform) as harness:
        await harness.send("look at these", attachments=files)
        await harness.expect_replies("Hello you")
        [thread_id] = harness.server.threads
        picture = upload_filename(files[1])
        assert harness.gateway.uploads == [
            (thread_id, "Bericht „Q3“.pdf", b"one two"),
            (thread_id, picture, b"png"),
        ]
        assert message(harness)["content"] == "look at these"
        assert message(harness)["additional_kwargs"] == {
            "sender": {"id": "u", "name": "u"},
            "chat_type": "private",
            "files": [
                {
                    "filename": "Bericht „Q3“.pdf",
                    "size": 7,
                    "path": "/mnt/user-data/uploads/Bericht „Q3“.pdf",
                    "status": "uploaded",
                },
                {
                    "filename": picture,
                    "size": 3,
                    "path": f"/mnt/user-data/uploads/{picture}",
                    "status": "uploaded",
                },
            ],
        }


async def test_a_file_without_words_is_a_message(tmp_path: Path) -> None:
    platform = DownloadingPlatform()
    platform.content = {"r": [b"x"]}
    async with running_bus(tmp_path, platform=platform) as harness:
        await harness.send("", attachments=(Attachment(name="a.csv", ref="r"),))
        await harness.expect_replies("Hello you")
        assert message(harness)["content"] == "[Attached: a.csv]"


async def test_temporary_upload_failures_are_retried(tmp_path: Path) -> None:
    platform = DownloadingPlatform()
    platform.content = {"r": [b"x"]}
    platform.troubles.append(DeliveryError("busy", retryable=True, retry_after_s=0.01))
    async with running_bus(tmp_path, platform=platform) as harness:
        harness.gateway.refusals = [(503, "")]
        await harness.send("take it", attachments=(Attachment(name="a.csv", ref="r"),))
        await harness.expect_replies("Hello you")
        assert [name for _, name, _ in harness.gateway.uploads] == ["a.csv"]
        assert platform.fetched == ["r"] * 3
        assert message(harness)["content"] == "take it"


@pytest.mark.parametrize(
    ("file", "trouble", "refusal", "reason"),
    [
        (Attachment(name="a", ref="r", size_bytes=MAX_FILE_BYTES + 1), None, None, "it is larger than 50 MB"),
        (Attachment(name="a", ref="r"), "the platform deleted it", None, "the platform deleted it"),
        (Attachment(name="a", ref="r"), None, (413, "File too large."), "File too large."),
        (Attachment(name="a", ref="r"), None, (400, ""), ""),
    ],
)  # fmt: skip
async def test_failed_uploads_are_reported_with_their_reason(
    tmp_path: Path,
    file: Attachment,
    trouble: str | None,
    refusal: tuple[int, str] | None,
    reason: str,
) -> None:
    platform = DownloadingPlatform()
    platform.content = {"r": [b"x"]}
    if trouble:
        platform.troubles.append(DeliveryError(trouble))
    async with running_bus(tmp_path, platform=platform) as harness:
        harness.gateway.refusals = [refusal] if refusal else []
        await harness.send("this", attachments=(file,))
        await harness.expect_replies("Hello you")
        why = f" ({reason})" if reason else ""
        assert message(harness)["content"] == f"this\n[Attachment that could not be read: a{why}]"
        assert "files" not in str(message(harness)["additional_kwargs"])


async def test_a_platform_that_sends_more_than_it_said_is_cut_off(tmp_path: Path) -> None:
    platform = DownloadingPlatform()
    platform.content = {"r": [bytes(MAX_FILE_BYTES), b"x"]}
    async with running_bus(tmp_path, platform=platform) as harness:
        await harness.send("big", attachments=(Attachment(name="a", ref="r", size_bytes=1),))
        await harness.expect_replies("Hello you")
        assert "larger than 50 MB" in str(message(harness)["content"])
        assert harness.gateway.uploads == []


async def test_only_the_first_of_too_many_files_are_uploaded(tmp_path: Path) -> None:
    platform = DownloadingPlatform()
    platform.content = {"r": [b"x"]}
    files = tuple(Attachment(name=f"f{n}", ref="r") for n in range(MAX_FILES + 1))
    async with running_bus(tmp_path, platform=platform) as harness:
        await harness.send("many", attachments=files)
        await harness.expect_replies("Hello you")
        assert len(harness.gateway.uploads) == MAX_FILES
        assert "f10 (a message can have at most 10 files)" in str(message(harness)["content"])


async def test_stop_ends_a_download(tmp_path: Path) -> None:
    platform = DownloadingPlatform()
    platform.hangs = True
    async with running_bus(tmp_path, platform=platform) as harness:
        await harness.send("slow", attachments=(Attachment(name="a", ref="r"),))
        await eventually(lambda: platform.fetched)
        await harness.send("/stop")
        await harness.expect_replies("Stopped.")
        await harness.send("next")
        await harness.expect_replies("Stopped.", "Hello you")
        assert harness.prompts() == ["next"]


@contextmanager
def no_room_for_temporary_files(folder: Path) -> Iterator[None]:
    tempfile.tempdir = str(folder / "gone")
    try:
        yield
    finally:
        tempfile.tempdir = None


async def test_a_message_is_answered_although_the_disk_takes_no_temporary_file(
    tmp_path: Path,
) -> None:
    platform = DownloadingPlatform()
    platform.content = {"r1": [b"one"]}
    async with running_bus(tmp_path, platform=platform) as harness:
        with no_room_for_temporary_files(tmp_path):
            files = (Attachment(name="report.pdf", ref="r1"),)
            await harness.send("look at this", attachments=files)
            await eventually(lambda: len(platform.texts) == 1)
        assert platform.texts == ["Hello you"]
        text, problem = str(message(harness)["content"]).split("\n")
        assert text == "look at this"
        assert "report.pdf" in problem
        assert "no temporary file could be written" in problem


def test_a_text_that_no_disk_takes_is_sent_later(tmp_path: Path) -> None:
    file = OutboundFile(
        channel="fake",
        reply_target=ReplyTarget(chat="c"),
        thread_id="",
        path="",
        name="a.md",
        content="hi",
    )
    with pytest.raises(DeliveryError, match="no temporary file") as failure:
        _write(file, tmp_path / "gone" / "artifact")
    assert failure.value.retryable
