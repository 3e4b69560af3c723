"""Card callbacks as button presses, and responses as toasts. Pure."""

from collections.abc import Mapping

from bots.feishu.cards import PRIVATE_FIELD, TOKEN_FIELD
from bots.feishu.events import sender_kind
from bots.feishu.json_node import JsonNode
from bus.messages import ButtonPress, ConversationKey, PressResponse, ReplyTarget, Sender

CARD_ACTION = "card.action.trigger"


def parse_button_press(envelope: JsonNode, channel: str) -> ButtonPress | None:
    """Return the press that a callback reports; None if the button is not ours.

    Callbacks of the old kind have no header, and their fields are at the top level.
    """
    header, event = envelope["header"], envelope["event"]
    if not header.text("event_type"):
        return _press(
            envelope, envelope, event_id=envelope.text("token"), header=envelope, channel=channel
        )
    return _press(
        event, event["context"], event_id=header.text("event_id"), header=header, channel=channel
    )


def _press(
    event: JsonNode, context: JsonNode, *, event_id: str, header: JsonNode, channel: str
) -> ButtonPress | None:
    value, operator = event["action"]["value"], event["operator"]
    tenant = operator.text("tenant_key") or event.text("tenant_key")
    token, user = value.text(TOKEN_FIELD), operator.text("open_id") or event.text("open_id")
    chat, message = context.text("open_chat_id"), context.text("open_message_id")
    workspace = header.text("tenant_key") or operator.text("tenant_key")
    if not (token and user and chat and message):
        return None
    return ButtonPress(
        event_id=event_id or f"{message}:{token}:{user}",
        key=ConversationKey(
            channel=channel,
            workspace=workspace,
            chat=chat,
            topic="",
        ),
        reply_target=ReplyTarget(chat=chat, reply_to=message),
        message_id=message,
        token=token,
        sender=Sender(user_id=user, kind=sender_kind(workspace, tenant)),
        is_private=value.flag(PRIVATE_FIELD),
    )


def toast(answer: PressResponse) -> Mapping[str, object]:
    """Return the response that the platform shows to the presser.

    >>> toast(PressResponse(text="Stopped."))
    {'toast': {'type': 'info', 'content': 'Stopped.'}}
    """
    if not answer.text:
        return {}
    return {"toast": {"type": "warning" if answer.urgent else "info", "content": answer.text}}
