"""The inbound pipeline: the order of its stages, and its capacity."""

import pytest

from bus.access.intake_stats import IntakeStats
from bus.errors import IntakeClosed, IntakeFull
from bus.inbound.pipeline import InboundContext, InboundPipeline, IntakeCapacity
from bus.platform import Disposition
from tests.bus.harness import inbound_message


class RecordingStage:
    """A stage that records that it ran."""

    def __init__(self, name: str, trail: list[str], ends: Disposition | None = None) -> None:
        self._name, self._trail, self._ends = name, trail, ends

    async def __call__(self, context: InboundContext) -> Disposition | None:
        self._trail.append(f"{self._name}:{context.message.text}")
        return self._ends


def pipeline(*stages: RecordingStage, capacity: IntakeCapacity | None = None) -> InboundPipeline:
    return InboundPipeline(
        stages,
        capacity=capacity or IntakeCapacity(10),
        stats=IntakeStats(),
        now=lambda: 1_000_000.0,
    )


async def test_stages_run_in_order_until_one_decides() -> None:
    trail: list[str] = []
    stages = (
        RecordingStage("a", trail),
        RecordingStage("b", trail, Disposition.NOT_ADDRESSED),
        RecordingStage("c", trail, Disposition.ACCEPTED),
    )
    assert await pipeline(*stages).receive(inbound_message("hi", "e")) is Disposition.NOT_ADDRESSED
    assert trail == ["a:hi", "b:hi"]


async def test_a_pipeline_whose_last_stage_passes_a_message_on_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match="last stage"):
        await pipeline(RecordingStage("a", [])).receive(inbound_message("hi", "e"))


async def test_capacity_is_given_back_also_after_an_error() -> None:
    capacity = IntakeCapacity(1)
    with pytest.raises(RuntimeError):
        await pipeline(RecordingStage("a", []), capacity=capacity).receive(
            inbound_message("hi", "e")
        )
    with capacity, pytest.raises(IntakeFull):
        capacity.check()
    capacity.check()
    capacity.close()
    with pytest.raises(IntakeClosed):
        capacity.check()
