"""A typical hand-written Slack bot: the reference of `turns.py`. Only its checkpoints are durable.

Run as `python -m tests.lab.benchmarks.hand_written_slack FOLDER` with SLACK_URL, SLACK_BOT_TOKEN, SLACK_APP_TOKEN and
MODEL_URL.
"""

import asyncio
import os
import sys
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from pydantic import SecretStr
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp, AsyncSay
from slack_sdk.web.async_client import AsyncWebClient


@tool
def write_todos(todos: list[dict[str, str]]) -> str:
    """Update the to-do list."""
    return f"Updated the list: {len(todos)}"


async def main(folder: str) -> None:
    """Answer until killed."""
    model = ChatOpenAI(
        model="fake-1", base_url=os.environ["MODEL_URL"], api_key=SecretStr("sk-test")
    )
    client = AsyncWebClient(token=os.environ["SLACK_BOT_TOKEN"], base_url=os.environ["SLACK_URL"])
    app = AsyncApp(client=client)
    async with AsyncSqliteSaver.from_conn_string(f"{folder}/bot.db") as saver:
        agent: Any = create_agent(
            model, [write_todos], system_prompt="You are a helpful assistant.", checkpointer=saver
        )

        @app.event("message")
        async def answer(event: dict[str, Any], say: AsyncSay) -> None:
            if event.get("bot_id") or event.get("subtype"):
                return
            config: RunnableConfig = {"configurable": {"thread_id": event["channel"]}}
            asked = {"messages": [{"role": "user", "content": event["text"]}]}
            text = ""
            async for chunk, _ in agent.astream(asked, config, stream_mode="messages"):
                if isinstance(chunk, AIMessageChunk):
                    text += chunk.text
            await say(text)

        handler = AsyncSocketModeHandler(app, os.environ["SLACK_APP_TOKEN"], web_client=client)
        await handler.start_async()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
