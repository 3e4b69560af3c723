"""Replies to calls of Feishu's API: cards that answer a message and grow, files, and signs."""

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from bots.feishu import cards
from bots.feishu.api import Api, Content, Sent
from bots.feishu.cardkit import Made
from bots.feishu.cards import Card, Foot
from bots.feishu.chats import Chats
from bots.feishu.entities import Entities
from bots.feishu.errors import SAME_ANYWHERE, FeishuError
from bots.feishu.files import Uploads
from bots.feishu.format import MAX_BYTES, fits, render
from bots.feishu.streams import Streams
from bots.text.codefile import CodeFile, code_file
from bots.text.split import split
from bus.messages import Button, MessageId, ReplyTarget
from bus.platform import OutgoingFile

_log: Final = logging.getLogger(__name__)

_WORKING: Final = "OK"
_DONE: Final = "DONE"
_FAILED: Final = "CrossMark"
_MAX_SIGNS: Final = 1000
"""Working signs remembered so that they can be taken away; the oldest are left standing."""

_UUID_CHARS: Final = 40

_FENCE_CHARS: Final = 100
_FRAME_CHARS: Final = MAX_BYTES // 4
"""Code with so many characters fits into a card, whatever they are: none takes more than 4 bytes as it is sent."""


def uuid_of(place: ReplyTarget, key: str) -> str:
    """Return the `uuid` (at most 50 characters) that makes a send happen once.

    The place is part of it: a fresh database counts its foot from the start again, and the platform
    would take the first answers for repetitions of earlier ones.

    >>> len(uuid_of(ReplyTarget(chat="oc_1", reply_to="om_1"), "turn/7/0"))
    40
    """
    parts = "\0".join((place.chat, place.reply_to, key))
    return hashlib.sha256(parts.encode("utf-8", "replace")).hexdigest()[:_UUID_CHARS]


def code_too_long(markdown: str) -> CodeFile | None:
    """Return the code if a piece of an answer is nothing but code that no card holds."""
    return code_file(markdown) if _is_long_code(markdown) else None


def _is_long_code(markdown: str) -> bool:
    begins = markdown.lstrip().startswith(("```", "~~~"))
    return begins and len(markdown) > _FRAME_CHARS and not fits(markdown)


def _newest(markdown: str) -> str:
    """Return what a card shows of code that grew too long for it: its newest lines."""
    if not _is_long_code(markdown):
        return markdown
    fence, _, code = markdown.lstrip().partition("\n")
    newest = code[-_FRAME_CHARS + _FENCE_CHARS :].partition("\n")[2]
    return f"{fence[:_FENCE_CHARS]}\n{newest}"


