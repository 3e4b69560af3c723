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

    rehearse()  # once before, for files that packages open when they are first used
    before = left()
    rehearse()
    assert left() == before
