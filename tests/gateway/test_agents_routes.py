"""Custom agents over REST."""

import json
from pathlib import Path

import httpx

from agent.custom_agents import MAX_SOUL_CHARS
from tests.agent.test_skills import prompt_of
from tests.fakes.model import FakeModelServer
from tests.fakes.scripted import ScriptedChatModel, registered
from tests.gateway.composed import composed
from tests.gateway.test_routes import terminal, until_rest
from tests.journeys.service import with_model

CONFIG = """
models: [{name: m, use: "agent.models.demo:DemoChatModel", model: demo}]
tool_groups: [{name: web}]
"""
POET = {"name": "Poet", "description": "Rhymes", "soul": "Rhyme.", "model": "m", "skills": []}


async def test_an_agent_from_its_making_to_its_end(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        client = service.client
        free = await client.get("/api/agents/check", params={"name": "Poet"})
        assert free.json() == {"available": True, "name": "poet"}
        made = await client.post("/api/agents", json={**POET, "tool_groups": ["web"]})
        assert made.status_code == 201
        assert made.json() == {
            "name": "poet",
            "description": "Rhymes",
            "model": "m",
            "tool_groups": ["web"],
            "skills": [],
            "soul": "Rhyme.",
        }
        taken = await client.get("/api/agents/check", params={"name": "POET"})
        assert taken.json() == {"available": False, "name": "poet"}
        assert (await client.post("/api/agents", json=POET)).status_code == 409
        changed = await client.put("/api/agents/POET", json={"skills": None, "soul": "Do not."})
        assert changed.json() == {**made.json(), "skills": None, "soul": "Do not."}
        assert (await client.get("/api/agents/poet")).json() == changed.json()
        assert (await client.get("/api/agents")).json() == {"agents": [changed.json()]}
        gone = await client.delete("/api/agents/poet")
        assert (gone.status_code, gone.content) == (204, b"")
        for request in (client.get, client.delete):
            missing = await request("/api/agents/poet")
            assert missing.status_code == 404
            assert missing.json() == {"detail": "There is no agent named 'poet'."}
        assert (await client.put("/api/agents/poet", json={})).status_code == 404


WRONG: list[dict[str, object]] = [
    {"name": "a b"},
    {"name": ".."},
    {"name": "check"},
    {"name": "x" * 65},
    {"model": "none"},
    {"tool_groups": ["none"]},
    {"soul": "x" * (MAX_SOUL_CHARS + 1)},
    {"description": 3},
    {"name": None},
]


async def test_agents_that_cannot_be_stored_are_refused(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        for wrong in WRONG:
            answer = await service.client.post("/api/agents", json={**POET, **wrong})
            assert answer.status_code == 422, wrong
            assert str(tmp_path) not in answer.text
        assert (await service.client.get("/api/agents")).json() == {"agents": []}


async def test_text_that_no_file_holds_is_refused(tmp_path: Path) -> None:
    headers = {"Content-Type": "application/json"}
    async with composed(tmp_path, CONFIG) as service:
        for odd in (
            '"\\ud800"',
            '"\\udc00\\ud800"',
            '"\xed\xa0\x80"',
            "1" * 400,
            "[" * 500 + "]" * 500,
        ):
            body = f'{{"name":"poet","skills":[{odd}]}}'.encode("latin-1")
            answer = await service.client.post("/api/agents", content=body, headers=headers)
            assert answer.status_code == 422, odd
        assert (await service.client.get("/api/agents/poet")).status_code == 404
        assert (await service.client.get("/api/agents")).json() == {"agents": []}
        for body in (b"{", b"\xff", b"[" * 100_000):
            answer = await service.client.post("/api/agents", content=body, headers=headers)
            assert answer.status_code in (400, 422)


async def test_the_user_profile_can_be_read_and_written(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        address = "/api/user-profile"
        assert (await service.client.get(address)).json() == {"content": ""}
        body = {"content": "We speak Danish."}
        assert (await service.client.put(address, json=body)).json() == body
        assert (await service.client.get(address)).json() == body
        long = {"content": "x" * (MAX_SOUL_CHARS + 1)}
        assert (await service.client.put(address, json=long)).status_code == 422


async def test_the_api_can_be_switched_off_and_wants_the_token(tmp_path: Path) -> None:
    async with composed(tmp_path, "agents_api: {enabled: false}") as service:
        for address in ("/api/agents", "/api/agents/poet", "/api/user-profile"):
            assert (await service.client.get(address)).status_code == 403
            assert (await service.stranger.get(address)).status_code == 401
        assert (await service.client.post("/api/agents", json=POET)).status_code == 403


async def test_custom_agents_are_listed_as_assistants(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(*"123")
    with registered(model) as keys:
        async with composed(tmp_path, json.dumps({"models": [keys]})) as service:
            client = service.client
            await client.post("/api/agents", json={"name": "Odd-Poet", "soul": "Rhyme."})
            found = (await client.post("/api/assistants/search", json={})).json()
            assert [one["name"] for one in found] == ["lead_agent", "odd-poet"]
            ident = found[1]["assistant_id"]
            for name in (ident, "odd-poet"):
                assert (await client.get(f"/api/assistants/{name}")).json() == found[1]
            message = {"messages": [{"role": "user", "content": "hello"}]}
            for name in (ident, "odd_poet", "lead_agent"):
                body = {"assistant_id": name, "input": message}
                answer = await client.post("/api/runs/wait", json=body)
                assert answer.status_code == 200, answer.text
                assert ("Rhyme." in prompt_of(model)) == (name != "lead_agent")
            unknown = {"assistant_id": "nobody", "input": message}
            refused = await client.post("/api/runs/wait", json=unknown)
            assert refused.status_code in {404, 422}


async def test_a_missing_agent_is_reported_in_the_chat_until_it_exists(tmp_path: Path) -> None:
    text = "channels: {session: {context: {agent_name: poet}}}"
    async with composed(tmp_path, text) as service:
        with terminal(service).attach("s1") as session:
            address = "/api/channels/terminal/s1/messages"
            await service.client.post(address, json={"text": "hello", "id": "1"})
            (missing,) = await until_rest(service, "s1", session.events())
            assert "There is no agent named “poet”." in missing.text
            assert "/agent" in missing.text
            await service.client.post("/api/agents", json={"name": "poet"})
            await service.client.post(address, json={"text": "hello", "id": "2"})
            (answer,) = await until_rest(service, "s1", session.events())
            assert "poet" not in answer.text
            assert "⚠️" not in answer.text


async def test_a_draft_answers_without_being_stored(tmp_path: Path) -> None:
    async with FakeModelServer() as model:
        config = {**with_model(model.base_url), "title": {"enabled": False}}
        async with composed(tmp_path, json.dumps(config)) as service:
            thread = (await service.client.post("/api/threads", json={})).json()["thread_id"]

            async def try_draft(**draft: object) -> httpx.Response:
                body = {
                    "assistant_id": "lead_agent",
                    "input": {"messages": [{"role": "user", "content": "hi"}]},
                    "config": {"configurable": {"agent_draft": draft}},
                }
                return await service.client.post(f"/api/threads/{thread}/runs/wait", json=body)

            answered = await try_draft(name="poet", soul="Rhyme always.", skills=[])
            assert answered.json()["messages"][-1]["content"] == "You said: hi"
            assert "Rhyme always." in str(model.requests[-1].messages[0]["content"])
            await try_draft(soul="Never rhyme.")
            assert "Never rhyme." in str(model.requests[-1].messages[0]["content"])
            refused = await try_draft(model="none")
            assert "There is no model named 'none'." in refused.text
            assert (await service.client.get("/api/agents")).json() == {"agents": []}


async def test_the_prompt_of_an_agent_has_the_sizes_of_its_parts(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        await service.client.post("/api/agents", json={**POET, "soul": "Rhyme always."})
        poet = (await service.client.get("/api/agents/poet/prompt")).json()
        lead = (await service.client.get("/api/agents/lead-agent/prompt")).json()
        assert "Rhyme always." in poet["system"]
        assert "Rhyme always." not in lead["system"]
        soul = next(part for part in poet["parts"] if part["name"] == "soul")
        assert 0 < soul["tokens"] < poet["tokens"]
        assert {"ls", "bash"} & {p["name"] for p in lead["parts"] if p["part"] == "tools"}
        assert (await service.client.get("/api/agents/nobody/prompt")).status_code == 404
