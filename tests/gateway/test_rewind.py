"""Removing messages from the agent's threads, as the bus does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk.client import LangGraphClient

from bus.runs.remote import RemoteRuns
from tests.gateway.composed import ComposedService, composed

THREAD = "8f14e45f-ceea-4674-a3f1-0a1b2c3d4e5f"


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[ComposedService, LangGraphClient]]:
    async with composed(folder, "channels: {terminal: {enabled: false}}") as service:
        service.client.base_url = httpx.URL("http://127.0.0.1:8001/api")
        sdk = LangGraphClient(service.client)
        await sdk.threads.create(thread_id=THREAD)
        yield service, sdk


async def say(sdk: LangGraphClient, *words: str) -> None:
    for word in words:
        said: dict[str, Any] = {"messages": [{"role": "human", "content": word, "id": word}]}
        await sdk.runs.wait(THREAD, "lead_agent", input=said)


async def held(sdk: LangGraphClient) -> list[str]:
    """Return the ids of people's messages. The thread must be idle."""
    state = await sdk.threads.get_state(THREAD)
    assert not state["next"]
    assert (await sdk.threads.get(THREAD))["status"] == "idle"
    messages = state["values"]["messages"] if state["values"] else []  # type: ignore[call-overload]
    if messages:
        assert messages[-1]["type"] == "ai"
    return [message["id"] for message in messages if message["type"] == "human"]


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_message_and_what_followed_are_gone_for_good(
    tmp_path: Path, *, forgotten: bool
) -> None:
    async with opened(tmp_path) as (service, sdk):
        rewind = RemoteRuns(sdk)
        await say(sdk, "one", "two", "three")
        if forgotten:
            # A turn with many steps leaves no state from before the turn.
            pruned = {"thread_ids": [THREAD], "strategy": "keep_latest"}
            assert (await service.client.post("/threads/prune", json=pruned)).is_success
        await rewind.rewind(THREAD, "two")
        assert await held(sdk) == ["one"]
        await rewind.rewind(THREAD, "two")
        await say(sdk, "four")
        assert await held(sdk) == ["one", "four"]
        await rewind.rewind(THREAD, "one")
        assert await held(sdk) == []
        await say(sdk, "five")
        assert await held(sdk) == ["five"]
