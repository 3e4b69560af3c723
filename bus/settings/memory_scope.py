"""Memory scopes: a private chat uses its person's memory, and a group has its own. Pure."""

from bus.messages import InboundMessage


def global_user_id(inbound: InboundMessage) -> str:
    """Return the sender's ID across platforms: `{channel}:{workspace}:{platform user id}`."""
    return platform_id(inbound.key.channel, inbound.key.workspace, inbound.sender.user_id)


def global_room_id(inbound: InboundMessage) -> str:
    """Return the chat's ID across platforms: `{channel}:{workspace}:{chat}`, the same after a migration."""
    key = inbound.key
    return platform_id(key.channel, key.workspace, inbound.original_chat or key.chat)


def platform_id(channel: str, workspace: str, name: str) -> str:
    """Return the ID across platforms for a user or chat ID.

    >>> platform_id("slack", "T", "U:1")
    'slack:T:U%3A1'
    """
    return ":".join((channel, _part(workspace), _part(name)))


def memory_scope(inbound: InboundMessage) -> str:
    """Return the scope of a message's memory in the agent's format.

    All topics of a group share one scope, even after the chat was migrated to another ID. All private chats of a person
    with the bot also share one scope.
    """
    return _scope(inbound, is_private=inbound.is_private)


def run_memory_scope(inbound: InboundMessage) -> str:
    """Return the scope of a message's run. In a group, it is the author's scope if only the author sees the answer."""
    is_private = inbound.is_private or bool(inbound.reply_target.response_url)
    return _scope(inbound, is_private=is_private)


def _scope(inbound: InboundMessage, *, is_private: bool) -> str:
    if is_private:
        return f"person:{global_user_id(inbound)}"
    return f"room:{global_room_id(inbound)}"


def _part(name: str) -> str:
    """Return an ID with the separator escaped.

    >>> _part("a:b%")
    'a%3Ab%25'
    """
    return name.replace("%", "%25").replace(":", "%3A")
