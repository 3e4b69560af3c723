"""Checkpoints' configs and metadata, to and from rows. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig

from store.transaction import Row, Value


def has_metadata(row: Row, wanted: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint's metadata has these values."""
    metadata = json.loads(row["metadata"] or "{}") if wanted else {}
    return all(metadata.get(key) == value for key, value in wanted.items())


def row_key(config: RunnableConfig) -> dict[str, Value]:
    """Return the thread and the namespace that a config names, as parameters of statements."""
    options = config["configurable"]
    return {"thread_id": str(options["thread_id"]), "ns": options.get("checkpoint_ns", "")}


def row_config(key: dict[str, Value], checkpoint_id: object) -> RunnableConfig:
    """Return the config that names a checkpoint."""
    return {
        "configurable": {
            "thread_id": key["thread_id"],
            "checkpoint_ns": key["ns"],
            "checkpoint_id": checkpoint_id,
        }
    }
