"""The journeys of the embedded runtime with LangGraph's own server (`langgraph dev`) in its place."""

from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from langgraph_sdk import get_client

from bus.locales.en import ENGLISH
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.peer import PROGRAM, langgraph_dev
from tests.journeys.service import Service, serving, with_model
from tests.journeys.test_attachments import CSV, sends
from tests.journeys.test_files import OUTPUTS, received
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")
TOKEN = "test-token-0123"
LATER_S = 40.0
"""LangGraph's server checks for new runs twice a second, and executes eight at a time."""

pytestmark = pytest.mark.skipif(
    not PROGRAM.exists(), reason="needs `make peers-python` (langgraph-cli[inmem])"
)


ASKED = {
    "hang": ModelReply(text="one two three four", hang_after=3),
    "slowly": ModelReply(text=" ".join(f"word{n}" for n in range(40)), token_delay_s=0.1),
    "colour": ModelReply(
        calls=(
            ToolCall(
                "ask_clarification",
                {"question": "Red or blue?", "clarification_type": "missing_info"},
            ),
        )
    ),
    "report": ModelReply(
        calls=(
            ToolCall(
                "write_file",
                {"description": "write", "path": f"{OUTPUTS}/report.csv", "content": CSV},
                id="w1",
            ),
        )
    ),
    "look around": ModelReply(
        calls=(
            ToolCall("ls", {"path": OUTPUTS}, id="l1"),
            ToolCall("ls", {"path": "/mnt/user-data/workspace"}, id="l2"),
        )
    ),
    "<uploaded_files>": ModelReply(
        calls=(ToolCall("read_file", {"path": "/mnt/user-data/uploads/数 data.csv"}),)
    ),
}
"""The model's actions, by words in the person's message."""


def answer(request: ModelRequest) -> ModelReply:
    """Do what the person's message requests. Otherwise repeat it."""
    said, last = request.last_user_text, request.messages[-1]
    if last["role"] == "tool":
        return _after(last)
    wanted = next((reply for word, reply in ASKED.items() if word in said), None)
    return wanted or ModelReply(text=f"You said: {said}")


def _after(result: dict[str, Any]) -> ModelReply:
    if result["tool_call_id"] == "w1":
        return ModelReply(
            calls=(ToolCall("present_files", {"filepaths": [f"{OUTPUTS}/report.csv"]}),)
        )
    if "did not approve" in str(result["content"]):
        return ModelReply(text="I did not look.")
    return ModelReply(
        text="The number is 4711." if "4711" in str(result["content"]) else "Here it is."
    )


async def test_the_bots_work_on_it(tmp_path: Path) -> None:
    there = tmp_path / "there"
    here = tmp_path / "here"
    for folder in (there / "home", here / "home"):
        folder.mkdir(parents=True)
        (folder / "admin_token").write_text(TOKEN)
    token = {"PARLEY_ADMIN_TOKEN": TOKEN}
    async with PlatformServers() as platforms, FakeModelServer(answer=answer) as model:
        environment = {**token, "HOME": str(there), "PARLEY_HOME": str(there / "home")}
        guardrails = {"guardrails": {"enabled": True, "ask": ["ls"]}}
        config = {**with_model(model.base_url), **guardrails}
        async with langgraph_dev(there, config, environment) as url:
            await _serves_the_agent(url)
            channels = {**platforms.channels, "langgraph_url": url, "gateway_url": url}
            async with serving(
                here, {"channels": channels}, *PLATFORMS, environment=token
            ) as service:
                await _live(platforms, model)
                await _crash(platforms.private_users(9), model, service)
                assert await service.stop() == 0
                assert "Traceback" not in service.log.read_text()
        assert platforms.violations == []


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


async def _live(platforms: PlatformServers, model: FakeModelServer) -> None:
    """Each journey runs on at least one platform, because the bus is the same for all."""
    slack, telegram, feishu = platforms.private_users(1)
    async with anyio.create_task_group() as people:
        for user in platforms.users:
            people.start_soon(_is_answered_in_order, user)
        people.start_soon(_begins_anew, slack, model)
        people.start_soon(_stops, telegram, model)
        people.start_soon(_is_asked, feishu)
        for user in platforms.private_users(2):
            people.start_soon(_gets_a_file, platforms, user)
        people.start_soon(_has_a_file_read, platforms, platforms.private_users(3)[1])
        people.start_soon(_approves, platforms.private_users(4)[1])
        people.start_soon(_denies, platforms.private_users(4)[2])


