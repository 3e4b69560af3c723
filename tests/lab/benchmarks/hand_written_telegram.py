"""A typical hand-written Telegram bot: the reference of `turns.py`. Only its checkpoints are durable.

Run as `python -m tests.lab.benchmarks.hand_written_telegram FOLDER` with TELEGRAM_URL, TELEGRAM_TOKEN and MODEL_URL.
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
from telegram import Update
from telegram.ext import ApplicationBuilder, ContextTypes, MessageHandler, filters


@tool
def write_todos(todos: list[dict[str, str]]) -> str:
    """Update the to-do list."""
    return f"Updated the list: {len(todos)}"


async def main(folder: str) -> None:
    """Answer until killed."""
    model = ChatOpenAI(
        model="fake-1", base_url=os.environ["MODEL_URL"], api_key=SecretStr("sk-test")
    )
    async with AsyncSqliteSaver.from_conn_string(f"{folder}/bot.db") as saver:
        agent: Any = create_agent(
            model, [write_todos], system_prompt="You are a helpful assistant.", checkpointer=saver
        )

        async def answer(update: Update, _context: ContextTypes.DEFAULT_TYPE) -> None:
            message = update.message
            if message is None:
                return
            config: RunnableConfig = {"configurable": {"thread_id": str(message.chat_id)}}
            asked = {"messages": [{"role": "user", "content": message.text}]}
            text = ""
            async for chunk, _ in agent.astream(asked, config, stream_mode="messages"):
                if isinstance(chunk, AIMessageChunk):
                    text += chunk.text
            await message.reply_text(text)

        builder = ApplicationBuilder().token(os.environ["TELEGRAM_TOKEN"])
        builder = builder.base_url(os.environ["TELEGRAM_URL"])
        application = builder.concurrent_updates(True).connection_pool_size(256).build()
        application.add_handler(MessageHandler(filters.TEXT, answer))
        async with application:
            await application.start()
            if application.updater is not None:
                await application.updater.start_polling()
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
