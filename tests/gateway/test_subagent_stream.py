"""Delegation for a client of the gateway: events, the status, and no text of the subagent itself."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel, registered
from tests.gateway.composed import composed

ARGS = {"description": "look", "prompt": "look around", "subagent_type": "general-purpose"}


def frames(text: str) -> list[tuple[str, Any]]:
    """Return (event, data) of a stream of server-sent events."""
    found = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line[:8])
        if "data" in lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


async def test_a_client_sees_how_a_delegation_goes(tmp_path: Path) -> None:
    lead = ScriptedChatModel.playing(
        ModelReply(calls=(ToolCall(name="task", args=ARGS, id="t"),)), "Done."
    )
    child = ScriptedChatModel.playing("murmur murmur")
    with registered(lead) as first, registered(child) as second:
        config = {
            "models": [first, {**second, "name": "helper"}],
            "subagents": {"agents": {"general-purpose": {"model": "helper"}}},
        }
        async with composed(tmp_path, yaml.safe_dump(config)) as service:
            thread = (await service.client.post("/api/threads", json={})).json()["thread_id"]
            body = {
                "assistant_id": "lead_agent",
                "input": {"messages": [{"role": "user", "content": "go"}]},
                "context": {"subagent_enabled": True},
                "stream_mode": ["messages-tuple", "custom", "updates"],
                "stream_subgraphs": True,
            }
            answer = await service.client.post(f"/api/threads/{thread}/runs/stream", json=body)
            state = (await service.client.get(f"/api/threads/{thread}/state")).json()
    parts = frames(answer.text)
    told = [data for event, data in parts if event == "custom"]
    assert [event["type"] for event in told] == ["task_started", "task_running", "task_completed"]
    assert told[1]["message"]["content"] == "murmur murmur"
    assert told[2]["usage"]["total_tokens"] > 0
    chunks = [data[0] for event, data in parts if event == "messages"]
    assert "".join(c["content"] for c in chunks if c["type"] != "tool") == "Done."
    (result,) = (m for m in state["values"]["messages"] if m["type"] == "tool")
    assert result["additional_kwargs"] == {
        "subagent_status": "completed",
        "subagent_token_usage": told[2]["usage"],
    }
