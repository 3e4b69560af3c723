"""Decisions of guardrails over REST: denied, rejected and approved calls, without their arguments."""

import json
from pathlib import Path
from typing import Any

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.gateway.composed import ComposedService, composed
from tests.gateway.test_messages_routes import received
from tests.gateway.test_people_routes import message

PERSON = "slack:T1:U1"
ROOM = "slack:T1:C1"


def config(model: FakeModelServer) -> str:
    entry = {
        "name": "m",
        "use": "langchain_openai:ChatOpenAI",
        "model": "m",
        "api_key": "sk",
        "base_url": model.base_url,
    }
    guardrails = {
        "enabled": True,
        "ask": ["write_file"],
        "provider": {"use": "allowlist", "config": {"denied_tools": ["ls"]}},
    }
    return json.dumps({"models": [entry], "title": {"enabled": False}, "guardrails": guardrails})


async def run(
    service: ComposedService, thread: str, person: str = PERSON, room: str = ROOM, **body: object
) -> Any:  # noqa: ANN401 - JSON
    asked = {
        "assistant_id": "lead_agent",
        "config": {"configurable": {"user_id": person, "room": room}},
        **body,
    }
    answer = await service.client.post(f"/api/threads/{thread}/runs/wait", json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def decisions(service: ComposedService, **query: object) -> Any:  # noqa: ANN401 - JSON
    answer = await service.client.get("/api/guardrails/decisions", params=query)  # type: ignore[arg-type]
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_each_decision_is_listed_until_its_person_is_forgotten(tmp_path: Path) -> None:
    async with FakeModelServer() as model, composed(tmp_path, config(model)) as service:
        thread = (await service.client.post("/api/threads", json={})).json()["thread_id"]
        said = {"messages": [{"role": "user", "content": "go"}]}
        model.reply(ModelReply(calls=(ToolCall("ls", {"path": "/secret"}),)), "Not allowed.")
        await run(service, thread, input=said)
        file = ToolCall("write_file", {"path": "/mnt/user-data/workspace/a", "content": "secret"})
        for answer in ({"type": "reject", "message": "not now"}, {"type": "approve"}):
            model.reply(ModelReply(calls=(file,)), "Done.")
            await run(service, thread, input=said)
            await run(service, thread, command={"resume": {"decisions": [answer]}})
        page = await decisions(service)
        found = [(row["outcome"], row["tool"], row["code"], row["reason"]) for row in page["rows"]]
        assert found == [
            ("approved", "write_file", "", ""),
            ("rejected", "write_file", "oap.rejected", "not now"),
            ("denied", "ls", "oap.tool_not_allowed", found[2][3]),
        ]
        assert found[2][3]
        assert "secret" not in json.dumps(page)
        assert {(row["person"], row["room"], row["thread_id"]) for row in page["rows"]} == {
            (PERSON, ROOM, thread)
        }
        assert {(row["person_name"], row["room_name"]) for row in page["rows"]} == {(None, None)}
        first = await decisions(service, limit=2)
        rest = await decisions(service, limit=2, before=first["next"])
        assert [row["tool"] for row in rest["rows"]] == ["ls"]
        assert rest["next"] is None
        assert len((await decisions(service, outcome="rejected"))["rows"]) == 1
        await service.client.delete("/api/memory", params={"scope": f"room:{ROOM}"})
        assert (await decisions(service))["rows"] == []


async def test_people_and_rooms_have_their_known_names(tmp_path: Path) -> None:
    async with FakeModelServer() as model, composed(tmp_path, config(model)) as service:
        group = {"chat": "g1", "is_private": False, "chat_title": "Ops"}
        await received(service, message(1, "/status", **group))
        thread = (await service.client.post("/api/threads", json={})).json()["thread_id"]
        said = {"messages": [{"role": "user", "content": "go"}]}
        for room in ("terminal:local:g1", ""):
            model.reply(ModelReply(calls=(ToolCall("ls", {"path": "/x"}),)), "Not allowed.")
            await run(service, thread, "terminal:local:u1", room, input=said)

        async def names() -> list[tuple[str, str]]:
            page = await decisions(service)
            return [(row["person_name"], row["room_name"]) for row in page["rows"]]

        await eventually(names, lambda found: found == [("Ann", None), ("Ann", "Ops")])
