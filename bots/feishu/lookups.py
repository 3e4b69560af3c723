"""Lookups that complete a message event: names, group title, quoted and forwarded messages, cards."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from bots.feishu.api import FeishuApi
from bots.feishu.content import (
    MERGE_FORWARD,
    UnsupportedContent,
    is_withheld,
    message_type,
    read_message,
)
from bots.feishu.directory import FeishuDirectory
from bots.feishu.errors import FeishuError
from bots.feishu.inbound import FeishuContext
from bots.feishu.json_node import JsonNode
from bus.bounded import BoundedDict
from bus.messages import InboundMessage

log = logging.getLogger(__name__)

_KEPT = 2_000


@dataclass(slots=True)
class _Pages:
    """The API responses that arrived in time, for the message and for the message that it replies to."""

    own: Sequence[JsonNode] = ()
    parent: Sequence[JsonNode] = ()


class FeishuLookups:
    """Completes message events with the responses that arrive within a time limit.

    Every message in a topic replies to the topic's first message. That first message is therefore quoted only once,
    with the first message that the bot gets, and again after a command, because `/new` begins another thread.

    Args:
        api: Messages.
        directory: Names.
        timeout_s: Time limit of all lookups for one message, seconds. An event must be acknowledged within 3 s.
    """

    def __init__(self, api: FeishuApi, directory: FeishuDirectory, *, timeout_s: float) -> None:
        self._api = api
        self._directory = directory
        self._timeout_s = timeout_s
        self._quoted_topics = BoundedDict[tuple[str, str], None](_KEPT)

    @property
    def known(self) -> FeishuContext:
        """The names that need no lookup."""
        return FeishuContext(names=self._directory.names)

    def learn(self, event: JsonNode) -> None:
        """Remember the names of mentioned people."""
        self._directory.learn_from([event])

    async def find(self, message: InboundMessage, event: JsonNode) -> FeishuContext:
        """Look up the data that a message's event does not contain. Raises nothing.

        Args:
            message: The message as parsed without lookups.
            event: `event.message` of its event.
        """
        if message.text.startswith("/"):
            return self.known
        replied = "" if self._is_topic_quoted(message, event) else event.text("parent_id")
        pages = _Pages()
        with anyio.move_on_after(self._timeout_s):
            async with anyio.create_task_group() as tasks:
                if self._needs_page(message, event):
                    tasks.start_soon(self._read_own, message.message_id, pages)
                if replied:
                    tasks.start_soon(self._read_parent, replied, pages)
                if not message.is_private:
                    tasks.start_soon(self._directory.look_up, [message.key.chat])
            await self._look_up_names(message, event, pages)
        return FeishuContext(
            names=self._directory.names,
            page=pages.own,
            parent=pages.parent if replied else None,
            chat_title=""
            if message.is_private
            else self._directory.names.get(message.key.chat, ""),
        )

    def remember(self, message: InboundMessage, event: JsonNode, context: FeishuContext) -> None:
        """Record that the conversation of an accepted message now contains the first message of its topic."""
        topic = (message.key.chat, message.reply_target.thread)
        if not topic[1]:
            return
        if message.text.startswith("/"):
            self._quoted_topics.pop(topic, None)
        elif context.parent or not event.text("parent_id"):
            self._quoted_topics[topic] = None

    def _is_topic_quoted(self, message: InboundMessage, event: JsonNode) -> bool:
        topic = (message.key.chat, message.reply_target.thread)
        is_about_topic = event.text("parent_id") == event.text("root_id")
        return is_about_topic and topic in self._quoted_topics

    def _needs_page(self, message: InboundMessage, event: JsonNode) -> bool:
        is_whole = message_type(event) != MERGE_FORWARD and not is_withheld(event)
        return not is_whole or self._directory.lacks(message.sender.user_id)

    async def _read_own(self, message: str, pages: _Pages) -> None:
        pages.own = await self._read(message)

    async def _read_parent(self, message: str, pages: _Pages) -> None:
        pages.parent = await self._read(message)

    async def _read(self, message: str) -> Sequence[JsonNode]:
        try:
            items = await self._api.get_messages(message)
        except FeishuError as error:
            log.info("a message cannot be read: %s", error)
            return ()
        self._directory.learn_from(items)
        return items

    async def _look_up_names(self, message: InboundMessage, event: JsonNode, pages: _Pages) -> None:
        """Look up the sender's name, and names that the messages do not contain."""
        names = self._directory.names
        keys = [message.sender.user_id]
        own = pages.own[0] if pages.own and is_withheld(event) else event
        for shown, held in (
            (own, pages.own[1:]),
            *((one, pages.parent[1:]) for one in pages.parent[:1]),
        ):
            try:
                keys += read_message(shown, names=names, held=held).unnamed
            except UnsupportedContent as error:
                log.debug("no names to look up: %s", error)
        keys += [item["sender"].text("id") for item in pages.parent[:1]]
        group = "" if message.is_private else message.key.chat
        await self._directory.look_up(keys, group)
