"""Deletes what nobody needs: objects that no row names, and copies of threads that this node does not use."""

import logging
import time
from datetime import UTC, datetime, timedelta
from typing import Final

import anyio

from store.errors import StoreError
from store.files.bucket_mirror import BucketMirror
from store.files.mirror import FileMirror
from store.nodes import Nodes

EVERY_S: Final = 6 * 3600.0
"""How often it is looked for, seconds; the first time soon after the start."""

FIRST_S: Final = 60.0

UNNAMED: Final = timedelta(days=1)
"""How old an object has to be: no upload takes so long."""

UNUSED_S: Final = 7 * 86_400.0
"""How long a copy of a thread is kept after its last use, seconds."""

log = logging.getLogger(__name__)


async def run_housekeeping(mirror: FileMirror, nodes: Nodes) -> None:
    """Do it until cancelled; of several nodes, one deletes objects. Does nothing if files are in a folder."""
    if not isinstance(mirror, BucketMirror):
        return
    await anyio.sleep(FIRST_S)
    while True:
        try:
            await mirror.drop_unused(time.time() - UNUSED_S)
            with anyio.move_on_after(EVERY_S):  # another node does it
                async with nodes.exclusive("files"):
                    count = await mirror.delete_unnamed(datetime.now(UTC) - UNNAMED)
                    log.debug("%d objects without a name were deleted", count)
                    await anyio.sleep(EVERY_S)
        except StoreError as error:
            log.warning("Files that nobody needs are deleted later: %s", error)
            await anyio.sleep(FIRST_S)
