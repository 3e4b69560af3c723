"""Store calls that are repeated until the store works, and how long a run is retried."""

import anyio
import pytest

from bus.errors import AgentThreadBusy, AgentThreadNotFound, AgentUnavailable, RunError
from bus.retry import MAX_CREATIONS, RunPatience, retried
from store.errors import RowConflict, RowNotFound, StoreError, StoreUnavailable, ValueRefused


class FailingStore:
    """Fails a given number of times."""

    outage = "disk full"

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)

    async def find(self, row_id: int, *, part: str = "") -> str:
        if self._errors:
            raise self._errors.pop(0)
        return f"{row_id}{part}"


async def test_a_call_is_repeated_until_the_journal_works() -> None:
    store = retried(FailingStore(StoreUnavailable("full"), StoreUnavailable("full")), "test")
    with anyio.fail_after(20):
        assert await store.find(7, part="a") == "7a"
    assert store.outage == "disk full"


@pytest.mark.parametrize(
    "answer", [RowConflict("gone"), RowNotFound("gone"), ValueRefused()], ids=repr
)
async def test_answers_of_the_journal_are_not_repeated(answer: StoreError) -> None:
    at_once = retried(FailingStore(answer), "test")
    later = retried(FailingStore(StoreUnavailable("full"), answer), "test")
    for store in (at_once, later):
        with anyio.fail_after(20), pytest.raises(type(answer)) as raised:
            await store.find(7)
        assert raised.value is answer


async def test_a_run_is_tried_again_as_long_as_that_may_help() -> None:
    patience = RunPatience(0.0)
    assert patience.wait_s(RunError("refused"), is_outage=False) is None
    assert patience.wait_s(AgentUnavailable("away"), is_outage=False) is None
    # The server uses our database, which fails, so the time limit starts only when the database works again.
    longer = RunPatience(60.0)
    assert longer.wait_s(AgentUnavailable("away"), is_outage=True)
    assert RunPatience(0.0).wait_s(AgentThreadBusy(), is_outage=False)


async def test_a_thread_that_the_server_lost_is_made_again_at_once_but_not_for_ever() -> None:
    patience = RunPatience()
    waits = [
        patience.wait_s(AgentThreadNotFound(), is_outage=False) for _ in range(MAX_CREATIONS + 1)
    ]
    assert waits == [0.0] * MAX_CREATIONS + [None]
    assert patience.lost_thread
