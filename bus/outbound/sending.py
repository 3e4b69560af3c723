"""Sends one outbox row through its adapter: a message or file, an edit, a deletion."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard, assert_never

import anyio

from bus.errors import DeliveryError, decoration
from bus.messages import (
    MessageId,
    OutboundEdit,
    OutboundFile,
    OutboundMessage,
    OutboundNote,
    OutboundRemoval,
    OutboundText,
)
from bus.outbound.artifacts import ArtifactDownloader
from bus.outbound.rows import UNUSED_TEXT, is_answer_text, text_key
from bus.platform import (
    Adapter,
    SupportsButtons,
    SupportsDeletion,
    SupportsEditing,
    SupportsNotes,
    SupportsStreaming,
)
from bus.runs.port import ThreadFiles
from store.outbox import OutboxRow, OutboxStore

log = logging.getLogger(__name__)

FAILURE_PATCH_DEADLINE_S = 10.0
"""Time limit of the edit that ends a streaming message whose final text was refused, seconds."""


class RowSender:
    """Sends rows through the adapters.

    Args:
        outbox: Holds the platform ids of the messages that rows edit.
        files: The files of threads, which the agent presents.
    """

    def __init__(self, outbox: OutboxStore, files: ThreadFiles) -> None:
        self._outbox = outbox
        self._artifacts = ArtifactDownloader(files, outbox.files)

    async def find_changed_message(self, body: OutboundMessage) -> MessageId | None:
        """Return the message that a row edits or deletes; None if it was not sent. Raises StoreError."""
        match body:
            case OutboundText():
                key = body.replaces
            case OutboundRemoval() | OutboundEdit():
                key = body.target_key
            case _:
                key = ""
        row = await self._outbox.find(key) if key else None
        return MessageId(row.platform_id) if row is not None and row.platform_id else None

    @staticmethod
    def is_edit(body: OutboundMessage, adapter: Adapter, message: MessageId | None) -> bool:
        """Return whether a row sends no new message, so that it may be repeated."""
        if isinstance(body, OutboundRemoval | OutboundEdit):
            return True
        return isinstance(body, OutboundText) and message is not None and _can_edit(adapter)

    async def send(
        self, row: OutboxRow, body: OutboundMessage, adapter: Adapter, message: MessageId | None
    ) -> MessageId:
        """Send one row. Return the platform's ID of the visible message.

        Raises:
            DeliveryError: Never `ambiguous` for an edit, which may be repeated.
        """
        match body:
            case OutboundText():
                return await self._send_text(row, body, adapter, message)
            case OutboundFile():
                return await self._send_file(row, body, adapter)
            case OutboundRemoval():
                if message is not None:
                    await _remove(adapter, message, body)
                return MessageId("")
            case OutboundEdit():
                if message is not None:
                    await _edit_only(adapter, message, body)
                return MessageId("")
            case OutboundNote():
                return await _send_note(row, body, adapter)
            case _:
                assert_never(body)

    async def show_failure(
        self, key: str, body: OutboundMessage, adapter: Adapter, message: MessageId | None
    ) -> None:
        """Send a notice instead of a refused text, if people saw part of it or would miss it. Raises nothing.

        `key`: the key of its row; "" = people may see the text after all.
        """
        if not isinstance(body, OutboundText):
            return
        reply_target, text = body.reply_target, body.reply_target.texts.answer_refused
        with decoration("failure text"), anyio.fail_after(FAILURE_PATCH_DEADLINE_S):
            if message is not None and isinstance(adapter, SupportsStreaming):
                await adapter.update_streaming(reply_target, message, text, final=True)
            elif await self._leaves_gap(key, body):
                await adapter.send(reply_target, text, key=f"{key}:refused")

    async def _leaves_gap(self, key: str, body: OutboundText) -> bool:
        """Return whether a text is one of several messages of an answer. Raises StoreError."""
        if not is_answer_text(key):
            return False
        first, second = text_key(key, 0), text_key(key, 1)
        is_part = bool(body.part or body.more)
        return is_part or key != first or await self._outbox.find(second) is not None

    async def _send_text(
        self, row: OutboxRow, body: OutboundText, adapter: Adapter, message: MessageId | None
    ) -> MessageId:
        key = message_key(row, body)
        # Buttons belong under the row's last message.
        body = replace(body, buttons=()) if body.more else body
        if body.provisional and _can_stream(adapter):
            return await adapter.start_streaming(
                body.reply_target, body.markdown, key=key, buttons=body.buttons
            )
        if message is not None and await _edit(adapter, message, body):
            return message
        if body.buttons and isinstance(adapter, SupportsButtons):
            return await adapter.send_with_buttons(
                body.reply_target, body.markdown, body.buttons, key=key
            )
        return await adapter.send(body.reply_target, body.markdown, key=key)

    async def _send_file(self, row: OutboxRow, body: OutboundFile, adapter: Adapter) -> MessageId:
        limit = adapter.capabilities.max_file_bytes
        async with self._artifacts.download(body, max_bytes=limit) as file:
            if isinstance(file, str):
                return await adapter.send(body.reply_target, file, key=row.key)
            try:
                return await adapter.send_file(body.reply_target, file, key=row.key)
            except DeliveryError as refusal:
                # The client that sent a notification sees the platform's reason. No one else waits for the file.
                if refusal.retryable or refusal.ambiguous or refusal.place_gone or body.file_id:
                    raise
                return await self._explain_refusal(row, body, adapter, refusal)

    async def _explain_refusal(
        self, row: OutboxRow, body: OutboundFile, adapter: Adapter, refusal: DeliveryError
    ) -> MessageId:
        """Send the reason why a file was refused. Raises the refusal if the platform refuses that, too."""
        log.warning("delivery %s: the file was refused: %s", row.key, refusal.user_message)
        text = body.reply_target.texts.artifact_refused
        reason = text.format(name=body.name, reason=refusal.user_message)
        try:
            return await adapter.send(body.reply_target, reason, key=row.key)
        except DeliveryError as error:
            if error.retryable or error.ambiguous:
                raise
            raise refusal from None


def message_key(row: OutboxRow, body: OutboundMessage) -> str:
    """Return the key for sending and looking up the current message of a row."""
    part = body.part if isinstance(body, OutboundText) else 0
    return f"{row.key}+{part}" if part else row.key


def first_part(body: OutboundText, pieces: Sequence[str]) -> OutboundText:
    """Return a row's text as several messages. The first one is sent next."""
    first, *rest = pieces
    return replace(body, markdown=first, more=(*rest, *body.more))


