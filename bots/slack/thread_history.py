"""Quotes the thread of a message: the thread's first message, and earlier replies.

Events contain neither of these. A conversation gets them once.
"""

import logging
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import anyio

from bots.slack.api import SlackApi
from bots.slack.connection import SlackTimeouts
from bots.slack.errors import SlackError
from bots.slack.inbound import USER_SUBTYPES
from bots.slack.mentions import OWN_NAME
from bots.slack.message_reader import author_of, quote_message, read_message
from bots.slack.payload import SlackIdentity, as_list, as_mapping, as_str, parse_timestamp
from bus.bounded import BoundedDict
from bus.commands import parse_command, recognize_command
from bus.messages import ConversationKey, InboundMessage
from bus.platform import Intake

log = logging.getLogger(__name__)

EARLIER_HEADING = "[Earlier in this thread]"
"""Heading of a thread's earlier messages."""

CUT_NOTE = "[Slack did not return the rest of this thread]"

MESSAGES = 30
"""Maximum number of quoted messages: the thread's first message and the newest ones."""

MESSAGE_CHARS = 2_000
"""Maximum length of a quoted reply, characters. The first message is quoted whole, because it is the topic."""

FILES = 5
"""Maximum number of files to pass on. The newest are kept."""

_PAGE = 200
_QUOTED_SUBTYPES = USER_SUBTYPES | {"bot_message"}
_NEVER_QUOTED = "assistant_app_thread"
"""Subtype of the first message that Slack itself adds to an agent's thread. It has no content."""

_THREADS = 10_000


class SlackThreadHistory:
    """Adds the beginning of a thread to the message that begins a conversation there.

    In a channel, a conversation that begins inside a thread gets the first message and the newest replies. After /new,
    it gets the first message, unless that was a question to the bot, and other people's later messages. A private chat
    is one conversation across all threads. When it moves to another thread, it gets that thread's first message.

    Args:
        api: Reads threads (conversations.replies, which needs the same scopes as channel messages).
        timeouts: Only `thread_s` is used.
    """

    def __init__(self, api: SlackApi, timeouts: SlackTimeouts) -> None:
        self._api = api
        self._timeouts = timeouts
        self._handed_over = BoundedDict[ConversationKey, str](_THREADS)
        self._unread = BoundedDict[ConversationKey, str](_THREADS)
        self._read_for = BoundedDict[ConversationKey, str](_THREADS)

    async def add(
        self, message: InboundMessage, intake: Intake, *, begins: bool, give_up_at: float
    ) -> InboundMessage:
        """Return a message with its thread's earlier messages.

        Returns the message unchanged if those are unavailable or already in the conversation.

        Args:
            message: A person's message, whether or not its author may use the bot.
            intake: Knows which conversations exist.
            begins: Whether the message may begin a conversation in a channel without a mention.
            give_up_at: When the event must be acknowledged.

        Raises:
            StoreError: The database cannot say whether there is a conversation.
        """
        thread = message.reply_target.thread
        if thread in {"", message.message_id} or _is_command(message):
            return message
        if self._read_for.get(message.key) == message.message_id:
            return message  # Slack sends two events for a mention.
        if not await self._is_missing(message, intake, begins=begins):
            return message
        self._read_for[message.key] = message.message_id
        thread_so_far = _Thread(message, self._api.known_identity)
        is_whole = False
        with anyio.move_on_after(min(self._timeouts.thread_s, give_up_at - anyio.current_time())):
            is_whole = await self._read(message, thread_so_far)
        if not (is_whole or thread_so_far.is_begun):
            self._unread[message.key] = thread
            return message
        self._unread.pop(message.key, None)
        self._handed_over[message.key] = thread
        return thread_so_far.add_to(message, is_whole=is_whole)

    def note_accepted(self, message: InboundMessage) -> None:
        """Remember that a conversation now has a message and, in a private chat, its current thread."""
        command = parse_command(message.text)
        is_renewed = command is not None and command.name == "new"
        if is_renewed and not self._api.known_identity.is_agent:
            self._handed_over.pop(message.key, None)
        elif message.is_private and (is_renewed or command is None):
            self._handed_over[message.key] = message.reply_target.thread

    def note_refused(self, message: InboundMessage) -> None:
        """Record that a message was not accepted, so that its conversation still lacks the quotations."""
        for state in (self._handed_over, self._read_for):
            state.pop(message.key, None)

    async def _is_missing(self, message: InboundMessage, intake: Intake, *, begins: bool) -> bool:
        """Return whether the conversation lacks the beginning of the thread, as far as this process knows."""
        thread = message.reply_target.thread
        is_handed_over = self._handed_over.get(message.key) == thread
        if not (message.is_private or message.is_addressed or begins):
            return False
        if self._unread.get(message.key) == thread:
            return True
        if message.is_private:
            # The conversation continues in many threads. In an agent's chat, each message begins a thread, so people
            # did not choose the thread.
            is_agent = self._api.known_identity.is_agent
            goes_on = is_handed_over and (is_agent or await intake.has_conversation(message.key))
        else:
            goes_on = is_handed_over or await intake.has_conversation(message.key)
        return not goes_on

    async def _read(self, message: InboundMessage, thread: "_Thread") -> bool:
        """Read the messages before a message, page by page. Return whether all pages could be read."""
        window: dict[str, Any] = {
            "channel": message.key.chat,
            "ts": message.reply_target.thread,
            "latest": message.message_id,
            "limit": 1 if message.is_private else _PAGE,
        }
        while True:
            try:
                page = await self._api.call(lambda web: web.conversations_replies(**window))
            except SlackError as error:
                log.warning("%s: a thread cannot be read: %s", self._api.channel, error)
                return False
            thread.read(map(as_mapping, as_list(page.get("messages"))))
            window["cursor"] = as_str(as_mapping(page.get("response_metadata")).get("next_cursor"))
            if message.is_private or not window["cursor"]:
                return True


