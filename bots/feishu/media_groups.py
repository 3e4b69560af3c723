"""Media groups: recognizes files that were sent together, which Feishu delivers as separate messages."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import anyio

from bus.bounded import BoundedDict
from bus.messages import InboundMessage

GROUP_WINDOW_S: Final = 1.0
"""Messages are together that a person sent no further apart than this: a client sends files within some 0.2 s."""

_KEPT: Final = 1000


@dataclass(frozen=True, slots=True)
class _LastMessage:
    """The last message of a media group: its name, and when it was sent by the platform's clock or came in."""

    name: str
    sent_at: float | None
    came_at: float


class FeishuMediaGroups:
    """Names the media groups; the bus makes one message of each.

    A file by itself may be the first of several. Words right after files belong to them; a command never does.
    """

    def __init__(self, clock: Callable[[], float] = anyio.current_time) -> None:
        self._clock = clock
        self._last = BoundedDict[tuple[str, str, str], _LastMessage](_KEPT)

    def assign_album(self, message: InboundMessage) -> InboundMessage:
        """Return the message with the name of its media group."""
        person = (message.key.chat, message.reply_target.thread, message.sender.user_id)
        is_file = bool(message.attachments) and not message.text
        before = self._last.get(person)
        now = _LastMessage(message.message_id, message.sent_at, self._clock())
        if before is not None and _is_same_group(before, now) and not message.text.startswith("/"):
            now = replace(now, name=before.name)
        elif not is_file:
            now = replace(now, name="")
        if is_file and now.name:
            self._last[person] = now
        else:
            self._last.pop(person, None)
        return replace(message, album=now.name) if now.name else message


def _is_same_group(first: _LastMessage, second: _LastMessage) -> bool:
    if first.sent_at is not None and second.sent_at is not None:
        return abs(second.sent_at - first.sent_at) <= GROUP_WINDOW_S
    return second.came_at - first.came_at <= GROUP_WINDOW_S
