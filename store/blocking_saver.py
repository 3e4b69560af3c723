"""BlockingSaver: synchronous methods for an asynchronous LangGraph saver."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import override

from store.owner_loop import OwnerLoop


class BlockingSaver(BaseCheckpointSaver[str]):
    """A saver that belongs to the event loop that creates it.

    A synchronous step or tool that calls a graph with `invoke` uses these methods from a worker thread. They block
    until the event loop has done the work. Called in the event loop itself, they raise RuntimeError.

    Attributes:
        owner: The event loop.
    """

    def __init__(self, *, serde: SerializerProtocol) -> None:
        super().__init__(serde=serde)
        self.owner = OwnerLoop()

    @override
    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.owner.wait(self.aget_tuple(config))

    @override
    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self.owner.wait(self.aput(config, checkpoint, metadata, new_versions))

    @override
    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self.owner.wait(self.aput_writes(config, writes, task_id, task_path))

    @override
    def delete_thread(self, thread_id: str) -> None:
        self.owner.wait(self.adelete_thread(thread_id))

    @override
    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.owner.wait(self.acopy_thread(source_thread_id, target_thread_id))

    @override
    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self.owner.wait(self.aget_delta_channel_history(config=config, channels=channels))

    @override
    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        async def collect() -> tuple[CheckpointTuple, ...]:
            found = self.alist(config, filter=filter, before=before, limit=limit)
            return tuple([one async for one in found])

        return iter(self.owner.wait(collect()))
