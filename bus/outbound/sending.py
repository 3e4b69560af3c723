"""One attempt at one outbox row: a new message, a card, a card's last text, or a file."""

import logging
from typing import assert_never

import anyio
import httpx

from bus.errors import DeliveryError
from bus.messages import (
    MessageId,
    OutboundEdit,
    OutboundFile,
    OutboundMessage,
    OutboundRemoval,
    OutboundText,
)
from bus.outbound.artifacts import ArtifactDownloader
from bus.platform import (
    Adapter,
    SupportsButtons,
    SupportsDeletion,
    SupportsEditing,
    SupportsStreaming,
)
from store.outbox import OutboxRow, OutboxStore

log = logging.getLogger(__name__)

FAILURE_PATCH_DEADLINE_S = 10.0
"""Bound of the patch that ends a card whose answer was refused."""


class RowSender:
    """Puts rows in front of people.

    Args:
        outbox: Where the cards' ids are kept.
        gateway: The gateway's REST API, for the files that the agent presents.
    """

    def __init__(self, outbox: OutboxStore, gateway: httpx.AsyncClient) -> None:
        self._outbox = outbox
        self._artifacts = ArtifactDownloader(gateway)

    async def send(self, row: OutboxRow, body: OutboundMessage, adapter: Adapter) -> MessageId:
        """Send one row; return the platform's id of what people see. Raises DeliveryError."""
        match body:
            case OutboundText():
                return await self._text(row, body, adapter)
            case OutboundFile():
                return await self._file(row, body, adapter)
            case OutboundRemoval():
                return await self._remove(body, adapter)
            case OutboundEdit():
                return await self._amend(body, adapter)
            case _:
                assert_never(body)

    async def show_failure(self, body: OutboundMessage, adapter: Adapter) -> None:
        """Let no card say "working" for ever when its answer was refused for good."""
        if not isinstance(body, OutboundText) or not isinstance(adapter, SupportsStreaming):
            return
        card = await self._sent(body.replaces)
        if card is None:
            return
        apology = body.reply_target.texts.answer_refused
        try:
            with anyio.fail_after(FAILURE_PATCH_DEADLINE_S):
                await adapter.update_streaming(body.reply_target, card, apology, final=True)
        except (DeliveryError, TimeoutError) as error:
            log.warning("a card could not be ended: %s", error)

    async def _text(self, row: OutboxRow, body: OutboundText, adapter: Adapter) -> MessageId:
        if (
            body.provisional
            and isinstance(adapter, SupportsStreaming)
            and adapter.capabilities.streaming
        ):
            return await adapter.start_streaming(
                body.reply_target, body.markdown, key=row.key, buttons=body.buttons
            )
        known = await self._sent(body.replaces)
        if known is not None and await self._replaced(known, body, adapter):
            return known
        if body.buttons and isinstance(adapter, SupportsButtons):
            return await adapter.send_with_buttons(
                body.reply_target, body.markdown, body.buttons, key=row.key
            )
        return await adapter.send(body.reply_target, body.markdown, key=row.key)

    async def _replaced(self, message: MessageId, body: OutboundText, adapter: Adapter) -> bool:
        """Put a text in place of a message that people see; return False if that is gone."""
        try:
            if isinstance(adapter, SupportsStreaming) and adapter.capabilities.streaming:
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
            if not error.target_gone:
                raise
            return False
        return True

    async def _remove(self, body: OutboundRemoval, adapter: Adapter) -> MessageId:
        message = await self._sent(body.target_key)
        if message is not None and isinstance(adapter, SupportsDeletion):
            await adapter.delete_message(body.reply_target, message)
        return MessageId("")

    async def _amend(self, body: OutboundEdit, adapter: Adapter) -> MessageId:
        message = await self._sent(body.target_key)
        try:
            if message is None:
                pass
            elif isinstance(adapter, SupportsEditing):
                await adapter.edit_message(body.reply_target, message, body.markdown)
            elif isinstance(adapter, SupportsStreaming):
                await adapter.update_streaming(
                    body.reply_target, message, body.markdown, final=True
                )
        except DeliveryError as error:
            if not error.target_gone:
                raise
        return MessageId("")

    async def _sent(self, key: str) -> MessageId | None:
        """Return the message that a row became, if it was sent."""
        row = await self._outbox.find(key) if key else None
        return MessageId(row.platform_id) if row is not None and row.platform_id else None

    async def _file(self, row: OutboxRow, body: OutboundFile, adapter: Adapter) -> MessageId:
        limit = adapter.capabilities.max_file_bytes
        async with self._artifacts.download(body, max_bytes=limit) as file:
            if isinstance(file, str):
                return await adapter.send(body.reply_target, file, key=row.key)
            try:
                return await adapter.send_file(body.reply_target, file, key=row.key)
            except DeliveryError as refusal:
                if refusal.retryable or refusal.ambiguous:
                    raise
                return await self._told(row, body, adapter, refusal)

    async def _told(
        self, row: OutboxRow, body: OutboundFile, adapter: Adapter, refusal: DeliveryError
    ) -> MessageId:
        """Say why a file did not come; where not even that can be said, the refusal stands."""
        log.warning("delivery %s: the file was refused: %s", row.key, refusal.user_message)
        text = body.reply_target.texts.artifact_refused
        why = text.format(name=body.name, reason=refusal.user_message)
        try:
            return await adapter.send(body.reply_target, why, key=row.key)
        except DeliveryError:
            raise refusal from None
