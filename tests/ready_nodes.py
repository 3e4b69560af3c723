"""Nodes of a PostgreSQL database: find the owner of a chat, and wait until the nodes know and hear each other."""

from collections.abc import AsyncIterator
from contextlib import ExitStack
from uuid import uuid4

import anyio

from store.chat_owners import LIVES
from store.conversations import ConversationKey, key_params
from store.database import Database
from tests.eventually import eventually

_OWNER = f"""
SELECT node FROM chat_owner WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND {LIVES}
"""  # noqa: S608 - literals only


async def owner_of(database: Database, chat: ConversationKey) -> int | None:
    """Return the node that owns a chat; None = no node."""
    rows = await database.read(_OWNER, key_params(chat))
    return int(rows[0]["node"]) if rows else None


async def until_ready(*databases: Database) -> None:
    """Wait until each of these nodes knows that all of them take work, so that all pick the same owner for a chat."""
    wanted = {database.nodes.number for database in databases}

    def known() -> list[set[int]]:
        return [
            {node.number for node in database.nodes.living if node.takes_work}
            for database in databases
        ]

    await eventually(known, lambda found: all(wanted <= one for one in found))


async def until_heard(topic: str, *databases: Database) -> None:
    """Wait until each of these nodes receives the others' signals on a topic, including all earlier signals."""
    tokens = {uuid4().hex: database for database in databases}

    async def listen(payloads: AsyncIterator[str], heard: set[str]) -> None:
        async for payload in payloads:
            heard.add(payload)

    with ExitStack() as stack:
        async with anyio.create_task_group() as tasks:
            all_heard: list[set[str]] = []
            for database in databases:
                all_heard.append(set())
                payloads = stack.enter_context(database.signals.subscribe(topic))
                tasks.start_soon(listen, payloads, all_heard[-1])

            def unheard() -> set[str]:
                missing = {token for token in tokens for heard in all_heard if token not in heard}
                for token in missing:
                    tokens[token].signals.publish(topic, token)
                return missing

            await eventually(unheard, lambda missing: not missing)
            tasks.cancel_scope.cancel()
