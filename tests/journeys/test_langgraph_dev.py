"""The agent and the bots on LangGraph's own server: the journeys of the embedded runtime, over `langgraph dev`."""

from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from langgraph_sdk import get_client

from bus.locales.en import ENGLISH
from tests.fakes.model import Call, FakeModelServer, ModelRequest, Reply
from tests.journeys.peer import PROGRAM, langgraph_dev
from tests.journeys.people import Person, Town
from tests.journeys.service import Service, serving, with_model
from tests.journeys.test_attachments import CSV, sends
from tests.journeys.test_files import OUTPUTS, received

PLATFORMS = ("slack", "telegram", "feishu")
TOKEN = "test-token-0123"
LATER_S = 40.0
"""That server looks for new runs twice a second, and works on eight at once."""

pytestmark = pytest.mark.skipif(
    not PROGRAM.exists(), reason="needs `make peers-python` (langgraph-cli[inmem])"
)


ASKED = {
    "hang": Reply(text="one two three four", hang_after=3),
    "slowly": Reply(text=" ".join(f"word{n}" for n in range(40)), token_delay_s=0.1),
    "colour": Reply(
        calls=(
            Call(
                "ask_clarification",
                {"question": "Red or blue?", "clarification_type": "missing_info"},
            ),
        )
    ),
    "report": Reply(
        calls=(
            Call(
                "write_file",
                {"description": "write", "path": f"{OUTPUTS}/report.csv", "content": CSV},
                id="w1",
            ),
        )
    ),
    "look around": Reply(
        calls=(
            Call("ls", {"path": OUTPUTS}, id="l1"),
            Call("ls", {"path": "/mnt/user-data/workspace"}, id="l2"),
        )
    ),
    "<uploaded_files>": Reply(
        calls=(Call("read_file", {"path": "/mnt/user-data/uploads/数 data.csv"}),)
    ),
}
"""What the model does when the words of the person hold one of these."""


def answer(request: ModelRequest) -> Reply:
    """Do what the words of the person ask for; repeat them otherwise."""
    said, last = request.last_user_text, request.messages[-1]
    if last["role"] == "tool":
        return _after(last)
    wanted = next((reply for word, reply in ASKED.items() if word in said), None)
    return wanted or Reply(text=f"You said: {said}")


def _after(result: dict[str, Any]) -> Reply:
    if result["tool_call_id"] == "w1":
        return Reply(calls=(Call("present_files", {"filepaths": [f"{OUTPUTS}/report.csv"]}),))
    if "did not approve" in str(result["content"]):
        return Reply(text="I did not look.")
    return Reply(text="The number is 4711." if "4711" in str(result["content"]) else "Here it is.")


async def test_the_bots_work_on_it(tmp_path: Path) -> None:
    there = tmp_path / "there"
    here = tmp_path / "here"
    for folder in (there / "home", here / "home"):
        folder.mkdir(parents=True)
        (folder / "admin_token").write_text(TOKEN)
    token = {"PARLEY_ADMIN_TOKEN": TOKEN}
    async with Town() as town, FakeModelServer(answer=answer) as model:
        environment = {**token, "HOME": str(there), "PARLEY_HOME": str(there / "home")}
        guardrails = {"guardrails": {"enabled": True, "ask": ["ls"]}}
        config = {**with_model(model.base_url), **guardrails}
        async with langgraph_dev(there, config, environment) as url:
            await _serves_the_agent(url)
            channels = {**town.channels, "langgraph_url": url, "gateway_url": url}
            async with serving(
                here, {"channels": channels}, *PLATFORMS, environment=token
            ) as service:
                await _live(town, model)
                await _crash(town.person(9), model, service)
                assert await service.stop() == 0
                assert "Traceback" not in service.log.read_text()
        assert town.violations == []


async def _serves_the_agent(url: str) -> None:
    async with get_client(url=url, api_key=None) as client:
        [found] = await client.assistants.search(graph_id="lead_agent")
        drawn = await client.assistants.get_graph(found["assistant_id"])
    assert {"model", "tools"} <= {str(node["id"]) for node in drawn["nodes"]}
    async with httpx.AsyncClient(base_url=url) as stranger:
        assert (await stranger.get("/api/models")).status_code == 401
        known = {"Authorization": f"Bearer {TOKEN}"}
        models = (await stranger.get("/api/models", headers=known)).json()["models"]
        assert [one["name"] for one in models] == ["fake"]
        rebound = {**known, "Host": "evil.example"}
        assert (await stranger.get("/api/models", headers=rebound)).status_code == 421


