"""Replies to calls of Feishu's API: cards that answer a message and grow, files, and signs."""

import hashlib
import logging
from typing import Final

from bots.feishu import cards
from bots.feishu.api import Api, Content
from bots.feishu.cards import Card
from bots.feishu.errors import FeishuError
from bots.feishu.files import Uploads
from bots.feishu.format import render
from bus.messages import MessageId, Place
from bus.ports import OutgoingFile

_log: Final = logging.getLogger(__name__)

_WORKING: Final = "OK"
_DONE: Final = "DONE"
_FAILED: Final = "CrossMark"
_MAX_SIGNS: Final = 1000
"""Working signs remembered so that they can be taken away; the oldest are left standing."""

_UUID_CHARS: Final = 40


def uuid_of(place: Place, key: str) -> str:
    """Return the `uuid` (at most 50 characters) that makes a send happen once.

    The place is part of it: a fresh database counts its keys from the start again, and the platform
    would take the first answers for repetitions of earlier ones.

    >>> len(uuid_of(Place(chat="oc_1", reply_to="om_1"), "turn/7/0"))
    40
    """
    parts = "\0".join((place.chat, place.reply_to, key))
    return hashlib.sha256(parts.encode("utf-8", "replace")).hexdigest()[:_UUID_CHARS]


class Outbound:
    """Everything the bot says. Every method raises `FeishuError`."""

    def __init__(self, api: Api, uploads: Uploads) -> None:
        self._api = api
        self._uploads = uploads
        self._signs: dict[str, str] = {}

    async def send(self, place: Place, markdown: str, *, key: str) -> MessageId:
        """Send a finished answer."""
        return await self._send_card(
            place, cards.answer(render(markdown)), cards.plain(markdown, final=True), key
        )

    async def open_card(self, place: Place, markdown: str, *, key: str) -> MessageId:
        """Send a card that shows that work began."""
        card = cards.working(render(markdown, partial=True))
        return await self._send_card(place, card, cards.plain(markdown, final=False), key)

    async def patch(self, message: MessageId, markdown: str, *, final: bool) -> None:
        """Replace the card of `message`."""
        text = render(markdown, partial=not final)
        card = cards.answer(text) if final else cards.working(text)
        try:
            await self._api.patch(message, card)
        except FeishuError as error:
            if not error.bad_card:
                raise
            _log.warning("a card was refused, sending it without markup: %s", error)
            await self._api.patch(message, cards.plain(markdown, final=final))

    async def send_file(self, place: Place, file: OutgoingFile, *, key: str) -> MessageId:
        """Upload a file and send it as a picture or a file."""
        upload = await self._uploads.upload(file)
        return await self._deliver(
            place, Content(type=upload.type, value=upload.value, uuid=uuid_of(place, key))
        )

    async def working(self, place: Place) -> None:
        """React to the message that is being worked on."""
        if place.reply_to and place.reply_to not in self._signs:
            self._signs[place.reply_to] = await self._api.react(place.reply_to, _WORKING)
            while len(self._signs) > _MAX_SIGNS:
                del self._signs[next(iter(self._signs))]

    async def finished(self, place: Place, *, ok: bool) -> None:
        """React with the outcome and take the working sign away."""
        if not place.reply_to:
            return
        sign = self._signs.pop(place.reply_to, "")
        await self._api.react(place.reply_to, _DONE if ok else _FAILED)
        if sign:
            await self._api.unreact(place.reply_to, sign)

    async def _send_card(self, place: Place, card: Card, plain: Card, key: str) -> MessageId:
        """Send a card, or the same words without markup if the platform finds fault with the card."""
        uuid = uuid_of(place, key)
        try:
            return await self._deliver(place, Content(type="interactive", value=card, uuid=uuid))
        except FeishuError as error:
            if not error.bad_card:
                raise
            _log.warning("a card was refused, sending it without markup: %s", error)
        return await self._deliver(place, Content(type="interactive", value=plain, uuid=uuid))

    async def _deliver(self, place: Place, content: Content) -> MessageId:
        """Answer the user's message; if there is none any more, speak to the chat."""
        if place.reply_to:
            try:
                sent = await self._api.reply(place.reply_to, content, in_thread=bool(place.thread))
                return MessageId(sent)
            except FeishuError as error:
                if not error.target_gone:
                    raise
                _log.info("the message to answer is gone, writing to the chat: %s", error)
        return MessageId(await self._api.create(place.chat, content))
