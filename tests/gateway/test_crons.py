"""LangGraph's crons with the stock Python SDK: creating, finding, changing and deleting them, and their runs."""

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import NotFoundError

from bus.service import SCHEDULES
from store.schedules import Occurrence, ScheduleStore
from tests.eventually import eventually
from tests.gateway.composed import TOKEN, ComposedService, composed

HELLO: Any = {"messages": [{"role": "user", "content": "hello"}]}
RARELY = "0 0 1 1 *"
LATEST = "9999-12-31T23:59:59-12:00"


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[ComposedService, LangGraphClient]]:
    async with composed(folder) as service:
        base = "http://127.0.0.1:8001/api/"
        transport = service.client._transport
        async with httpx.AsyncClient(
            transport=transport, base_url=base, headers={"X-Api-Key": TOKEN}
        ) as http:
            yield service, LangGraphClient(http)


async def fire(service: ComposedService, cron_id: str) -> None:
    """Make a cron due now."""
    database = service.services.database
    store = ScheduleStore(database)
    await store.change(cron_id, lambda one: replace(one, next_at=time.time()))
    database.signals.publish(SCHEDULES)


async def expect(service: ComposedService, cron_id: str, *outcomes: str) -> list[Occurrence]:
    bus, store = service.services.bus, ScheduleStore(service.services.database)
    assert bus is not None

    async def found() -> list[Occurrence]:
        await bus.scheduler.settle(cron_id)
        return await store.list_occurrences(cron_id, limit=10)

    listed: list[Occurrence] = await eventually(
        found, lambda all_of: [one.outcome for one in all_of] == [*outcomes]
    )
    return listed


async def test_a_cron_is_created_found_changed_and_deleted(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, sdk):
        end = datetime(2100, 1, 1, tzinfo=UTC)
        made: Any = await sdk.crons.create(
            "lead_agent",
            schedule="27 15 * * *",
            input=HELLO,
            metadata={"team": "a"},
            context={"thinking_enabled": False},
            end_time=end,
            timezone="America/New_York",
        )
        assert (made["schedule"], made["timezone"], made["thread_id"]) == (
            "27 15 * * *",
            "America/New_York",
            None,
        )
        assert (made["enabled"], made["on_run_completed"]) == (True, "delete")
        assert made["payload"]["input"] == HELLO
        assert made["payload"]["config"]["configurable"]["cron_id"] == made["cron_id"]
        assert datetime.fromisoformat(made["end_time"]) == end
        assert datetime.fromisoformat(made["next_run_date"]).minute == 27
        thread = await sdk.threads.create()
        other: Any = await sdk.crons.create_for_thread(
            thread["thread_id"], "lead_agent", schedule="@daily", enabled=False
        )
        assert (other["thread_id"], other["on_run_completed"]) == (thread["thread_id"], None)
        found = await sdk.crons.search()
        assert [one["cron_id"] for one in found] == [other["cron_id"], made["cron_id"]]
        by_time = await sdk.crons.search(sort_by="created_at", sort_order="asc", select=["cron_id"])
        assert by_time == [{"cron_id": made["cron_id"]}, {"cron_id": other["cron_id"]}]
        assert await sdk.crons.count() == 2
        assert await sdk.crons.count(thread_id=thread["thread_id"]) == 1
        assert len(await sdk.crons.search(enabled=False)) == 1
        assert len(await sdk.crons.search(metadata={"team": "a"})) == 1
        assert await sdk.crons.count(metadata={"team": "b"}) == 0
        assert len(await sdk.crons.search(assistant_id="lead_agent", limit=1, offset=1)) == 1
        await _is_changed_and_deleted(sdk, made)
        assert await sdk.crons.count() == 1


async def _is_changed_and_deleted(sdk: LangGraphClient, made: Any) -> None:  # noqa: ANN401 - a Cron
    changed = await sdk.crons.update(
        made["cron_id"],
        schedule="0 10 * * *",
        timezone="UTC",
        end_time=None,
        enabled=False,
        metadata={"team": "b"},
        on_run_completed="keep",
    )
    assert "T10:00:00" in str(changed["next_run_date"])
    assert (changed["end_time"], changed["enabled"]) == (None, False)
    assert (changed["metadata"], changed["on_run_completed"]) == ({"team": "b"}, "keep")
    assert changed["payload"]["input"] == HELLO
    await sdk.crons.delete(made["cron_id"])
    with pytest.raises(NotFoundError):
        await sdk.crons.delete(made["cron_id"])


