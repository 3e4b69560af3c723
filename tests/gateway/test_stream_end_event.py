"""The last event of a run's stream: `end`, except for clients that would treat it as a result."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_client

from tests.gateway.langgraph_server import ApiServer, serving
from tests.gateway.test_langgraph_runs import new_thread

PYTHON = "langgraph-sdk-py/0.4.14"
REQUEST = {"assistant_id": "instant", "input": {"n": 1}, "stream_mode": "values"}


async def _names(responses: AsyncIterator[httpx.Response]) -> list[list[str]]:
    return [
        [line.partition(": ")[2] for line in one.text.splitlines() if line.startswith("event: ")]
        async for one in responses
    ]


async def _streams(api: ApiServer, headers: dict[str, str]) -> AsyncIterator[httpx.Response]:
    """Yield every kind of stream that a run ends."""
    thread = await new_thread(api)
    streamed = await api.http.post(f"/threads/{thread}/runs/stream", json=REQUEST, headers=headers)
    yield streamed
    yield await api.http.post("/runs/stream", json=REQUEST, headers=headers)
    where = streamed.headers["location"]
    yield await api.http.get(where, headers=headers)
    yield await api.http.get(f"{where}?stream_mode=values", headers=headers)
    api.runs._finished_runs.remove_thread(thread)  # as if some time had passed
    yield await api.http.get(where, headers=headers)


@pytest.mark.parametrize(
    ("agent", "is_told"), [("curl/8.5.0", True), (PYTHON, False), ("node", False), ("nodes", True)]
)
async def test_sdks_of_langgraph_get_no_end(tmp_path: Path, agent: str, *, is_told: bool) -> None:
    async with serving(tmp_path) as api:
        found = await _names(_streams(api, {"User-Agent": agent}))
    assert [names[-1] for names in found] == ["end" if is_told else "values"] * 5


async def test_without_the_setting_streams_have_no_end_event(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        services = api.app.state.services
        gateway = services.config.gateway.model_copy(update={"stream_end_event": False})
        config = replace(services.config, gateway=gateway)
        api.app.state.services = replace(services, config=config)
        assert {names[-1] for names in await _names(_streams(api, {}))} == {"values"}


async def test_the_last_event_for_the_sdk_is_the_result(tmp_path: Path) -> None:
    async with serving(tmp_path, way="tcp") as api, get_client(url=api.url, api_key=None) as client:
        thread = (await client.threads.create())["thread_id"]
        given: Any = {"n": 1}
        parts = [part async for part in client.runs.stream(thread, "instant", input=given)]
        assert (parts[-1].event, parts[-1].data["n"]) == ("values", 2)
