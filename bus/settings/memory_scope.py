"""Who speaks, and whose memory a conversation has: the speaker's in private, the room's in a group. Pure."""

from bus.messages import InboundMessage


def global_user_id(inbound: InboundMessage) -> str:
    """Return the sender's name across platforms: `{channel}:{workspace}:{platform user id}`."""
    key = inbound.key
    return ":".join((key.channel, _part(key.workspace), _part(inbound.sender.user_id)))


def memory_scope(inbound: InboundMessage) -> str:
    """Return the scope of a message's memory; the agent takes it as it is.

    All topics of a room share one, also after the room's chat got another id, and so do all private chats of a
    person with the bot.
    """
    key = inbound.key
    if inbound.private:
        return f"person:{global_user_id(inbound)}"
    return ":".join(
        ("room", key.channel, _part(key.workspace), _part(inbound.original_chat or key.chat))
    )


def _part(name: str) -> str:
    """Return an id in which the separator is told from one that belongs to it.

    >>> _part("a:b%")
    'a%3Ab%25'
    """
    return name.replace("%", "%25").replace(":", "%3A")