async def _is_answered_in_order(user: ChatUser) -> None:
    await user.send("first")
    await user.expect_messages("You said: first", within_s=LATER_S)
    for text in ("second", "third"):
        await user.send(text)
    await user.expect_messages(
        "You said: first", "You said: second", "You said: third", within_s=LATER_S
    )
    assert user.misplaced_messages() == []


async def _begins_anew(user: ChatUser, model: FakeModelServer) -> None:
    await user.send("remember apples")
    await user.expect_messages("You said: remember apples", within_s=LATER_S)
    await user.send("and pears")
    await user.wait_for_message("You said: and pears", within_s=LATER_S)
    assert _said_before(model, "and pears") == ["remember apples"]
    await user.send("/new")
    await user.wait_for_message("New conversation started.", within_s=LATER_S)
    await user.send("and plums")
    await user.wait_for_message("You said: and plums", within_s=LATER_S)
    assert _said_before(model, "and plums") == []


def _said_before(model: FakeModelServer, text: str) -> list[str]:
    [request] = [one for one in model.requests if one.last_user_text == text]
    return [m["content"] for m in request.messages if m["role"] == "user"][:-1]


async def _stops(user: ChatUser, model: FakeModelServer) -> None:
    await user.send("hang please")
    await model.until(
        lambda m: any("hang" in r.last_user_text for r in m.requests), within_s=LATER_S
    )
    await user.send("/stop")
    await user.wait_for_message("Stopped", within_s=LATER_S)
    await model.until(
        lambda m: any(r.closed_by_client and "hang" in r.last_user_text for r in m.requests),
        within_s=LATER_S,
    )
    await user.send("and now?")
    await user.wait_for_message("You said: and now?", within_s=LATER_S)


async def _is_asked(user: ChatUser) -> None:
    await user.send("a colour, please")
    await user.wait_for_message("Red or blue?", within_s=LATER_S)
    await user.send("red")
    await user.wait_for_message("You said: red", within_s=LATER_S)


async def _gets_a_file(platforms: PlatformServers, user: ChatUser) -> None:
    await user.send("the report, please")
    await user.wait_for_message("Here it is.", within_s=LATER_S)
    await eventually(lambda: received(platforms, user), within_s=LATER_S)
    assert received(platforms, user) == [("report.csv", CSV.encode())]


async def _has_a_file_read(platforms: PlatformServers, user: ChatUser) -> None:
    await sends(platforms, user, "数 data.csv", CSV.encode(), "text/csv")
    await user.wait_for_message("The number is 4711.", within_s=LATER_S)


async def _approves(user: ChatUser) -> None:
    await user.send("look around")
    await user.wait_and_press(ENGLISH.button_approve, within_s=LATER_S)
    await user.wait_for_message("Here it is.", within_s=LATER_S)
    await user.wait_for_message("/mnt/user-data/workspace", ENGLISH.mark_approved, within_s=LATER_S)


async def _denies(user: ChatUser) -> None:
    await user.send("look around")
    await user.wait_for_message(
        ENGLISH.approval_ask, OUTPUTS, "/mnt/user-data/workspace", within_s=LATER_S
    )
    await user.send("there is nothing to see")
    await user.wait_for_message("I did not look.", within_s=LATER_S)
    await user.wait_for_message(ENGLISH.approval_ask, ENGLISH.mark_denied, within_s=LATER_S)


async def _crash(users: list[ChatUser], model: FakeModelServer, service: Service) -> None:
    """Parley is killed while LangGraph's server works.

    Each turn joins its run, starts no new one, and is answered once.
    """
    for user in users:
        await user.send(f"slowly please, {user.name}")
    asked = [f"slowly please, {user.name}" for user in users]

    def _is_asked_for_all(server: FakeModelServer) -> bool:
        return {*asked} <= {one.last_user_text for one in server.requests}

    await model.until(_is_asked_for_all, within_s=LATER_S)
    await service.kill()
    await service.start()
    await service.until_connected(*PLATFORMS)
    for user in users:
        await user.expect_messages(" ".join(f"word{n}" for n in range(40)), within_s=LATER_S)
    assert sorted(r.last_user_text for r in model.requests if "slowly" in r.last_user_text) == (
        sorted(asked)
    )
