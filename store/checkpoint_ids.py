"""Checkpoint IDs: they grow within a thread, also if the clock is set back between two processes."""

from langgraph.checkpoint.base import id as langgraph_ids

_VERSION = 6


def advance_checkpoint_ids(checkpoint_id: str) -> None:
    """Let the checkpoints that this process makes from now on have greater IDs than this one.

    A thread's newest checkpoint is the one with the greatest ID, and an ID is the time: if it was made while the
    clock was ahead, what comes after it would count as older.
    """
    try:
        known = langgraph_ids.UUID(hex=checkpoint_id)
    except ValueError:
        return  # not an ID of LangGraph's
    # LangGraph's generator has no setter.
    newest = vars(langgraph_ids)["_last_v6_timestamp"] or 0
    if known.version == _VERSION and known.time > newest:
        vars(langgraph_ids)["_last_v6_timestamp"] = known.time
