"""The service that runs in the fork server before others are forked from it."""

import logging
import resource
import threading
from pathlib import Path

from tests.rehearsal import rehearse


def test_it_answers_and_leaves_nothing_behind() -> None:
    def left() -> object:
        files = len(list(Path("/proc/self/fd").iterdir()))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        return files, limits, threading.active_count(), logging.root.manager.disable

    rehearse()  # a first run opens the files that packages open on first use
    before = left()
    rehearse()
    assert left() == before
