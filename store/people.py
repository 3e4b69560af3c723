"""People who wrote to the bot. Their rows outlive the messages in the inbox."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from store.database import Database, Params, Statement
from store.rows import from_row, to_params

_ADD = """
INSERT INTO person (id, channel, workspace, user_id, name, kind, search, messages, received_at)
VALUES (:id, :channel, :workspace, :user_id, :name, :kind, :search, :messages, :received_at)
ON CONFLICT (id) DO UPDATE SET messages = person.messages + excluded.messages, kind = excluded.kind,
    name = CASE WHEN excluded.name = '' THEN person.name ELSE excluded.name END,
    search = CASE WHEN excluded.name = '' THEN person.search ELSE excluded.search END,
    received_at = excluded.received_at
"""
_SEARCH = """
SELECT * FROM person WHERE (:channel = '' OR channel = :channel) AND search LIKE :search ESCAPE '!'
ORDER BY received_at DESC, id LIMIT :limit OFFSET :offset
"""
_FIND = """
SELECT * FROM person WHERE channel = :channel AND user_id = :user_id AND (:workspace = '' OR workspace = :workspace)
ORDER BY received_at DESC LIMIT 1
"""
_NAMES = "SELECT id, name FROM person WHERE id IN (SELECT value FROM json_each(:ids))"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPerson:
    """A person who wrote to the bot.

    Attributes:
        id: Their ID in the model_usage table (`global_user_id`).
        name: Their name in the newest message that has one; "" = unknown.
        kind: Their `SenderKind` (bus/messages.py).
        messages: Number of their messages and commands.
        received_at: When the newest one was accepted, Unix seconds.
    """

    id: str
    channel: str
    workspace: str
    user_id: str
    name: str
    kind: str
    messages: int
    received_at: float


class PeopleStore:
    """The person table, which the index of messages fills a second after a message (bus/history/message_index.py)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def search(
        self, text: str, *, channel: str, limit: int, offset: int
    ) -> list[KnownPerson]:
        """Return people whose name or ID contains a text, most recent message first. Raises StoreError."""
        params: Params = {
            "channel": channel,
            "search": search_pattern(text),
            "limit": limit,
            "offset": offset,
        }
        return [from_row(KnownPerson, row) for row in await self._database.read(_SEARCH, params)]

    async def find(self, channel: str, user_id: str, *, workspace: str = "") -> KnownPerson | None:
        """Return a person; without `workspace`, in the workspace where they last wrote. Raises StoreError."""
        params: Params = {"channel": channel, "user_id": user_id, "workspace": workspace}
        rows = await self._database.read(_FIND, params)
        return from_row(KnownPerson, rows[0]) if rows else None

    async def names(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Return the known names of people, by `id`. Raises StoreError."""
        rows = await self._database.read(_NAMES, {"ids": json.dumps(ids)})
        return {row["id"]: row["name"] for row in rows if row["name"]}


def person_statement(person: KnownPerson) -> Statement:
    """Return the statement that adds to the message count of a person."""
    return _ADD, {**to_params(person), "search": search_text(person.name, person.user_id)}


def search_text(*names: str) -> str:
    """Return the text by which a search finds a row.

    >>> search_text("Ann LEE", "U1")
    'ann lee u1'
    """
    return " ".join(name.casefold() for name in names if name)


def search_pattern(text: str) -> str:
    """Return the LIKE pattern for texts that contain `text`. The escape character is `!`.

    >>> search_pattern("50% Off")
    '%50!% off%'
    """
    escaped = "".join(f"!{one}" if one in "!%_" else one for one in text.casefold())
    return f"%{escaped}%"
