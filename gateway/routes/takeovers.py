"""/api/conversations/{thread_id}/takeover: a person answers in a conversation instead of the agent."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import AfterValidator, BaseModel, Field

from gateway.auth import CALLER, Caller
from gateway.dependencies import BusDep
from gateway.middleware import AUDIT_DETAIL, AUTHENTICATED_AS
from gateway.notification_requests import Key, Text, with_words
from gateway.openapi import error_responses
from gateway.routes.channels import ConversationAddress
from gateway.routes.notifications import SentMessageView, sent_message_view
from gateway.routes.views import iso_time
from store.takeovers import ConversationControl

router = APIRouter(
    prefix="/conversations/{thread_id}/takeover", responses=error_responses(404, 409)
)


class TakeoverView(ConversationAddress):
    """The person or agent who answers in a conversation.

    Attributes:
        by: The person who has taken it over, by the name of their token; null = the agent answers.
        since: When they took it over.
        summary: The messages since the agent's last run. The agent reads them with the next message.
    """

    thread_id: str
    by: str | None
    since: str | None
    summary: str


class NewOperatorMessage(BaseModel):
    """A message that the person sends as the bot."""

    text: Annotated[Text, AfterValidator(with_words)] = Field(description="Markdown")
    key: Key | None = Field(
        default=None, description="A repeated request with the same key sends nothing"
    )


@router.get("", response_model=TakeoverView)
async def get_takeover(thread_id: str, bus: BusDep) -> dict[str, Any]:
    """Return who answers in the conversation that continues in a thread."""
    control = await bus.takeovers.find(thread_id)
    return _view(control, await bus.takeovers.read_meanwhile(control))


@router.post("", response_model=TakeoverView)
async def take_over(thread_id: str, request: Request, bus: BusDep) -> dict[str, Any]:
    """Take a conversation over: stop its running turn, and keep the agent from answering there.

    Changes nothing if a person has already taken it over.
    """
    control = await bus.takeovers.begin(thread_id, _name_of(request))
    request.scope[AUDIT_DETAIL] = f"{_place(control)}, taken over by {control.taken_over_by}"
    return _view(control, await bus.takeovers.read_meanwhile(control))


@router.post("/messages", response_model=SentMessageView, status_code=202)
async def write_as_bot(
    thread_id: str, new: NewOperatorMessage, request: Request, bus: BusDep
) -> dict[str, Any]:
    """Send a message of the person as the bot, once for each `key`. 409 if nobody has taken the conversation over."""
    status = await bus.takeovers.send(thread_id, new.text, key=new.key or "", by=_name_of(request))
    repeated = ", repeated" if status.is_repeat else ""
    request.scope[AUDIT_DETAIL] = f"message {status.key} to chat {status.chat}{repeated}"
    return sent_message_view(status)


@router.delete("", response_model=TakeoverView)
async def hand_back(thread_id: str, request: Request, bus: BusDep) -> dict[str, Any]:
    """Hand a conversation back to the agent. The agent reads `summary` with the next message.

    409 if nobody has taken it over.
    """
    back = await bus.takeovers.end(thread_id)
    control = back.conversation
    request.scope[AUDIT_DETAIL] = f"{_place(control)}, taken over by {control.taken_over_by}"
    return {**_view(control, back.summary), "by": None, "since": None}


def _name_of(request: Request) -> str:
    """Return the name of the token that sends a request or opened the session. The audit log has its fingerprint."""
    caller: Caller | None = request.scope.get(CALLER)
    return (caller.token or "admin") if caller else str(request.scope.get(AUTHENTICATED_AS, ""))


def _place(control: ConversationControl) -> str:
    key = control.key
    return " ".join(filter(None, (key.channel, f"chat {key.chat}", key.topic)))


def _view(control: ConversationControl, summary: str) -> dict[str, Any]:
    key = control.key
    return {
        "channel": key.channel,
        "workspace": key.workspace,
        "chat": key.chat,
        "topic": key.topic,
        "thread_id": control.thread_id,
        "by": control.taken_over_by,
        "since": iso_time(control.taken_over_at),
        "summary": summary,
    }
