"""Helpers of the Slack adapter's tests: a recording intake, a running adapter, short timeouts."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio

from bots.config import SlackConfig
from bots.slack.adapter import SlackAdapter
from bots.slack.connection import SlackTimeouts
from bus.platform import ConnectionState
from bus.retry import Backoff
from gateway.playground.slack.server import FakeSlack
from tests.fakes.intake import RecordingIntake

FAST = SlackTimeouts(
    call_s=2.0,
    hello_s=1.0,
    thread_s=5.0,
    names_s=5.0,
    ping_s=5.0,
    drain_s=0.5,
    overlap_s=2.0,
    backoff=Backoff(first_s=0.02, cap_s=0.1),
    failed_retry_s=0.05,
    stable_s=0.0,
)


QUICK = replace(FAST, call_s=0.3)
"""Timeouts for calls that should time out."""


def config(slack: FakeSlack, given: Mapping[str, object] | None = None) -> SlackConfig:
    known = {
        "enabled": True,
        "base_url": slack.base_url,
        "bot_token": slack.bot_token,
        "app_token": slack.app_token,
    }
    return SlackConfig.model_validate(known | dict(given or {}))


@asynccontextmanager
async def running(
    slack: FakeSlack,
    intake: RecordingIntake | None = None,
    *,
    timeouts: SlackTimeouts = FAST,
    connected: bool = True,
    given: Mapping[str, object] | None = None,
    name: str = "slack",
) -> AsyncIterator[SlackAdapter]:
    adapter = SlackAdapter(config(slack, given), name=name, timeouts=timeouts)
    async with anyio.create_task_group() as tasks:
        await tasks.start(
            lambda task_status: adapter.run(intake or RecordingIntake(), task_status=task_status)
        )
        if connected:
            await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
        yield adapter
        tasks.cancel_scope.cancel()
    assert adapter.health().state in {ConnectionState.STOPPED, ConnectionState.FAILED}


def fast_slack(*, ack_window_s: float = 3.0) -> FakeSlack:
    """Return a fake Slack that resends events soon, but waits for the first acknowledgement as long as Slack does."""
    return FakeSlack(ack_window_s=ack_window_s, retries_s=(0.02, 0.05, 0.1))
