"""Feishu messages: sends, updates and edits cards, and sends files."""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from typing_extensions import override

from bots.feishu import cards
from bots.feishu.api import FeishuApi, MessageContent, SentMessage
from bots.feishu.card_entities import CardEntities
from bots.feishu.cardkit import CardEntity
from bots.feishu.cards import Card, CardFooter
from bots.feishu.errors import FeishuError
from bots.feishu.files import FeishuFileUploader
from bots.feishu.format import MAX_BYTES, fits, render
from bots.feishu.private_chats import PrivateChats
from bots.feishu.streaming_cards import StreamingCards
from bots.text.code_file import CodeFile, code_file
from bots.text.split_markdown import split_markdown
from bots.text.worker import process_text
from bus.errors import MessageTooLong
from bus.messages import Button, MessageId, ReplyTarget
from bus.platform import (
    OutgoingFile,
    SupportsButtons,
    SupportsDeletion,
    SupportsEditing,
    SupportsNotes,
    SupportsStreaming,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

_CARD = "interactive"
"""The message type of cards."""

_UUID_CHARS = 40
"""Length of the `uuid` of a send. Feishu accepts 50 characters, and drops repetitions within an hour."""

_MESSAGE_IDS = "om_"
"""Prefix of message IDs. Topic IDs begin with omt_."""

UNKNOWN_TOPIC = (
    "Feishu accepts a message to a topic only as a reply to one of its messages, and none is known"
)

_FENCE_CHARS = 100
_FRAME_CHARS = MAX_BYTES // 4
"""Code of this length always fits into a card, because a sent character takes at most 4 bytes."""


def idempotency_uuid(target: ReplyTarget, key: str) -> str:
    """Return the `uuid` (at most 50 characters) that makes a send idempotent.

    It depends on the target, because keys start over with a new database, and the platform would drop the first answers
    as repetitions.

    >>> len(idempotency_uuid(ReplyTarget(chat="oc_1", reply_to="om_1"), "turn/7/0"))
    40
    """
    parts = "\0".join((target.chat, target.reply_to, key))
    return hashlib.sha256(parts.encode("utf-8", "replace")).hexdigest()[:_UUID_CHARS]


def code_too_long(markdown: str) -> CodeFile | None:
    """Return the code if a piece of an answer consists only of code that does not fit into a card."""
    return code_file(markdown) if _is_long_code(markdown) else None


def _text_on_card(markdown: str, code: CodeFile | None) -> str:
    """Return the text of an answer's card, or a reference to the file that contains its code."""
    return markdown if code is None else f"📎 {code.name}"


def _is_long_code(markdown: str) -> bool:
    begins = markdown.lstrip().startswith(("```", "~~~"))
    return begins and len(markdown) > _FRAME_CHARS and not fits(markdown)


def _tail_of_long_code(markdown: str) -> str:
    """Return the last lines of code that is too long for a card."""
    if not _is_long_code(markdown):
        return markdown
    fence, _, code = markdown.lstrip().partition("\n")
    newest = code[-_FRAME_CHARS + _FENCE_CHARS :].partition("\n")[2]
    return f"{fence[:_FENCE_CHARS]}\n{newest}"


class FeishuMessages(
    SupportsButtons, SupportsDeletion, SupportsEditing, SupportsNotes, SupportsStreaming
):
    """The sending half of the adapter. Every method raises `FeishuError`.

    Args:
        api: Messages.
        uploads: Files.
        entities: Knows which messages are streaming cards.
        streams: The streaming cards.
        chats: Knows which chats are private. Buttons contain this.
    """

    def __init__(
        self,
        api: FeishuApi,
        uploads: FeishuFileUploader,
        *,
        entities: CardEntities,
        streams: StreamingCards,
        chats: PrivateChats,
    ) -> None:
        self._api = api
        self._uploads = uploads
        self._entities = entities
        self._streams = streams
        self._chats = chats

    async def send(self, target: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        """Send a finished answer. Code that does not fit into a card is sent as a file."""
        return await self.send_with_buttons(target, markdown, (), key=key)

    @override
    async def send_with_buttons(
        self, target: ReplyTarget, markdown: str, buttons: Sequence[Button], *, key: str
    ) -> MessageId:
        code = await process_text(code_too_long, markdown)
        if code is not None:
            return await self._send_code(target, markdown, code, key)
        footer = self._footer(target, buttons)
        return await self._send_card(target, markdown, footer, key, final=True)

    @override
    async def start_streaming(
        self, target: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        """Send a card that shows that work has begun."""
        footer = self._footer(target, buttons)
        made = await self._entities.create(
            idempotency_uuid(target, key),
            cards.streaming_card(await process_text(render, markdown, partial=True), footer),
        )
        refusal: FeishuError | None = None
        if made is not None:
            try:
                return await self._send_entity(target, made, footer, key)
            except FeishuError as error:
                if error.retryable:
                    raise
                refusal = error
        message = await self._send_card(target, markdown, footer, key, final=False)
        # If Feishu refused the entity but accepted the same card without it, the entity is at fault.
        if refusal is not None:
            self._entities.disable(refusal)
        return message

    @override
    async def update_streaming(
        self,
        target: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        final: bool,
        buttons: Sequence[Button] = (),
    ) -> None:
        """Replace the text and the buttons of a card."""
        if not final:
            text = await process_text(_tail_of_long_code, markdown)
            await self._update(target, message, text, final=False, buttons=buttons)
            return
        code = await process_text(code_too_long, markdown)
        shown = _text_on_card(markdown, code)
        await self._update(target, message, shown, final=True, buttons=buttons)
        if code is not None:
            await self._send_code(target, markdown, code, f"code {message}")

    @override
    async def edit_message(
        self,
        target: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        buttons: Sequence[Button] = (),
    ) -> None:
        """Change an answer. Does nothing if it cannot be changed."""
        markdown = _text_on_card(markdown, await process_text(code_too_long, markdown))
        footer = self._footer(target, buttons)
        plain_id, card_id = self._entities.split_id(message)
        if card_id:
            await self._finish(card_id, markdown, footer)
        else:
            await self._finish_card(plain_id, markdown, footer)

    @override
    async def delete_message(self, target: ReplyTarget, message: MessageId) -> None:
        """Delete an answer. Does nothing if it is gone."""
        plain_id, _ = self._entities.split_id(message)
        try:
            await self._api.delete(plain_id)
        except FeishuError as error:
            if not error.target_gone:
                raise

    @override
    async def send_note(self, target: ReplyTarget, text: str, *, key: str) -> MessageId:
        """Send a plain text in small gray type."""
        return MessageId((await self._deliver(target, _CARD, cards.note_card(text), key)).id)

    async def send_file(self, target: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        """Upload a file and send it as a picture or a file."""
        upload = await self._uploads.upload(file)
        return MessageId((await self._deliver(target, upload.type, upload.value, key)).id)

    async def _update(
        self,
        target: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        final: bool,
        buttons: Sequence[Button],
    ) -> None:
        footer = self._footer(target, buttons)
        plain_id, card_id = self._entities.split_id(message)
        if card_id and final:
            await self._require_present(plain_id)
            await self._finish_entity(plain_id, card_id, markdown, footer)
        elif card_id:
            await self._update_entity(card_id, markdown, footer)
        elif final:
            await self._finish_message(plain_id, markdown, footer)
        else:
            await self._patch(plain_id, markdown, footer, final=False)

    async def _send_entity(
        self, target: ReplyTarget, made: CardEntity, footer: CardFooter, key: str
    ) -> MessageId:
        value = {"type": "card", "data": {"card_id": made.id}}
        sent = await self._deliver(target, _CARD, value, key)
        message = await self._entities.register(sent, made)
        self._streams.register(made.id, footer)
        return message

    async def _update_entity(self, card_id: str, markdown: str, footer: CardFooter) -> None:
        try:
            text = await process_text(render, markdown, partial=True)
            await self._streams.update(card_id, text, footer)
        except FeishuError as error:
            if error.bad_card:
                log.info("a growing card was refused; the next one may pass: %s", error)
                return
            if not error.is_about_chat:
                self._entities.disable(error)
            raise

    async def _finish_entity(
        self, message: str, card_id: str, markdown: str, footer: CardFooter
    ) -> None:
        """Show the answer on its card. If that fails, delete the card and raise an error with `target_gone`."""
        try:
            await self._finish(card_id, markdown, footer)
        except FeishuError as error:
            if error.is_about_chat:
                raise
            log.warning("a card entity was refused; updating its message instead: %s", error)
            self._entities.disable(error)
            await self._finish_message(message, markdown, footer)

    async def _finish(self, card_id: str, markdown: str, footer: CardFooter) -> None:
        finish = partial(self._streams.finish, card_id)
        await _with_plain_fallback(finish, markdown, footer, final=True)

    async def _finish_message(self, message: str, markdown: str, footer: CardFooter) -> None:
        """Update the message itself.

        If that is refused too, delete the message and raise an error with `target_gone`, so that the bus sends the
        answer again.
        """
        try:
            await self._finish_card(message, markdown, footer)
        except FeishuError as error:
            if error.is_about_chat:
                raise
            log.warning("a card cannot be finished; sending the answer as a new message: %s", error)
            with suppress(FeishuError):
                await self._api.delete(message)
            error.target_gone = True
            raise

    async def _finish_card(self, message: str, markdown: str, footer: CardFooter) -> None:
        """Replace a card that was sent whole. A refusal shows that it is an entity."""
        try:
            await self._patch(message, markdown, footer, final=True)
        except FeishuError as error:
            if error.is_about_chat:
                raise
            card_id = await self._entities.find_card(message)
            if not card_id:
                raise
            await self._finish(card_id, markdown, footer)

    async def _require_present(self, message: str) -> None:
        """Raise an error with `target_gone` if a message was withdrawn. Its card would still accept the answer."""
        try:
            gone = await self._api.is_deleted(message)
        except FeishuError as error:
            log.info("cannot check whether a card still exists: %s", error)
            return
        if gone:
            raise FeishuError("the card was withdrawn", target_gone=True)

    async def _patch(self, message: str, markdown: str, footer: CardFooter, *, final: bool) -> None:
        patch = partial(self._api.patch, message, is_frame=not final)
        await _with_plain_fallback(patch, markdown, footer, final=final)

    def _footer(self, target: ReplyTarget, buttons: Sequence[Button]) -> CardFooter:
        private = self._chats.is_private(target.chat)
        return CardFooter(buttons=buttons, private=private, note=target.texts.working)

    async def _send_code(
        self, target: ReplyTarget, markdown: str, code: CodeFile, key: str
    ) -> MessageId:
        """Send code as a file. Raises MessageTooLong if the file is refused, which sends the code in several cards."""
        try:
            upload = await self._uploads.upload_text(code.name, code.text)
        except FeishuError as error:
            if error.retryable:
                raise
            log.warning("sending long code in cards, because its file was refused: %s", error)
            raise MessageTooLong(await process_text(split_markdown, markdown, fits)) from error
        return MessageId((await self._deliver(target, upload.type, upload.value, key)).id)

    async def _send_card(
        self, target: ReplyTarget, markdown: str, footer: CardFooter, key: str, *, final: bool
    ) -> MessageId:
        async def put(card: Card) -> SentMessage:
            return await self._deliver(target, _CARD, card, key)

        return MessageId((await _with_plain_fallback(put, markdown, footer, final=final)).id)

    async def _deliver(
        self, target: ReplyTarget, kind: str, value: Mapping[str, object], key: str
    ) -> SentMessage:
        """Reply to the user's message, or to the first message of its topic if the user's is gone.

        Outside of topics, send to the chat if the message is gone. If a topic is gone, the bus decides.
        """
        content = MessageContent(type=kind, value=value, uuid=idempotency_uuid(target, key))
        gone: FeishuError | None = None
        # A notification may name a message as its topic. Then it replies to that message, outside of topics.
        is_message = target.thread.startswith(_MESSAGE_IDS)
        named = target.thread if is_message else ""
        if target.thread and not (named or target.reply_to or target.thread_root):
            raise FeishuError(UNKNOWN_TOPIC)
        for message in filter(None, (target.reply_to, target.thread_root, named)):
            try:
                return await self._api.reply(
                    message, content, in_thread=bool(target.thread) and not is_message
                )
            except FeishuError as error:
                if not error.target_gone:
                    raise
                log.info("the message to answer is gone: %s", error)
                gone = error
        if gone is not None and target.thread:
            raise gone
        return await self._api.send(target.chat, content)


async def _with_plain_fallback(
    put: Callable[[Card], Awaitable[T]], markdown: str, footer: CardFooter, *, final: bool
) -> T:
    """Send or update a card. If Feishu refuses it, use the text without formatting."""
    text = await process_text(render, markdown, partial=not final)
    card = cards.final_card(text, footer) if final else cards.progress_card(text, footer)
    try:
        return await put(card)
    except FeishuError as error:
        if not error.bad_card:
            raise
        log.warning("a card was refused; showing it without formatting: %s", error)
    return await put(cards.plain_text_card(markdown, final=final, footer=footer))
