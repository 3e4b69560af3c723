"""The people who wrote to the bot, according to the accepted messages that the journal still contains."""

from collections.abc import Iterable
from dataclasses import dataclass

from anyio import to_thread
from pydantic import BaseModel, ValidationError

from bus.messages import Sender
from store.inbox import AcceptedBody, InboxStore

MAX_MESSAGES = 20_000
"""Number of the newest accepted messages to read, which takes 0.3 s of a worker thread."""


@dataclass(slots=True, kw_only=True)
class Person:
    """A person who wrote. Times are Unix seconds. `name` is from the newest message."""

    channel: str
    workspace: str
    sender: Sender
    messages: int
    last_message_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivePeople:
    """The people, in the order of their last message, newest first.

    `since`: time of the earliest message read; None = none.
    """

    people: list[Person]
    since: float | None


async def find_active_people(inbox: InboxStore) -> ActivePeople:
    """Return the authors of the newest `MAX_MESSAGES` messages and commands. Raises StoreError."""
    rows = await inbox.list_bodies(limit=MAX_MESSAGES)
    people = await to_thread.run_sync(_count, rows)
    return ActivePeople(people=people, since=rows[-1].received_at if rows else None)


class _StoredSender(BaseModel):
    """The part of a stored message that names its sender."""

    sender: Sender


def _count(rows: Iterable[AcceptedBody]) -> list[Person]:
    """Return the authors of rows, which are sorted newest first, in the same order."""
    people: dict[tuple[str, str, str], Person] = {}
    for row in rows:
        try:
            sender = _StoredSender.model_validate_json(row.body).sender
        except ValidationError:
            continue  # The row is damaged, which is reported elsewhere.
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
