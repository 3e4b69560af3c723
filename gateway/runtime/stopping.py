"""Ends the active runs of a process that stops."""

from collections.abc import Sequence

import anyio

from gateway.runtime.live_run import LiveRun

CANCEL_S = 2.0
"""What is left of the time limit for runs that have to be cancelled, seconds."""


def hand_over(running: Sequence[LiveRun]) -> None:
    """Have runs end, as `interrupted`, when the step that they are in is stored; returns at once."""
    for live in running:
        live.control.request_drain("this node stops")


async def stop_runs(running: Sequence[LiveRun], within_s: float, *, may_go_on: bool) -> None:
    """End runs, within a time limit in seconds; `may_go_on` = others can continue them after their present step."""
    with anyio.move_on_after(within_s, shield=True):
        if may_go_on:
            hand_over(running)
            with anyio.move_on_after(max(0.0, within_s - CANCEL_S)):
                await _wait_finished(running)
        for live in running:
            live.request_cancel("interrupt")
        await _wait_finished(running)


async def _wait_finished(running: Sequence[LiveRun]) -> None:
    for live in running:
        await live.finished.wait()
