"""LoopBudget: shares the event loop between runs whose events arrive faster than they are encoded.

An asynchronous loop over events that are already there never suspends, so without this a run with 10,000 tokens at
once would block commands and all other chats until its last one.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import BaseMessage
from typing_extensions import override

SLICE_S = 0.001
"""How long all runs together may encode events in one iteration of the event loop, seconds."""


class LoopBudget:
    """The time that runs share in each iteration of the event loop.

    Call `is_spent` after each event. When the time is used up, await `next_turn`: one run gets a turn per iteration,
    in order of arrival.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._started_at: float | None = None
        self._turns = anyio.Lock()

    def is_spent(self) -> bool:
        """Return whether the time of this iteration is used up; the first call of an iteration starts it."""
        now = self._clock()
        if self._started_at is None:
            self._started_at = now
            asyncio.get_running_loop().call_soon(self._start_iteration)
            return False
        return now - self._started_at > SLICE_S

    async def next_turn(self) -> None:
        """Wait for a turn in a later iteration."""
        async with self._turns:
            await checkpoint()

    def _start_iteration(self) -> None:
        self._started_at = None


class ModelPacer(AsyncCallbackHandler):
    """Callback of a run's models: lets others work between the tokens of an answer that arrives at once.

    LangChain reads an answer without ever suspending while more of it is there: 20,000 tokens took two seconds.

    Args:
        budget: Shared by all runs.
    """

    run_inline = True  # else each token would go through a task of its own
    ignore_agent = ignore_chain = ignore_custom_event = ignore_retriever = ignore_retry = True

    def __init__(self, budget: LoopBudget) -> None:
        self._budget = budget

    @override
    async def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **kwargs: Any
    ) -> None:
        """Do nothing. Without this method, LangChain formats the whole prompt as text for the callback."""

    @override
    async def on_llm_new_token(
        self, token: str | list[str | dict[str, Any]], **kwargs: Any
    ) -> None:
        if self._budget.is_spent():
            await self._budget.next_turn()
