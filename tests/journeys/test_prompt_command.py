"""`parley prompt` prints the model's input for the next message, with and without the service."""

import json
import re
from pathlib import Path
from typing import Any

from gateway.prompt_report import NEXT_MESSAGE
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall, tool_plan
from tests.gateway.test_cli import one_line, parley
from tests.journeys.service import Service, serving
from tests.journeys.test_speakers import TelegramTopic, forgetful
from tests.people.platforms import PlatformServers
from tests.people.telegram import FORUM

LOOK = ToolCall("ls", {"path": "/mnt/user-data/workspace"})


def texts(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return roles and texts. A message that only calls tools has no text, or an empty one."""
    return [(message["role"], message["content"] or "") for message in messages]


async def printed(service: Service, *arguments: str) -> dict[str, Any]:
    code, out, err = await service.command("prompt", "--channel", "telegram", *arguments, "--json")
    assert (code, err) == (0, "")
    report: dict[str, Any] = json.loads(out)
    return report


async def test_the_prompt_is_the_one_that_the_next_message_gets(tmp_path: Path) -> None:
    plan = tool_plan(ModelReply(calls=(LOOK,)), "Nothing there.")
    async with PlatformServers() as platforms, FakeModelServer(answer=plan) as model:
        topic = TelegramTopic(platforms.telegram)
        channels = {"telegram": platforms.channels["telegram"]}
        chat = ("--chat", str(FORUM))
        async with serving(tmp_path, {**forgetful(model), "channels": channels}, "telegram") as on:
            await topic.ask(41, "Is it there?", "Ann", "Lee")
            asked = len(model.requests)
            running, new = await printed(on, *chat), await printed(on, *chat, "--topic", "9")
            assert len(model.requests) == asked
            await topic.ask(41, NEXT_MESSAGE, "Ann", "Lee")
        stopped = await printed(on, *chat)
    body = model.requests[asked].body
    system, *messages = body["messages"]
    assert running["system"] == system["content"]
    assert running["tools"] == body["tools"]
    assert texts(running["messages"]) == texts(messages)
    assert (
        running["messages"][-1]["content"] == f'<speaker id="41">Ann Lee</speaker>\n{NEXT_MESSAGE}'
    )
    sizes = {part["part"] for part in running["parts"]}
    assert sizes == {"tools", "system", "skills", "chat", "conversation"}
    assert running["tokens"] == sum(part["tokens"] for part in running["parts"])
    assert abs(running["tokens"] - model.requests[asked].tokens) < 0.1 * running["tokens"]
    # Another topic starts a new conversation. Without the service, the conversation continues.
    assert new["thread_id"] is None
    assert [m["role"] for m in new["messages"]] == ["user"]
    same = ("thread_id", "system", "tools")
    assert [stopped[key] for key in same] == [running[key] for key in same]
    assert len(stopped["messages"]) == len(messages) + 4


def test_it_works_without_a_key_and_a_service(tmp_path: Path) -> None:
    config = """
gateway: {port: 1}
models: [{name: gpt, use: "langchain_openai:ChatOpenAI", model: gpt-5, api_key: $NO_KEY}]
channels: {language: zh, feishu: {session: {context: {is_plan_mode: true}}}}
"""
    code, out, err = parley(tmp_path, "prompt", "--channel", "feishu", config=config)
    assert code == 0
    assert "NO_KEY is not set" in one_line(err)
    assert "你是 Parley" in out
    assert "这是飞书上的私聊。" in out
    assert "write_todos" in out
    assert "---- recall\n" in out  # as with a service
    assert "\n  query*: {" in out
    assert NEXT_MESSAGE in out
    heads = re.findall(r"^==== (\w+)", out, re.MULTILINE)
    assert heads == ["sizes", "system", "user", "tools"]
    assert re.search(r"^sum +all +\d+\n==== system$", out, re.MULTILINE)
    assert parley(tmp_path, "prompt", "--channel", "irc", config="gateway: {port: 1}")[0] == 1
