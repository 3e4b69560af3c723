"""MCP servers in chats on all three platforms: a server asks people, shows its progress, and is stopped."""

import json
from pathlib import Path
from typing import Any

import anyio

from tests.eventually import eventually
from tests.fakes.mcp_stdio import stdio_server
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.service import serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

NOTE = "/mnt/user-data/workspace/note.txt"


def answer(request: ModelRequest) -> ModelReply:
    """Book or copy as told, then repeat the tool's result."""
    last = request.messages[-1]
    if last["role"] == "tool":
        results = [str(m["content"]) for m in request.messages[-2:] if m["role"] == "tool"]
        return ModelReply(text=f"Result: {' and '.join(results)}")
    said = request.last_user_text
    if "book" in said:
        return ModelReply(calls=(ToolCall("hotel_book", {"day": said.split()[-1]}),))
    if "note" in said:
        note = ToolCall("write_file", {"path": NOTE, "content": "Booked."}, id="note")
        return ModelReply(text="Let me.", calls=(note, ToolCall("hotel_book", {"day": "Friday"})))
    if "copy" in said:
        return ModelReply(calls=(ToolCall("hotel_copy", {"until": "there-is-no-such-file"}),))
    return ModelReply(text="Hello.")


async def test_a_server_asks_people_and_is_stopped_in_every_place(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = {**stdio_server("mcp_interactive", "stdio"), "env": {"LOG": str(log)}}
    async with PlatformServers() as platforms, FakeModelServer(answer=answer) as model:
        config: dict[str, Any] = {**with_model(model.base_url), "channels": platforms.channels}
        config["guardrails"] = {"enabled": True, "ask": ["write_file"]}
        (tmp_path / "extensions_config.json").write_text(
            json.dumps({"mcpServers": {"hotel": server}})
        )
        async with serving(tmp_path, config, "slack", "telegram", "feishu") as service:
            users = platforms.private_users(1)
            async with anyio.create_task_group() as people:
                for user in users:
                    people.start_soon(_book, user)
            assert sorted(log.read_text().splitlines()) == ["book Monday"] * len(users)
            for user in users:
                await _stop(user, log)
                await _decide_one_after_the_other(user)
            assert await service.stop() == 0
        assert platforms.violations == []


async def _book(user: ChatUser) -> None:
    await user.send("hello")
    await user.wait_for_message("Hello.")
    await user.send("book Monday")
    await user.wait_for_message("The MCP server")
    await user.wait_and_press("red")
    await user.wait_for_message("How many guests?")
    await user.send("3")
    await user.wait_for_message("With catering?")
    await user.wait_and_press("Skip")
    await user.wait_for_message("Result: booked red for 3, catering None")


async def _decide_one_after_the_other(user: ChatUser) -> None:
    """Answer an approval and a question that wait at the same time: "no" denies the file but not the room."""
    await user.send("note a room")
    await user.wait_for_message("write_file", NOTE)
    await user.send("no")
    await user.wait_for_message("Which room on Friday?")
    await user.wait_and_press("blue")
    await user.wait_for_message("Which room on Friday?", "How many guests?")
    await user.send("2")
    await user.wait_for_message("Which room on Friday?", "With catering?")
    await user.wait_and_press("No")
    await user.wait_for_message("did not approve", "booked blue for 2, catering False")


async def _stop(user: ChatUser, log: Path) -> None:
    file = anyio.Path(log)

    async def entries() -> list[str]:
        return (await file.read_text()).splitlines()

    before = (await entries()).count("cancelled")
    await user.send("copy everything")
    await eventually(entries, lambda lines: lines.count("copying") == before + 1, within_s=60)
    await user.send("/stop")
    await eventually(entries, lambda lines: lines.count("cancelled") == before + 1, within_s=60)