async def test_its_runs_start_and_keep_or_delete_their_threads(tmp_path: Path) -> None:
    async with served(tmp_path) as (service, sdk):
        thread = await sdk.threads.create()
        on_thread: Any = await sdk.crons.create_for_thread(
            thread["thread_id"], "lead_agent", schedule=RARELY, input=HELLO, metadata={"team": "a"}
        )
        kept: Any = await sdk.crons.create(
            "lead_agent", schedule=RARELY, input=HELLO, on_run_completed="keep"
        )
        deleted: Any = await sdk.crons.create("lead_agent", schedule=RARELY, input=HELLO)
        for cron in (on_thread, kept, deleted):
            await fire(service, cron["cron_id"])
        for cron in (on_thread, kept, deleted):
            await expect(service, cron["cron_id"], "answered")
        run: Any = (await sdk.runs.list(thread["thread_id"]))[0]
        assert run["status"] == "success"
        assert run["metadata"]["cron_id"] == on_thread["cron_id"]
        assert run["metadata"]["team"] == "a"
        threads = await sdk.threads.search(metadata={"cron_id": kept["cron_id"]})
        assert len(threads) == 1
        assert await sdk.threads.search(metadata={"cron_id": deleted["cron_id"]}) == []
        [again] = await sdk.crons.search(thread_id=thread["thread_id"])
        assert "-01-01T00:00:00" in str(again["next_run_date"])


async def test_a_kill_between_the_two_steps_starts_no_second_run(tmp_path: Path) -> None:
    async with served(tmp_path) as (service, sdk):
        thread = await sdk.threads.create()
        cron: Any = await sdk.crons.create_for_thread(
            thread["thread_id"], "lead_agent", schedule=RARELY, input=HELLO
        )
        store, due = ScheduleStore(service.services.database), time.time()
        found = await store.find(cron["cron_id"])
        bus = service.services.bus
        assert found is not None
        assert bus is not None
        runs = bus.scheduler._runs
        assert runs is not None
        first = await runs.start(found, due)
        await expect_success(sdk, *first)
        assert await runs.start(found, due) == first
        assert len(await sdk.runs.list(thread["thread_id"])) == 1


async def expect_success(sdk: LangGraphClient, thread_id: str, run_id: str) -> None:
    await eventually(
        lambda: sdk.runs.get(thread_id, run_id), lambda run: run["status"] == "success"
    )


async def test_a_cron_of_a_deleted_thread_fails(tmp_path: Path) -> None:
    async with served(tmp_path) as (service, sdk):
        thread = await sdk.threads.create()
        cron: Any = await sdk.crons.create_for_thread(
            thread["thread_id"], "lead_agent", schedule=RARELY, input=HELLO
        )
        await sdk.threads.delete(thread["thread_id"])
        await fire(service, cron["cron_id"])
        [one] = await expect(service, cron["cron_id"], "failed")
        assert "not found" in one.detail


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"schedule": "nonsense"}, 422, "Invalid cron schedule: 'nonsense'"),
        ({"schedule": "* * * * *", "timezone": "Mars/Phobos"}, 422, "no time zone"),
        ({"schedule": "* * * * *", "assistant_id": str(uuid.uuid4())}, 404, "not found"),
        ({"schedule": "* * * * *", "end_time": "tomorrow"}, 422, "end_time"),
        ({"schedule": "* * * * *", "end_time": LATEST}, 422, "1970 to 9998"),
        ({"schedule": "* * * * *", "end_time": "0001-01-01T00:00:00+12:00"}, 422, "1970 to 9998"),
        ({}, 422, "schedule"),
    ],
)
async def test_invalid_crons_are_refused(
    tmp_path: Path, body: dict[str, Any], status: int, words: str
) -> None:
    async with served(tmp_path) as (service, _):
        refused = await service.client.post(
            "/api/runs/crons", json={"assistant_id": "lead_agent", **body}
        )
        assert refused.status_code == status, refused.text
        assert words in refused.json()["detail"]
        missing = f"/api/threads/{uuid.uuid4()}/runs/crons"
        body = {"assistant_id": "lead_agent", "schedule": "* * * * *"}
        assert (await service.client.post(missing, json=body)).status_code == 404


async def test_a_cron_keeps_its_end_if_another_one_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as (service, sdk):
        made: Any = await sdk.crons.create("lead_agent", schedule=RARELY)
        path = f"/api/runs/crons/{made['cron_id']}"
        refused = await service.client.patch(path, json={"end_time": LATEST})
        assert refused.status_code == 422, refused.text
        assert "1970 to 9998" in refused.json()["detail"]
        [found] = await sdk.crons.search()
        assert found["end_time"] is None


async def test_an_end_in_the_past_leaves_nothing_to_do(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, sdk):
        past = datetime.now(UTC) - timedelta(days=1)
        made: Any = await sdk.crons.create("lead_agent", schedule="* * * * *", end_time=past)
        assert made["next_run_date"] is None
