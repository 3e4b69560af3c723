"""Images that take long to process: time limits in total, on repetition, and while others wait."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from agent.thread_storage import ThreadStorage
from agent.uploads.images import (
    ALL_DEADLINE_S,
    MAX_CONCURRENT,
    RETRY_S,
    SLOTS,
    ImagesBusy,
    ModelImages,
    fit_image,
)
from agent.uploads.snapshot import MAX_IMAGES, FileReference, UploadSnapshot
from agent.uploads.store import UploadStore
from tests.agent.plain_agent import THREAD
from tests.fakes.clock import ManualClock

SMALL = b"\x89PNG\r\n\x1a\n" + b"p" * 20
DAMAGED = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x23\x28\0\0\0\x0a"  # 9,000 x 10 pixels, without data
VERSION = (1, 2, 3)


class Reads:
    """Counts how often an image is read."""

    def __init__(self, data: bytes) -> None:
        self.count, self._data = 0, data

    def __call__(self) -> bytes:
        self.count += 1
        return self._data


def test_an_image_that_failed_is_not_tried_with_every_model_call() -> None:
    clock, read = ManualClock(), Reads(DAMAGED)
    shown = ModelImages(clock)
    for _ in range(3):
        assert shown.block(VERSION, "image/png", read, until=shown.deadline()) is None
    assert read.count == 1
    changed = (1, 3, 3)
    assert shown.block(changed, "image/png", Reads(SMALL), until=shown.deadline()) is not None
    clock.now += RETRY_S
    assert shown.block(VERSION, "image/png", read, until=shown.deadline()) is None
    assert read.count == 2


def test_images_that_are_shown_together_have_one_deadline() -> None:
    clock, read = ManualClock(), Reads(DAMAGED)
    shown = ModelImages(clock)
    until = shown.deadline()
    clock.now += ALL_DEADLINE_S
    assert shown.block((9, 9, 9), "image/png", Reads(SMALL), until=until) is not None
    assert shown.block(VERSION, "image/png", read, until=until) is None
    # The image did not cause the timeout, so the next request tries it again.
    assert shown.block(VERSION, "image/png", read, until=shown.deadline()) is None
    assert read.count == 2


def test_an_image_does_not_wait_for_others_without_end() -> None:
    with ExitStack() as held:
        for _ in range(MAX_CONCURRENT):
            held.enter_context(SLOTS)
        with pytest.raises(ImagesBusy):
            fit_image(DAMAGED, "image/png", deadline_s=0.01)
    assert fit_image(DAMAGED, "image/png") is None


def test_no_more_images_of_a_message_are_tried_than_shown(tmp_path: Path) -> None:
    rooms = ThreadStorage(tmp_path).folders(THREAD)
    rooms.create()
    names = [f"{number}.png" for number in range(MAX_IMAGES + 1)]
    for name in names:
        (rooms.uploads / name).write_bytes(DAMAGED)
    (rooms.uploads / names[-1]).write_bytes(SMALL)
    snapshot = UploadSnapshot(UploadStore(rooms), ModelImages())
    files = [FileReference(name=name, size=1) for name in names]
    assert snapshot.images(files, snapshot.deadline()) == []
    assert len(snapshot.images(files[1:], snapshot.deadline())) == 1
