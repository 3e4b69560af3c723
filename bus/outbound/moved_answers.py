"""Where an answer goes if the place of its question is gone.

It goes to the chat itself, without the topic or thread. If that is gone, it goes to the person who asked, in private.
Otherwise the row fails, and the administrator sees it. A short line in the moved answer explains the move.
"""

from dataclasses import replace

from bus.errors import DeliveryError
from bus.messages import MovedTo, OutboundFile, OutboundMessage, OutboundText, ReplyTarget
from bus.platform import Adapter, SupportsPrivateChats


def can_move(key: str, body: OutboundMessage) -> bool:
    """Return whether a row is part of the answer to a message: then its key begins with the message's row ID.

    >>> can_move("notification:slack:7:0", OutboundText(channel="c", reply_target=ReplyTarget(chat="c"), markdown="x"))
    False
    """
    if isinstance(body, OutboundText) and body.provisional:
        return False
    is_answer = key.partition(":")[0].isdigit()
    return is_answer and isinstance(body, OutboundText | OutboundFile)


async def find_place(
    body: OutboundText | OutboundFile, adapter: Adapter, error: DeliveryError
) -> tuple[ReplyTarget, MovedTo] | None:
    """Return where a refused message may go instead, or None.

    Raises:
        DeliveryError: The private chat could not be looked up on the platform.
    """
    target = body.reply_target
    without_thread = replace(target, thread="", reply_to="", thread_root="")
    if (
        error.place_gone == "thread"
        and not body.moved_to
        and not target.response_url  # Only the asker may see it.
        and without_thread != target
    ):
        return without_thread, "chat"
    if body.moved_to == "private" or not target.user:
        return None
    if not isinstance(adapter, SupportsPrivateChats):
        return None
    private = await adapter.private_target(target)
    if private is None or private.chat == target.chat:
        return None
    return private, "private"


def moved_line(target: ReplyTarget, moved_to: MovedTo) -> str:
    """Return the line that says why an answer was moved."""
    texts = target.texts
    return texts.moved_to_private if moved_to == "private" else texts.moved_to_chat
