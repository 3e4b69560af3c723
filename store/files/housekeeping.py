"""Deletes objects that no row names, and copies of threads that this node does not use."""

import logging
import time
from datetime import UTC, datetime, timedelta

import anyio

from store.errors import StoreError
from store.files.bucket_mirror import BucketMirror
from store.files.mirror import FileMirror
from store.nodes import Nodes

EVERY_S = 6 * 3600.0
"""How often to look for them, seconds. The first search is soon after the start."""

FIRST_S = 60.0

UNNAMED = timedelta(days=1)
"""Minimum age of an object to delete, seconds. No upload takes this long."""

UNUSED_S = 7 * 86_400.0
"""How long to keep a copy of a thread after its last use, seconds."""

log = logging.getLogger(__name__)


async def run_housekeeping(mirror: FileMirror, nodes: Nodes) -> None:
    """Clean up until canceled; only one node deletes objects. Does nothing if files are in a folder."""
    if not isinstance(mirror, BucketMirror):
        return
    await anyio.sleep(FIRST_S)
    while True:
        try:
            await mirror.drop_unused(time.time() - UNUSED_S)
            with anyio.move_on_after(EVERY_S):  # Another node does it.
                async with nodes.exclusive("files"):
                    count = await mirror.delete_unnamed(datetime.now(UTC) - UNNAMED)
                    log.debug("deleted %d objects that no row names", count)
                    await anyio.sleep(EVERY_S)
        except StoreError as error:
            log.warning("Unused files will be deleted later: %s", error)
            await anyio.sleep(FIRST_S)