async def _live(town: Town, model: FakeModelServer) -> None:
    """Each journey is walked on one platform at least: the bus is the same for all."""
    slack, telegram, feishu = town.person(1)
    async with anyio.create_task_group() as people:
        for seat in town.seats:
            people.start_soon(_is_answered_in_order, seat)
        people.start_soon(_begins_anew, slack, model)
        people.start_soon(_stops, telegram, model)
        people.start_soon(_is_asked, feishu)
        for seat in town.person(2):
            people.start_soon(_gets_a_file, town, seat)
        people.start_soon(_has_a_file_read, town, town.person(3)[1])
        people.start_soon(_approves, town.person(4)[1])
        people.start_soon(_denies, town.person(4)[2])


async def _is_answered_in_order(seat: Person) -> None:
    await seat.say("first")
    await seat.hears("You said: first", within_s=LATER_S)
    for text in ("second", "third"):
        await seat.say(text)
    await seat.hears("You said: first", "You said: second", "You said: third", within_s=LATER_S)
    assert seat.stray() == []


async def _begins_anew(seat: Person, model: FakeModelServer) -> None:
    await seat.say("remember apples")
    await seat.hears("You said: remember apples", within_s=LATER_S)
    await seat.say("and pears")
    await seat.sees("You said: and pears", within_s=LATER_S)
    assert _said_before(model, "and pears") == ["remember apples"]
    await seat.say("/new")
    await seat.sees("New conversation started.", within_s=LATER_S)
    await seat.say("and plums")
    await seat.sees("You said: and plums", within_s=LATER_S)
    assert _said_before(model, "and plums") == []


def _said_before(model: FakeModelServer, text: str) -> list[str]:
    [request] = [one for one in model.requests if one.last_user_text == text]
    return [m["content"] for m in request.messages if m["role"] == "user"][:-1]


async def _stops(seat: Person, model: FakeModelServer) -> None:
    await seat.say("hang please")
    await model.until(
        lambda m: any("hang" in r.last_user_text for r in m.requests), within_s=LATER_S
    )
    await seat.say("/stop")
    await seat.sees("Stopped", within_s=LATER_S)
    await model.until(
        lambda m: any(r.closed_by_client and "hang" in r.last_user_text for r in m.requests),
        within_s=LATER_S,
    )
    await seat.say("and now?")
    await seat.sees("You said: and now?", within_s=LATER_S)


async def _is_asked(seat: Person) -> None:
    await seat.say("a colour, please")
    await seat.sees("Red or blue?", within_s=LATER_S)
    await seat.say("red")
    await seat.sees("You said: red", within_s=LATER_S)


async def _gets_a_file(town: Town, seat: Person) -> None:
    await seat.say("the report, please")
    await seat.sees("Here it is.", within_s=LATER_S)
    with anyio.fail_after(LATER_S):
        while not received(town, seat):  # noqa: ASYNC110 - three platforms, three signals
            await anyio.sleep(0.02)
    assert received(town, seat) == [("report.csv", CSV.encode())]


async def _has_a_file_read(town: Town, seat: Person) -> None:
    await sends(town, seat, "数 data.csv", CSV.encode(), "text/csv")
    await seat.sees("The number is 4711.", within_s=LATER_S)


async def _approves(seat: Person) -> None:
    await seat.say("look around")
    await seat.presses(ENGLISH.button_approve, within_s=LATER_S)
    await seat.sees("Here it is.", within_s=LATER_S)
    await seat.sees("/mnt/user-data/workspace", ENGLISH.mark_approved, within_s=LATER_S)


async def _denies(seat: Person) -> None:
    await seat.say("look around")
    await seat.sees(ENGLISH.approval_ask, OUTPUTS, "/mnt/user-data/workspace", within_s=LATER_S)
    await seat.say("there is nothing to see")
    await seat.sees("I did not look.", within_s=LATER_S)
    await seat.sees(ENGLISH.approval_ask, ENGLISH.mark_denied, within_s=LATER_S)


async def _crash(seats: list[Person], model: FakeModelServer, service: Service) -> None:
    """Ours is killed while that server works: each turn is joined, not begun anew, and answered once."""
    for seat in seats:
        await seat.say(f"slowly please, {seat.name}")
    asked = [f"slowly please, {seat.name}" for seat in seats]

    def _is_asked_for_all(server: FakeModelServer) -> bool:
        return {*asked} <= {one.last_user_text for one in server.requests}

    await model.until(_is_asked_for_all, within_s=LATER_S)
    await service.kill()
    await service.start()
    await service.until_connected(*PLATFORMS)
    for seat in seats:
        await seat.hears(" ".join(f"word{n}" for n in range(40)), within_s=LATER_S)
    assert sorted(r.last_user_text for r in model.requests if "slowly" in r.last_user_text) == (
        sorted(asked)
    )
