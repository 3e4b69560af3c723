"""Converts buttons to Slack `actions` blocks, and `block_actions` payloads to button presses. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from bots.common.events import IgnoredEvent
from bots.slack.payload import (
    SlackIdentity,
    as_list,
    as_mapping,
    as_str,
    is_private,
    workspace_of,
)
from bus.characters import clean, clean_outbound
from bus.messages import Button, ButtonPress, ConversationKey, ReplyTarget, Sender

MAX_LABEL = 75
"""Maximum length of a button's label, characters (docs.slack.dev/reference/block-kit/block-elements/button-element)."""

MAX_ELEMENTS = 25
"""Maximum number of elements of one `actions` block."""

_PREFIX = "parley."
"""Prefix of the `action_id` of our buttons. The app's other blocks do not have it."""


def action_blocks(buttons: Sequence[Button]) -> tuple[dict[str, Any], ...]:
    """Return blocks with the buttons, 25 in each.

    >>> action_blocks([Button(label="Stop", token="stop:1:0", style="danger")])[0]["elements"][0]["value"]
    'stop:1:0'
    """
    elements = [_element(number, button) for number, button in enumerate(buttons)]
    return tuple(
        {"type": "actions", "elements": elements[start : start + MAX_ELEMENTS]}
        for start in range(0, len(elements), MAX_ELEMENTS)
    )


def _element(number: int, button: Button) -> dict[str, Any]:
    label = clean_outbound(button.label).strip() or "…"
    short = label if len(label) <= MAX_LABEL else f"{label[: MAX_LABEL - 1]}…"
    style = {} if button.style == "plain" else {"style": button.style}
    return {
        "type": "button",
        # Without `emoji`, Slack shows ":x:" in a label literally.
        "text": {"type": "plain_text", "text": short, "emoji": False},
        "action_id": f"{_PREFIX}{number}",
        "value": button.token,
        **style,
    }


def parse_button_press(body: Mapping[str, Any], me: SlackIdentity) -> ButtonPress | IgnoredEvent:
    """Convert a `block_actions` payload. Ignores buttons that are not ours."""
    action = as_mapping(next(iter(as_list(body.get("actions"))), None))
    if not as_str(action.get("action_id")).startswith(_PREFIX):
        return IgnoredEvent("a press of a button that is not ours")
    user, container = as_mapping(body.get("user")), as_mapping(body.get("container"))
    message = as_mapping(body.get("message"))
    chat = as_str(as_mapping(body.get("channel")).get("id")) or as_str(container.get("channel_id"))
    ts = as_str(message.get("ts")) or as_str(container.get("message_ts"))
    presser, token = as_str(user.get("id")), as_str(action.get("value"))
    if not (chat and ts and presser and token):
        return IgnoredEvent("a press without channel, message, user or value")
    thread = as_str(message.get("thread_ts")) or as_str(container.get("thread_ts"))
    private = is_private(chat)
    root = thread or ts
    once = as_str(body.get("trigger_id")) or f"{ts}:{as_str(action.get('action_ts'))}:{presser}"
    return ButtonPress(
        event_id=f"press:{once}",
        key=ConversationKey(
            channel=me.channel,
            workspace=workspace_of(body, me),
            chat=chat,
            topic="" if private else root,
        ),
        reply_target=ReplyTarget(
            chat=chat,
            thread=thread if private else root,
            response_url=as_str(body.get("response_url")),
            user=me.recipient(presser),
        ),
        message_id=ts,
        token=token,
        sender=Sender(
            user_id=presser,
            name=clean(as_str(user.get("name")) or as_str(user.get("username"))),
        ),
        is_private=private,
    )