class Outbound:
    """Everything the bot says. Every method raises `FeishuError`.

    Args:
        api: Messages.
        uploads: Files.
        entities: Which messages are cards that stream.
        streams: Those cards.
        chats: Which chats are private: that travels with the buttons.
    """

    def __init__(
        self, api: Api, uploads: Uploads, *, entities: Entities, streams: Streams, chats: Chats
    ) -> None:
        self._api = api
        self._uploads = uploads
        self._entities = entities
        self._streams = streams
        self._chats = chats
        self._signs: dict[str, str] = {}

    async def send(
        self, place: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        """Send a finished answer; code that no card holds as a file."""
        code = code_too_long(markdown)
        if code is not None:
            return await self._send_code(place, markdown, code, key)
        foot = self._foot(place, buttons)
        card = cards.answer(render(markdown), foot)
        plain = cards.plain(markdown, final=True, foot=foot)
        return MessageId((await self._send_card(place, card, plain, key)).id)

    async def open_card(
        self, place: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        """Send a card that shows that work began."""
        foot, text = self._foot(place, buttons), render(markdown, partial=True)
        made = await self._entities.make(uuid_of(place, key), cards.streaming(text, foot))
        refusal: FeishuError | None = None
        if made is not None:
            try:
                return await self._send_entity(place, made, foot, key)
            except FeishuError as error:
                if error.retryable:
                    raise
                refusal = error
        card, plain = cards.working(text, foot), cards.plain(markdown, final=False, foot=foot)
        sent = await self._send_card(place, card, plain, key)
        if refusal is not None:  # what was refused with an entity is taken without: that is why
            self._entities.give_up(refusal)
        return MessageId(sent.id)

    async def patch(
        self,
        place: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        final: bool,
        buttons: Sequence[Button] = (),
    ) -> None:
        """Replace what a card says and what can be pressed below it."""
        if not final:
            await self._put(place, message, _newest(markdown), final=False, buttons=buttons)
            return
        code = code_too_long(markdown)
        shown = f"📎 {code.name}" if code is not None else markdown
        await self._put(place, message, shown, final=True, buttons=buttons)
        if code is not None:
            await self._send_code(place, markdown, code, f"code {message}")

    async def edit(
        self,
        place: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        buttons: Sequence[Button] = (),
    ) -> None:
        """Change an answer. It stays as it is where that cannot be."""
        foot = self._foot(place, buttons)
        plain_id, card_id = self._entities.apart(message)
        if card_id:
            await self._finish(card_id, markdown, foot)
        else:
            await self._finish_card(plain_id, markdown, foot)

    async def send_file(self, place: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        """Upload a file and send it as a picture or a file."""
        upload = await self._uploads.upload(file)
        content = Content(type=upload.type, value=upload.value, uuid=uuid_of(place, key))
        return MessageId((await self._deliver(place, content)).id)

    async def working(self, place: ReplyTarget) -> None:
        """React to the message that is being worked on."""
        if place.reply_to and place.reply_to not in self._signs:
            self._signs[place.reply_to] = await self._api.react(place.reply_to, _WORKING)
            while len(self._signs) > _MAX_SIGNS:
                del self._signs[next(iter(self._signs))]

    async def finished(self, place: ReplyTarget, *, ok: bool) -> None:
        """React with the outcome and take the working sign away."""
        if not place.reply_to:
            return
        sign = self._signs.pop(place.reply_to, "")
        await self._api.react(place.reply_to, _DONE if ok else _FAILED)
        if sign:
            await self._api.unreact(place.reply_to, sign)

    async def _put(
        self,
        place: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        final: bool,
        buttons: Sequence[Button],
    ) -> None:
        foot = self._foot(place, buttons)
        plain_id, card_id = self._entities.apart(message)
        if card_id and final:
            await self._require(plain_id)
            await self._finish_entity(plain_id, card_id, markdown, foot)
        elif card_id:
            await self._grow_entity(card_id, markdown, foot)
        elif final:
            await self._finish_otherwise(plain_id, markdown, foot)
        else:
            await self._patch(plain_id, markdown, foot, final=False)

    async def _send_entity(self, place: ReplyTarget, made: Made, foot: Foot, key: str) -> MessageId:
        value = {"type": "card", "data": {"card_id": made.id}}
        content = Content(type="interactive", value=value, uuid=uuid_of(place, key))
        message = await self._entities.sent(await self._deliver(place, content), made)
        self._streams.begun(made.id, foot)
        return message

    async def _grow_entity(self, card_id: str, markdown: str, foot: Foot) -> None:
        try:
            await self._streams.grow(card_id, render(markdown, partial=True), foot)
        except FeishuError as error:
            if error.bad_card:
                _log.info("a growing card was refused, the next one may pass: %s", error)
                return
            if not error.retryable and error.code not in SAME_ANYWHERE:
                self._entities.give_up(error)
            raise

    async def _finish_entity(self, message: str, card_id: str, markdown: str, foot: Foot) -> None:
        """Show the answer on its card; where that cannot be, take the card away and say that it is gone."""
        try:
            await self._finish(card_id, markdown, foot)
        except FeishuError as error:
            if error.retryable or error.target_gone or error.code in SAME_ANYWHERE:
                raise
            _log.warning("a card entity takes no more, trying its message: %s", error)
            self._entities.give_up(error)
            await self._finish_otherwise(message, markdown, foot)

    async def _finish(self, card_id: str, markdown: str, foot: Foot) -> None:
        try:
            await self._streams.finish(card_id, cards.answer(render(markdown), foot))
        except FeishuError as error:
            if not error.bad_card:
                raise
            _log.warning("a card was refused, showing it without markup: %s", error)
            await self._streams.finish(card_id, cards.plain(markdown, final=True, foot=foot))

    async def _finish_otherwise(self, message: str, markdown: str, foot: Foot) -> None:
        """Try the message itself. If it is refused too, take it away and say that it is gone: nothing is lost."""
        try:
            await self._finish_card(message, markdown, foot)
        except FeishuError as error:
            if error.retryable or error.target_gone or error.code in SAME_ANYWHERE:
                raise
            _log.warning("a card cannot be finished, its answer is sent anew: %s", error)
            with suppress(FeishuError):
                await self._api.withdraw(message)
            error.target_gone = True
            raise

    async def _finish_card(self, message: str, markdown: str, foot: Foot) -> None:
        """Replace a card that was sent whole. One that is an entity after all is known by being refused."""
        try:
            await self._patch(message, markdown, foot, final=True)
        except FeishuError as error:
            if error.retryable or error.target_gone or error.code in SAME_ANYWHERE:
                raise
            card_id = await self._entities.find(message)
            if not card_id:
                raise
            await self._finish(card_id, markdown, foot)

    async def _require(self, message: str) -> None:
        """Raise an error with `target_gone` if a message was withdrawn: its card would still take the answer."""
        try:
            gone = await self._api.is_gone(message)
        except FeishuError as error:
            _log.info("whether a card still stands is not told: %s", error)
            return
        if gone:
            raise FeishuError("the card was withdrawn", target_gone=True)

    async def _patch(self, message: str, markdown: str, foot: Foot, *, final: bool) -> None:
        text = render(markdown, partial=not final)
        card = cards.answer(text, foot) if final else cards.working(text, foot)
        try:
            await self._api.patch(message, card, is_frame=not final)
        except FeishuError as error:
            if not error.bad_card:
                raise
            _log.warning("a card was refused, sending it without markup: %s", error)
            await self._api.patch(message, cards.plain(markdown, final=final, foot=foot))

    def _foot(self, place: ReplyTarget, buttons: Sequence[Button]) -> Foot:
        private = self._chats.is_private(place.chat)
        return Foot(buttons=buttons, private=private, note=place.texts.working)

    async def _send_code(
        self, place: ReplyTarget, markdown: str, code: CodeFile, key: str
    ) -> MessageId:
        """Send code as a file; in several cards where files are refused."""
        try:
            upload = await self._uploads.upload_text(code.name, code.text)
        except FeishuError as error:
            if error.retryable:
                raise
            _log.warning("long code is sent in cards, its file was refused: %s", error)
            pieces = enumerate(split(markdown, fits))
            sent = [await self.send(place, piece, key=f"{key}/{n}") for n, piece in pieces]
            return sent[0]
        content = Content(type=upload.type, value=upload.value, uuid=uuid_of(place, key))
        return MessageId((await self._deliver(place, content)).id)

    async def _send_card(self, place: ReplyTarget, card: Card, plain: Card, key: str) -> Sent:
        """Send a card, or the same words without markup if the platform finds fault with the card."""
        uuid = uuid_of(place, key)
        try:
            return await self._deliver(place, Content(type="interactive", value=card, uuid=uuid))
        except FeishuError as error:
            if not error.bad_card:
                raise
            _log.warning("a card was refused, sending it without markup: %s", error)
        return await self._deliver(place, Content(type="interactive", value=plain, uuid=uuid))

    async def _deliver(self, place: ReplyTarget, content: Content) -> Sent:
        """Answer the user's message; if there is none any more, speak to the chat."""
        if place.reply_to:
            try:
                return await self._api.reply(place.reply_to, content, in_thread=bool(place.thread))
            except FeishuError as error:
                if not error.target_gone:
                    raise
                _log.info("the message to answer is gone, writing to the chat: %s", error)
        return await self._api.create(place.chat, content)
