"""`parley threads`: lists conversations and their threads."""

import argparse
import sys
from functools import partial
from typing import Any

import anyio

from gateway.config import Config, load_config
from gateway.routes.views import conversation_view
from gateway.service_client import open_service_client, request_json
from gateway.text_table import format_table, format_time
from store.conversations import ConversationStore
from store.database import Database

COLUMNS = ("channel", "chat", "topic", "thread", "messages", "last used")


def run(arguments: argparse.Namespace) -> int:
    """List conversations, most recently used first."""
    config = load_config(arguments.config)
    rows = anyio.run(partial(_load_rows, config, arguments.limit))
    keys = ("channel", "chat", "topic", "thread_id", "last_seq")
    lines = [[*(row[key] for key in keys), format_time(row["updated_at"])] for row in rows]
    sys.stdout.write((format_table(COLUMNS, lines) if lines else "No conversations.") + "\n")
    return 0


async def _load_rows(config: Config, limit: int) -> list[dict[str, Any]]:
    async with open_service_client(config) as client:
        if client is not None:
            answer = await request_json(client, "GET", "channels/conversations", limit=limit)
            return list(answer["rows"])
    async with Database.open(config.database, config.home) as database:
        recent = await ConversationStore(database).list_recent(limit=limit)
        return [conversation_view(row) for row in recent]
