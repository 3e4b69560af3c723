"""Ends the active runs of a stopping process."""

from collections.abc import Sequence

import anyio

from gateway.runtime.local_run import LocalRun

CANCEL_S = 2.0
"""Part of the time limit that is reserved for runs that must be canceled, seconds."""


def hand_over(active: Sequence[LocalRun]) -> None:
    """Make runs stop once their current step is stored, and keep waiting runs from starting here. Returns at once.

    Other nodes continue restartable runs. The others become `interrupted`.
    """
    for live in active:
        live.control.request_drain("this node stops")
        live.is_handed_over = live.is_handed_over or (
            live.restartable and live.row.status == "pending"
        )


async def stop_runs(active: Sequence[LocalRun], within_s: float, *, may_go_on: bool) -> None:
    """End runs within a time limit in seconds. `may_go_on` = other nodes can continue them after their current step."""
    with anyio.move_on_after(within_s, shield=True):
        if may_go_on:
            hand_over(active)
            with anyio.move_on_after(max(0.0, within_s - CANCEL_S)):
                await _wait_stopped(active)
        for live in active:
            live.request_cancel("hand_over" if may_go_on and live.restartable else "interrupt")
        await _wait_stopped(active)


async def _wait_stopped(active: Sequence[LocalRun]) -> None:
    for live in active:
        if not live.is_handed_over:
            await live.stopped.wait()
