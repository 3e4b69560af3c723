"""Approvals for clients of the LangGraph API: interrupts in LangChain's form, answered in every way."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel, registered
from tests.gateway.composed import composed

APPROVE, REJECT = {"type": "approve"}, {"type": "reject", "message": "not now"}


class ApprovalsClient:
    """One thread over HTTP."""

    def __init__(self, http: httpx.AsyncClient, thread: str) -> None:
        self._http = http
        self._thread = f"/api/threads/{thread}"

    async def run(self, **body: object) -> dict[str, Any]:
        asked = {"assistant_id": "lead_agent", **body}
        answer = await self._http.post(f"{self._thread}/runs/wait", json=asked)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def say(self, text: str) -> dict[str, Any]:
        return await self.run(input={"messages": [{"role": "user", "content": text}]})

    async def resume(self, answer: object) -> dict[str, Any]:
        return await self.run(command={"resume": answer})

    async def waits(self) -> list[dict[str, Any]]:
        state = (await self._http.get(f"{self._thread}/state")).json()
        assert state["interrupts"] == [one for task in state["tasks"] for one in task["interrupts"]]
        return list(state["interrupts"])

    async def status(self) -> str:
        return str((await self._http.get(self._thread)).json()["status"])


@asynccontextmanager
async def asking(home: Path, *names: str) -> AsyncIterator[ApprovalsClient]:
    """Let the agent ask to write files with these names, all at once."""
    calls = tuple(
        ToolCall(
            name="write_file",
            args={"path": f"/mnt/user-data/outputs/{name}", "content": "hi"},
            id=name,
        )
        for name in names
    )
    model = ScriptedChatModel.playing(ModelReply(text="Let me.", calls=calls), "I see.")
    with registered(model) as keys:
        config = {
            "models": [keys],
            "memory": {"enabled": False},
            "guardrails": {"enabled": True, "ask": ["write_file"]},
        }
        async with composed(home, yaml.safe_dump(config)) as service:
            thread = (await service.client.post("/api/threads", json={})).json()["thread_id"]
            client = ApprovalsClient(service.client, thread)
            await client.say("write")
            yield client


def results(values: dict[str, Any]) -> dict[str, str]:
    return {m["tool_call_id"]: m["content"] for m in values["messages"] if m["type"] == "tool"}


async def test_a_client_that_shows_one_question_decides(tmp_path: Path) -> None:
    async with asking(tmp_path, "a") as client:
        [one] = await client.waits()
        assert one["value"]["action_requests"][0]["name"] == "write_file"
        assert await client.status() == "interrupted"
        done = await client.resume({"decisions": [APPROVE]})
        assert done["messages"][-1]["content"] == "I see."
        assert await client.status() == "idle"


async def test_several_are_decided_at_once_by_their_ids(tmp_path: Path) -> None:
    async with asking(tmp_path, "a", "b") as client:
        first, second = await client.waits()
        asked = [one["value"]["action_requests"][0]["args"]["path"] for one in (first, second)]
        answers = {
            first["id"]: {"decisions": [APPROVE]},
            second["id"]: {"decisions": [REJECT]},
        }
        told = results(await client.resume(answers))
        names = [path.rpartition("/")[2] for path in asked]
        assert "did not approve" not in told[names[0]]
        assert "not now" in told[names[1]]


@pytest.mark.parametrize("answer", [{"decisions": [APPROVE]}, [APPROVE]])
async def test_several_are_decided_one_after_the_other_without_ids(
    tmp_path: Path, answer: object
) -> None:
    """agent-chat-ui does this: it shows the last interrupt, and answers without an ID."""
    async with asking(tmp_path, "a", "b", "c") as client:
        for left in (2, 1):
            shown = (await client.waits())[-1]
            await client.resume(answer)
            waits = await client.waits()
            assert len(waits) == left
            assert shown["id"] not in {one["id"] for one in waits}
        done = await client.resume(answer)
        assert len(results(done)) == 3
        assert done["messages"][-1]["content"] == "I see."
