"""GET /api/channels/people: the people who write to the bot."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from bus.history.people import Person, find_active_people
from bus.messages import SenderKind
from gateway.dependencies import BusDep
from gateway.routes.channels import Limit
from gateway.routes.views import iso_time

router = APIRouter(prefix="/channels/people")


class PersonView(BaseModel):
    """A person who wrote to the bot; `messages` includes commands."""

    channel: str
    workspace: str
    user_id: str
    user_name: str
    kind: SenderKind
    messages: int
    last_message_at: str


class PeopleList(BaseModel):
    """People, the most recent writers first.

    Attributes:
        since: Time of the oldest counted message. The newest 20,000 messages within the retention count.
        count: Total number of people.
    """

    since: str | None
    count: int
    people: list[PersonView]


@router.get("", response_model=PeopleList)
async def list_people(bus: BusDep, limit: Limit = 100) -> dict[str, Any]:
    """List the people who write to the bot, the most recent writers first."""
    found = await find_active_people(bus.inbox)
    return {
        "since": iso_time(found.since),
        "count": len(found.people),
        "people": [_person_view(person) for person in found.people[:limit]],
    }


def _person_view(person: Person) -> dict[str, Any]:
    return {
        "channel": person.channel,
        "workspace": person.workspace,
        "user_id": person.sender.user_id,
        "user_name": person.sender.name,
        "kind": person.sender.kind,
        "messages": person.messages,
        "last_message_at": iso_time(person.last_message_at),
    }
