"""Checks that a checkpoint from which a client continues exists: LangGraph would begin with an empty state."""

from collections.abc import Mapping
from typing import Any

from store.checkpoints import CheckpointSaver
from store.errors import RowNotFound


async def require_checkpoint(
    saver: CheckpointSaver, thread_id: str, checkpoint: Mapping[str, Any]
) -> None:
    """Return if a checkpoint names none of its own, or one that the thread has. Raises RowNotFound."""
    # Of a subgraph's checkpoint, LangGraph takes the place from its map.
    wanted = checkpoint.get("checkpoint_id")
    if not wanted or checkpoint.get("checkpoint_ns"):
        return
    where = {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": str(wanted)}
    if await saver.aget_tuple({"configurable": where}) is None:
        raise RowNotFound(
            "Checkpoint not found: it is not of this thread, or was pruned. Continue from the thread's history."
        )
