"""`parley threads`: conversations and their threads."""

import argparse
import sys
from functools import partial

import anyio

from gateway.config import Config, load
from gateway.reach import ask, service
from gateway.table import iso, moment, table
from store.conversations import ConversationStore
from store.database import Database

HEAD = ("channel", "chat", "topic", "thread", "messages", "last used")


def run(arguments: argparse.Namespace) -> int:
    """List conversations, most recently used first."""
    config = load(arguments.config)
    rows = anyio.run(partial(_rows, config, arguments.limit))
    sys.stdout.write((table(HEAD, rows) if rows else "No conversation yet.") + "\n")
    return 0


async def _rows(config: Config, limit: int) -> list[list[object]]:
    async with service(config) as client:
        if client is not None:
            answer = await ask(client, "GET", "channels/conversations", limit=limit)
            keys = ("channel", "chat", "topic", "thread_id", "last_seq")
            return [
                [*(row[key] for key in keys), moment(row["updated_at"])] for row in answer["rows"]
            ]
    async with Database.open(config.database, config.home) as database:
        return [
            [
                row.key.channel,
                row.key.chat,
                row.key.topic,
                row.thread_id,
                row.last_seq,
                moment(iso(row.updated_at)),
            ]
            for row in await ConversationStore(database).list_recent(limit=limit)
        ]