def next_part(body: OutboundText) -> OutboundText:
    """Return a row's text after one of its messages was sent. The next one replaces nothing."""
    following, *rest = body.more
    return replace(body, markdown=following, more=tuple(rest), part=body.part + 1, replaces="")


def _can_stream(adapter: Adapter) -> TypeGuard[SupportsStreaming]:
    return isinstance(adapter, SupportsStreaming) and adapter.capabilities.streaming


def _can_edit(adapter: Adapter) -> bool:
    return _can_stream(adapter) or isinstance(adapter, SupportsEditing)


async def _edit(adapter: Adapter, message: MessageId, body: OutboundText) -> bool:
    """Replace a message. Return False if it is gone or the platform cannot edit. Raises DeliveryError."""
    try:
        if _can_stream(adapter):
            await adapter.update_streaming(
                body.reply_target, message, body.markdown, final=True, buttons=body.buttons
            )
        elif isinstance(adapter, SupportsEditing):
            await adapter.edit_message(
                body.reply_target, message, body.markdown, buttons=body.buttons
            )
        else:
            return False
    except DeliveryError as error:
        if error.target_gone or error.place_gone:
            return False
        raise _repeatable(error) from error
    return True


async def _remove(adapter: Adapter, message: MessageId, body: OutboundRemoval) -> None:
    """Delete a message. If the platform cannot delete, empty a streaming message. Raises DeliveryError."""
    target = body.reply_target
    try:
        if isinstance(adapter, SupportsDeletion):
            await adapter.delete_message(target, message)
            return
    except DeliveryError as error:
        if error.place_gone:
            return
        if error.retryable or error.ambiguous or not isinstance(adapter, SupportsStreaming):
            raise _repeatable(error) from error
    if isinstance(adapter, SupportsStreaming):
        try:
            await adapter.update_streaming(target, message, UNUSED_TEXT, final=True)
        except DeliveryError as error:
            if not (error.target_gone or error.place_gone):
                raise _repeatable(error) from error


async def _send_note(row: OutboxRow, body: OutboundNote, adapter: Adapter) -> MessageId:
    """Send a note in small type, or as a quotation on a platform without it. Raises DeliveryError."""
    if isinstance(adapter, SupportsNotes):
        return await adapter.send_note(body.reply_target, body.text, key=row.key)
    quotation = "\n".join(f"> {line}" for line in body.text.splitlines())
    return await adapter.send(body.reply_target, quotation, key=row.key)


async def _edit_only(adapter: Adapter, message: MessageId, body: OutboundEdit) -> None:
    """Replace a message's text and buttons. Does nothing if the message is gone. Raises DeliveryError."""
    target, text, buttons = body.reply_target, body.markdown, body.buttons
    try:
        if isinstance(adapter, SupportsEditing):
            await adapter.edit_message(target, message, text, buttons=buttons)
        elif isinstance(adapter, SupportsStreaming):
            await adapter.update_streaming(target, message, text, final=True, buttons=buttons)
    except DeliveryError as error:
        if not (error.target_gone or error.place_gone):
            raise _repeatable(error) from error


def _repeatable(error: DeliveryError) -> DeliveryError:
    """Return the error of an edit. An edit with an unknown outcome is retried."""
    if not error.ambiguous:
        return error
    return DeliveryError(error.user_message, retryable=True, retry_after_s=error.retry_after_s)
