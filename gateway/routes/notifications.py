"""/api/channels/{channel}/messages: sends a client's message to one chat, topic or person, and returns its state."""

from contextlib import AsyncExitStack
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Request
from fastapi import Path as PathParameter
from pydantic import BaseModel

from bots.terminal.adapter import TERMINAL
from bus.notifications.notifications import NotificationRequest, NotificationStatus
from gateway.dependencies import BusDep
from gateway.middleware import AUDIT_DETAIL
from gateway.notification_requests import Key, NewMessageRequest
from gateway.openapi import error_responses
from gateway.routes.deliveries import OutboxRowView, outbox_row_view
from gateway.routes.notification_forms import describe_body, read_notification, save_files
from gateway.routes.views import iso_time

router = APIRouter(prefix="/channels/{channel}/messages", responses=error_responses(404, 409))


class SentMessageView(BaseModel):
    """A message that a client sends.

    Attributes:
        key: The client's key, or a generated one.
        chat, topic, person: As in the request.
        state: The state of the delivery that is least far along; `discarded` = an administrator discarded the
            deliveries.
        error: Why the last attempt failed, in the platform's words.
        message_ids: The platform's IDs of the messages that it became.
        is_repeat: Whether it was already accepted, so that this request changed nothing.
        deliveries: Its deliveries: one for each message of its text and one for each file.
    """

    channel: str
    key: str
    chat: str
    topic: str
    person: str
    state: Literal["pending", "sending", "delivered", "uncertain", "failed", "discarded"]
    error: str | None
    message_ids: list[str]
    is_repeat: bool
    created_at: str
    deliveries: list[OutboxRowView]


@router.post(
    "",
    response_model=SentMessageView,
    status_code=202,
    openapi_extra=describe_body(NewMessageRequest),
    responses=error_responses(400),
)
async def send_message(channel: str, request: Request, bus: BusDep) -> dict[str, Any]:
    """Send a message to one chat, topic or person, once for each `key`. Files come in a form, in the field `files`."""
    if channel == TERMINAL:
        raise HTTPException(409, "A terminal shows messages only while it is open.")
    max_bytes = bus.notifications.max_file_bytes(channel)
    async with AsyncExitStack() as stack:
        new, uploads = await read_notification(request, stack, NewMessageRequest)
        files = await save_files(new, uploads, stack, {channel: max_bytes})
        status = await bus.notifications.send(
            NotificationRequest(
                channel=channel,
                chat=new.chat or new.person,
                topic=new.topic,
                is_person=bool(new.person),
                text=new.text,
                key=new.key or "",
                files=files,
            )
        )
    repeated = ", repeated" if status.is_repeat else ""
    place = f"person {status.chat}" if status.is_person else f"chat {status.chat}"
    request.scope[AUDIT_DETAIL] = f"message {status.key} to {place}{repeated}"
    return sent_message_view(status)


@router.get("/{key}", response_model=SentMessageView)
async def get_message(
    channel: str, key: Annotated[Key, PathParameter()], bus: BusDep
) -> dict[str, Any]:
    """Return a client's message with its state."""
    return sent_message_view(await bus.notifications.find(channel, key))


def sent_message_view(status: NotificationStatus) -> dict[str, Any]:
    """Return a message that a client sends as a `SentMessageView`."""
    return {
        "channel": status.channel,
        "key": status.key,
        "chat": "" if status.is_person else status.chat,
        "topic": status.topic,
        "person": status.chat if status.is_person else "",
        "state": status.state,
        "error": status.error or None,
        "message_ids": status.message_ids,
        "is_repeat": status.is_repeat,
        "created_at": iso_time(status.created_at),
        "deliveries": [outbox_row_view(row) for row in status.deliveries],
    }
