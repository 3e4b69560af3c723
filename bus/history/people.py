"""Who wrote to the bot: counted from the accepted messages that the journal still has."""

from collections.abc import Iterable
from dataclasses import dataclass

from anyio import to_thread
from pydantic import BaseModel, ValidationError

from bus.messages import Sender
from store.inbox import AcceptedBody, InboxStore

MAX_MESSAGES = 20_000
"""How many of the newest accepted messages are looked at: 0.3 s of a worker thread."""


@dataclass(slots=True, kw_only=True)
class Person:
    """Somebody who wrote. Times are Unix seconds; `name` as the newest message had it."""

    channel: str
    workspace: str
    sender: Sender
    messages: int
    last_message_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivePeople:
    """Those who wrote last come first. `since`: when the first message that counts came; None = no message counts."""

    people: list[Person]
    since: float | None


async def find_active_people(inbox: InboxStore) -> ActivePeople:
    """Return who wrote the newest `MAX_MESSAGES` messages and commands. Raises StoreError."""
    rows = await inbox.list_bodies(limit=MAX_MESSAGES)
    people = await to_thread.run_sync(_count, rows)
    return ActivePeople(people=people, since=rows[-1].received_at if rows else None)


class _Sent(BaseModel):
    """The part of a stored message that names its sender."""

    sender: Sender


def _count(rows: Iterable[AcceptedBody]) -> list[Person]:
    """Return the people of rows that come newest first, in that order."""
    people: dict[tuple[str, str, str], Person] = {}
    for row in rows:
        try:
            sender = _Sent.model_validate_json(row.body).sender
        except ValidationError:
            continue  # damaged: the row itself is reported elsewhere
        person = people.setdefault(
            (row.channel, row.workspace, sender.user_id),
            Person(
                channel=row.channel,
                workspace=row.workspace,
                sender=sender,
                messages=0,
                last_message_at=row.received_at,
            ),
        )
        person.messages += 1
    return list(people.values())
