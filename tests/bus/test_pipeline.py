"""The inbound pipeline: the order of its stages, what each adds, and redeliveries that cost no commit."""

from pathlib import Path

import pytest

from bus.access.intake_stats import IntakeStats
from bus.errors import IntakeClosed, IntakeFull
from bus.inbound.deduplicate import MAX_EVENTS, DeduplicateStage
from bus.inbound.pipeline import InboundContext, InboundPipeline, IntakeCapacity
from bus.platform import Disposition
from store.database import Transaction
from store.errors import StoreUnavailable
from tests.bus.harness import inbound_message, running_bus


class RecordingStage:
    """A stage that notes that it ran."""

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


async def test_a_redelivered_event_is_recognized_without_the_journal(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        assert await harness.send("hi", event="e1") is Disposition.ACCEPTED
        await harness.expect_replies("Hello you")

        def break_inbox(tx: Transaction) -> None:
            tx.run("ALTER TABLE inbox RENAME TO away")

        def mend_inbox(tx: Transaction) -> None:
            tx.run("ALTER TABLE away RENAME TO inbox")

        await harness.database.transaction(break_inbox)
        assert await harness.send("hi", event="e1") is Disposition.DUPLICATE
        with pytest.raises(StoreUnavailable):
            await harness.send("new", event="e2")
        await harness.database.transaction(mend_inbox)
        # What was not stored is not a duplicate when it comes again.
        assert await harness.send("new", event="e2") is Disposition.ACCEPTED


async def test_events_are_distinguished_by_channel_and_workspace() -> None:
    stage = DeduplicateStage()
    stage.remember(inbound_message("hi", "e"))
    assert await stage(InboundContext(inbound_message("hi", "e"))) is Disposition.DUPLICATE
    assert await stage(InboundContext(inbound_message("hi", "e", channel="other"))) is None
    for number in range(MAX_EVENTS):
        stage.remember(inbound_message("hi", f"later {number}"))
    assert await stage(InboundContext(inbound_message("hi", "e"))) is None
