"""The usage that the real service counts across kill -9, and what an operator sees of it."""

from pathlib import Path
from typing import Any

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.journeys.service import Service, with_model

TOKENS = 20_000


async def _totals(service: Service, query: str = "") -> list[dict[str, Any]]:
    async with service.client() as client:
        answer = await client.get(f"/api/usage?{query}")
        answer.raise_for_status()
        totals: list[dict[str, Any]] = answer.json()["totals"]
        return totals


async def _run(service: Service, text: str) -> str:
    async with service.client() as client:
        body = {
            "assistant_id": "lead_agent",
            "input": {"messages": [{"role": "user", "content": text}]},
            "context": {"user_id": "slack:T:ann", "room": "slack:T:C1"},
        }
        answer = await client.post("/api/runs/wait", json=body, timeout=60)
        answer.raise_for_status()
        assert "messages" in answer.json(), answer.text
        return str(answer.json()["messages"][-1]["content"])


async def test_a_call_that_a_kill_ended_counts_once_and_frees_its_limit(tmp_path: Path) -> None:
    async with FakeModelServer() as model:
        config = {
            **with_model(model.base_url),
            "memory": {"enabled": False},
            "usage": {"limits": {"person": {"tokens_per_day": TOKENS}}},
        }
        service = Service(tmp_path, config)
        await service.start()
        assert await _run(service, "one") == "You said: one"
        exact = sum(request.tokens for request in model.requests)
        (before,) = await _totals(service)
        assert (before["input_tokens"], before["calls"]) == (exact, 1)

        model.reply(ModelReply(text="never", hang_after=0))
        async with service.client() as client:
            body = {
                "assistant_id": "lead_agent",
                "input": {"messages": [{"role": "user", "content": "two"}]},
                "context": {"user_id": "slack:T:ann", "room": "slack:T:C1"},
                "on_disconnect": "cancel",
            }
            await client.post(
                "/api/threads/00000000-0000-4000-8000-000000000001/runs",
                json={**body, "if_not_exists": "create"},
            )
        await eventually(lambda: len(model.requests) == 2)
        await service.kill()
        await service.start()
        await eventually(lambda: sum(request.finished for request in model.requests) == 2)

        async def counted() -> bool:
            (total,) = await _totals(service)
            return bool(total["calls"] == len(model.requests) and total["estimated_calls"] == 1)

        await eventually(counted)
        answers = [await _run(service, f"more {number}") for number in range(12)]
        (total,) = await _totals(service, "person=slack:T:ann")
        assert total["calls"] == len(model.requests)
        assert total["input_tokens"] + total["output_tokens"] <= TOKENS
        assert "allowance" in answers[-1]
        async with service.client() as client:
            table = (await client.get("/api/usage?by=room&by=kind&format=csv")).text
        assert table.startswith("room,kind,calls,")
        assert "slack:T:C1,run," in table
        assert await service.stop() == 0
