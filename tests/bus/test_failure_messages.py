"""The message that people get if a run cannot be started or followed."""

import pytest

from bus.conversation.failures import run_error_message
from bus.errors import AgentThreadBusy, AgentUnavailable, RewindUnsupported, RunError
from bus.locales.en import ENGLISH


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AgentThreadBusy("busy"), ENGLISH.thread_busy),
        (RewindUnsupported("no"), f"⚠️ {ENGLISH.rewind_refused}"),
        (AgentUnavailable("away"), ENGLISH.agent_unreachable),
        (RunError("odd"), ENGLISH.failed),
    ],
)
def test_each_error_has_its_message(error: RunError, told: str) -> None:
    assert run_error_message(error, ENGLISH) == told
