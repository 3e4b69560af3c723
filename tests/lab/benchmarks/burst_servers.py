"""The servers that create a burst, in their own process: the platform of a busy bot, and the model.

Run as `python -m tests.lab.benchmarks.burst_servers`. The first line of its output is a JSON object of addresses.
Each line of its input is a JSON object, `{"text": "hello", "people": 2, "messages": 3}`: this many people each write
this many messages to the bot at once. With `"wait": true`, it prints a line once the bot has shown something.
"""

import json
import re
import sys

import anyio

from gateway.playground.telegram.server import TelegramServer
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall

TOKEN = "111:busy"
ANSWER_S = 3.0
"""How long the model takes to answer people on the other channel. They see an indicator first."""

WITHIN_S = 60.0

TABLE_ROW = "| " + "x" * 44 + " | y |\n"
TABLE_ROWS = 400_000 // len(TABLE_ROW)


async def serve() -> None:
    """Serve until the input ends."""
    async with FakeModelServer(answer=_reply) as model, TelegramServer(token=TOKEN) as busy:
        addresses = {
            "model_url": model.base_url,
            "base_url": busy.base_url,
            "base_file_url": busy.base_file_url,
        }
        _tell(addresses)
        async for line in anyio.wrap_file(sys.stdin):
            burst = json.loads(line)
            for number in range(burst["messages"]):
                for person in range(burst["people"]):
                    busy.dm(f"{burst['text']} {number}", user=100_000 + person)
            if burst["wait"]:
                await busy.wait_for(lambda: bool(busy.log), WITHIN_S)
                _tell({})


def _tell(line: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _reply(request: ModelRequest) -> ModelReply:
    said = request.last_user_text
    if "fetch everything" in said and request.messages[-1]["role"] != "tool":
        return ModelReply(calls=(ToolCall("fetch_everything", {}),))
    if found := re.search(r"say (\d+) words", said):
        return ModelReply(text="word " * int(found[1]), token_delay_s=0.0)
    if "draw a table" in said:
        return ModelReply(text="| a | b |\n|---|---|\n" + TABLE_ROW * TABLE_ROWS, token_delay_s=0.0)
    return ModelReply(text="Hello.", first_token_delay_s=ANSWER_S if "question" in said else 0.0)


if __name__ == "__main__":
    anyio.run(serve)