class _Thread:
    """The messages before a message in its thread: the first one, and the newest ones."""

    def __init__(self, message: InboundMessage, me: SlackIdentity) -> None:
        self._root = message.reply_target.thread
        self._before = parse_timestamp(message.message_id) or math.inf
        self._me = me
        self._first: list[Mapping[str, Any]] = []
        self._newest = deque[Mapping[str, Any]](maxlen=MESSAGES - 1)
        self._is_renewed = False

    @property
    def is_begun(self) -> bool:
        """Whether anything was read."""
        return bool(self._first or self._newest)

    def read(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Add a page. Each page begins with the thread's first message."""
        for one in messages:
            ts, subtype = as_str(one.get("ts")), as_str(one.get("subtype"))
            if (parse_timestamp(ts) or math.inf) >= self._before:
                continue
            if ts == self._root:
                self._first = [one] if subtype != _NEVER_QUOTED else []
            elif subtype in _QUOTED_SUBTYPES:
                self._take(one)

    def _take(self, reply: Mapping[str, Any]) -> None:
        """Add a reply. A /new drops earlier replies. Commands are omitted."""
        content = read_message(reply, self._me)
        command = parse_command(content.text)
        if command is not None and command.name == "new":
            self._newest.clear()
            self._is_renewed = True
        elif command is None or not content.mentions_bot:
            self._newest.append(reply)

    def add_to(self, message: InboundMessage, *, is_whole: bool) -> InboundMessage:
        """Return the message with the read messages as a quotation."""
        first, newest = self._first, list(self._newest)
        # After /new, leave out the question that began the previous conversation, and the bot's messages.
        if self._is_renewed:
            first = [one for one in first if not read_message(one, self._me).mentions_bot]
            newest = [one for one in newest if author_of(one, self._me) != OWN_NAME]
        said = [*first, *newest]
        quoted = [
            *(quote_message(one, self._me) for one in first),
            *(quote_message(one, self._me, limit=MESSAGE_CHARS) for one in newest),
        ]
        note = [] if is_whole else [CUT_NOTE]
        earlier = "\n".join([EARLIER_HEADING, *filter(None, quoted), *note]) if any(quoted) else ""
        files = [file for one in said for file in read_message(one, self._me).files]
        return replace(
            message,
            quoted="\n\n".join(filter(None, (message.quoted, earlier))),
            attachments=(*message.attachments, *files[-FILES:]),
        )


def _is_command(message: InboundMessage) -> bool:
    return recognize_command(message.text) is not None
