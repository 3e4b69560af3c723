"""What people call places, and GET /api/messages/places: those in which somebody wrote to the bot."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from anyio import to_thread
from fastapi import APIRouter
from pydantic import BaseModel

from bus.history.people import MAX_MESSAGES
from bus.messages import InboundMessage, Sender, decode_inbound
from gateway.dependencies import BusDep
from store.conversations import ConversationKey
from store.inbox import AcceptedBody, InboxStore

router = APIRouter(prefix="/messages/places")


class PlaceView(BaseModel):
    """A chat; `place` is what people call it, "" = unknown."""

    channel: str
    workspace: str
    chat: str
    place: str


class PlaceList(BaseModel):
    """Chats, the last used first."""

    places: list[PlaceView]


@router.get("", response_model=PlaceList)
async def list_places(bus: BusDep) -> PlaceList:
    """List the chats of the newest 20,000 messages, the last used first."""
    rows = await bus.inbox.list_bodies(limit=MAX_MESSAGES)
    return PlaceList(places=await to_thread.run_sync(_places, rows))


class _StoredChat(BaseModel):
    chat: str


class _StoredPlace(BaseModel):
    """The part of a stored message that names its place."""

    key: _StoredChat
    sender: Sender
    is_private: bool
    chat_title: str = ""


def _places(rows: Iterable[AcceptedBody]) -> list[PlaceView]:
    found: dict[tuple[str, str, str], PlaceView] = {}
    for row in rows:
        with suppress(ValueError):  # a damaged row
            stored = _StoredPlace.model_validate_json(row.body)
            name = stored.chat_title or (stored.sender.name if stored.is_private else "")
            view = PlaceView(
                channel=row.channel, workspace=row.workspace, chat=stored.key.chat, place=name
            )
            found.setdefault((view.channel, view.workspace, view.chat), view)
    return list(found.values())


def place_of(inbound: InboundMessage) -> str:
    """Return what people call the place of a message; "" = unknown. A private chat has its person's name."""
    title = " › ".join(filter(None, (inbound.chat_title, inbound.topic_title)))
    return title or (inbound.sender.name if inbound.is_private else "")


async def place_names(
    inbox: InboxStore, keys: Sequence[ConversationKey]
) -> dict[ConversationKey, str]:
    """Return what people call conversations, by their newest messages; "" = unknown. Raises StoreError."""
    names = dict.fromkeys(keys, "")
    for row in await inbox.list_newest(names):
        with suppress(ValueError):  # a damaged row
            names[row.key] = place_of(decode_inbound(row.body))
    return names
