"""The display of a running turn before its answer: a message that grows, a draft, or a notice with a stop button."""

import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import cast

import anyio
from typing_extensions import override

from bus.buttons import stop_button
from bus.errors import DeliveryError, decoration
from bus.locales import Messages
from bus.messages import Button, InboundMessage, MessageId, OutboundText, ToolStep, encode_outbound
from bus.outbound.rows import LiveMessages, notice_key, streaming_key
from bus.outbound.split import split_text
from bus.outbound.worker import DeliveryWorker
from bus.platform import (
    Adapter,
    Clock,
    SupportsButtons,
    SupportsDeletion,
    SupportsDrafts,
    SupportsStreaming,
    SupportsToolSteps,
)
from bus.retry import StoreRetry
from bus.tasks import run_beside
from store.inbox import InboxRow
from store.outbox import NewOutboxRow

log = logging.getLogger(__name__)

WORKING_TEXT = "…"
"""Text of a streaming message before the first word."""

PATCH_DEADLINE_S = 8.0
"""Time limit of one patch, seconds. The next patch, or the final text, replaces a lost patch."""

KEEPALIVE_S = 20.0
"""How often to repeat an unchanged draft, seconds. Telegram shows a draft for 30 s."""

DRAFT_DEADLINE_S = 8.0
"""Time limit of one draft, seconds. The next draft replaces a lost draft."""

DRAFT_CHARS = 4000
"""Maximum length of a draft, characters. It shows the end of a longer answer."""


class LiveReply:
    """Shows a turn before its answer. The base class shows nothing.

    Attributes:
        shown: The messages that the answer must replace or remove.
        shows_answer: Whether people see words of the answer.
        signed_at: When people saw the first sign of the turn, Unix seconds; None = not yet, or an earlier process
            may have shown it.
    """

    def __init__(
        self,
        delivery: DeliveryWorker,
        row: InboxRow,
        inbound: InboundMessage,
        now: Clock = time.time,
    ) -> None:
        self._delivery = delivery
        self._row = row
        self._inbound = inbound
        self._store = StoreRetry(f"live reply of turn {row.id}")
        self._text: Callable[[], str] = str
        self._progress: Callable[[Messages], str] = _nothing
        self._steps: Callable[[], Sequence[ToolStep]] = tuple
        self._shown_steps = set[str]()
        self._changed = anyio.Event()
        self._may_open = anyio.Event()
        self.shown = LiveMessages()
        self.shows_answer = False
        self.signed_at: float | None = None
        self._now = now

    def note_sign(self) -> None:
        """Record that people now see a sign of the turn."""
        if self.signed_at is None and self.is_first_attempt:
            self.signed_at = self._now()

    def update(
        self,
        text: Callable[[], str],
        progress: Callable[[Messages], str] | None = None,
        steps: Callable[[], Sequence[ToolStep]] | None = None,
    ) -> None:
        """Announce newer text. Returns at once. Earlier text that has not been shown yet is skipped.

        The functions are called only when their text can be shown. Building the text for every token would take
        quadratic time.

        Args:
            text: Returns the text so far.
            progress: Returns lines to show temporarily below it.
            steps: Returns the finished tool calls.
        """
        self._text = text
        self._progress = progress or _nothing
        self._steps = steps or tuple
        self._changed.set()

    def let_open(self) -> None:
        """Announce that notes about the message's recordings are in the outbox. The live reply goes below them."""
        self._may_open.set()

    async def open_below_notes(self) -> None:
        """Wait for `let_open`, then open and run."""
        await self._may_open.wait()
        await self.open()
        await self.run_safely()

    async def find_shown(self) -> None:
        """Find the messages that an earlier process showed. Waits while the store is unavailable."""

    async def open(self) -> None:
        """Show that work has started, unless that is already shown. Waits while the store is unavailable."""

    async def wait_for_words(self) -> None:
        """Wait until there are words of the answer to show, or an earlier process showed any."""
        while not (self.shown.exist or self._text()):
            await self._changed.wait()
            self._changed = anyio.Event()
        self._changed.set()

    async def run(self) -> None:
        """Show changes until canceled."""

    async def run_safely(self) -> None:
        """Call `run`. An error ends only the live reply."""
        with decoration(f"live reply of turn {self._row.id}"):
            await self.run()

    async def show_tool_steps(self) -> None:
        """Show the tool calls that have finished since the last call, on a platform that keeps showing them."""
        if not _keeps_tool_steps(type(self._adapter)):
            return
        for step in self._steps():
            if step.id not in self._shown_steps:
                self._shown_steps.add(step.id)
                adapter = cast("SupportsToolSteps", self._adapter)
                await adapter.show_tool_step(self._inbound.reply_target, step)

    async def _show(self, key: str, text: str) -> None:
        """Enqueue a message with a stop button, which the answer replaces or removes."""
        body = OutboundText(
            channel=self._row.key.channel,
            reply_target=self._inbound.reply_target,
            markdown=text,
            provisional=True,
            buttons=(self._stop_button,),
        )
        new = NewOutboxRow(key=key, conversation=self._row.key, body=encode_outbound(body))
        await self._store.call(lambda: self._delivery.enqueue(self._row.key, [new]))

    @property
    def _stop_button(self) -> Button:
        return stop_button(self._row.id, self._texts.button_stop)

    @property
    def is_first_attempt(self) -> bool:
        """Whether no earlier process can have shown anything of this turn.

        Edits also count as attempts, because they reset the number of starts.
        """
        return self._row.starts <= 1 and not self._inbound.edit_count

    @property
    def _adapter(self) -> Adapter:
        return self._delivery.adapter(self._row.key.channel)

    @property
    def _texts(self) -> Messages:
        return self._inbound.reply_target.texts

    def _progress_lines(self) -> str:
        """Return the lines to show temporarily below the text."""
        return self._progress(self._texts) if self._adapter.capabilities.shows_progress else ""


def _nothing(_: Messages) -> str:
    return ""


class StreamingMessage(LiveReply):
    """Messages that grow until they are the answer. The last one has a stop button."""

    _patches: dict[int, tuple[str, bool]]
    _ids: dict[int, MessageId]

    @override
    async def find_shown(self) -> None:
        self._patches, self._ids = {}, {}
        while not self.is_first_attempt and await self._exists(self.shown.streaming_count):
            self._count()
        if self.shown.streaming_count:
            self._note_doubt()  # an earlier process may have sent edits

    @override
    async def open(self) -> None:
        if self.shown.streaming_count == 0:
            await self._open_message()

    @override
    async def run(self) -> None:
        adapter = self._adapter
        if not isinstance(adapter, SupportsStreaming):
            return
        while True:
            await self._changed.wait()
            last = self.shown.streaming_count - 1
            if not await self._wait_for_slot(last) or not await self._patch_all(adapter, last):
                return

    async def _patch_all(self, adapter: SupportsStreaming, ready: int) -> bool:
        """Update all messages, without waiting for the one with index `ready`. False = stop patching."""
        # Read the text only now, so that it includes text that arrived while the message waited for its slot.
        self._changed = anyio.Event()
        await self.show_tool_steps()
        answer = self._text()
        self.shows_answer = self.shows_answer or bool(answer)
        parts = await split_text(self._adapter, answer)
        parts = await add_progress(self._adapter, parts, self._progress_lines())
        # An empty message looks broken, and between two tool calls there may be no text yet.
        for index, part in enumerate(text or WORKING_TEXT for text in parts):
            if index >= self.shown.streaming_count:
                await self._open_message()
            patch = (part, index == max(len(parts), self.shown.streaming_count) - 1)
            if self._patches.get(index) == patch:
                continue
            if index != ready and not await self._wait_for_slot(index):
                return False
            if not await self._patch(adapter, index, patch):
                return False
        return True

    async def _open_message(self) -> None:
        key = streaming_key(self._row, self.shown.streaming_count)
        # Count it before the row exists, so that a turn that ends now also replaces this message.
        self._count()
        await self._show(key, WORKING_TEXT)

    async def _exists(self, index: int) -> bool:
        key = streaming_key(self._row, index)
        return await self._store.call(lambda: self._delivery.find_row(key)) is not None

    def _count(self) -> None:
        self.shown = replace(self.shown, streaming_count=self.shown.streaming_count + 1)

    def _note_doubt(self) -> None:
        self.shown = replace(self.shown, edit_in_doubt=True)

    async def _wait_for_slot(self, index: int) -> bool:
        """Wait until a message may be patched. Return False if it cannot be patched at all."""
        key = streaming_key(self._row, index)
        row = await self._store.call(lambda: self._delivery.wait_closed(key))
        if row is None or not row.platform_id:
            return False
        self._ids[index] = MessageId(row.platform_id)
        limited = (f"{self._row.key.channel}:streaming", row.platform_id)
        await self._delivery.wait_for_slot(limited, self._interval_s)
        return True

    async def _patch(self, adapter: SupportsStreaming, index: int, patch: tuple[str, bool]) -> bool:
        """Patch one message now. Return False if the platform accepts no more patches of this turn."""
        part, is_last = patch
        buttons = (self._stop_button,) if is_last else ()
        await self._delivery.wait_until_owner()
        started = time.monotonic()
        try:
            # Shielded, so that a patch in flight arrives before the final text is sent.
            with anyio.move_on_after(PATCH_DEADLINE_S, shield=True) as deadline:
                await adapter.update_streaming(
                    self._inbound.reply_target, self._ids[index], part, final=False, buttons=buttons
                )
            self._patches[index] = patch
            self.note_sign()
            if deadline.cancelled_caught:
                self._note_doubt()
        except DeliveryError as error:
            if error.ambiguous:
                self._note_doubt()
            key = streaming_key(self._row, index)
            log.info("patch of %s skipped: %s", key, error.user_message)
            self._changed.set()
            spent_s = time.monotonic() - started
            await anyio.sleep(max(self._interval_s, (error.retry_after_s or 0.0) - spent_s))
            return error.retryable
        return True

    @property
    def _interval_s(self) -> float:
        return self._adapter.capabilities.stream_interval_s


async def add_progress(adapter: Adapter, parts: list[str], progress: str) -> list[str]:
    """Append progress lines to the last part if they fit. They never begin a new message."""
    if not progress:
        return parts
    *before, last = parts
    longer = f"{last}\n\n{progress}".strip()
    return [*before, longer] if len(await split_text(adapter, longer)) == 1 else parts


class DraftReply(LiveReply):
    """Shows the text so far as a draft. The finished answer is sent as a message."""

    @override
    async def run(self) -> None:
        adapter = self._adapter
        if not isinstance(adapter, SupportsDrafts):
            return
        limited = (f"{self._row.key.channel}:preview", self._inbound.reply_target.chat)
        interval_s = self._adapter.capabilities.draft_interval_s
        while True:
            await self._delivery.wait_for_slot(limited, interval_s)
            self._changed = anyio.Event()
            if not await self._send_draft(adapter):
                return
            with anyio.move_on_after(KEEPALIVE_S):
                await self._changed.wait()

    async def _send_draft(self, adapter: SupportsDrafts) -> bool:
        """Show the text so far. Return False if the platform shows no more drafts of this turn."""
        # A draft is one message, so it shows only the end of a long answer.
        text = self._text()
        self.shows_answer = self.shows_answer or bool(text)
        end = (await split_text(self._adapter, text[-DRAFT_CHARS:]))[-1:]
        draft = (await add_progress(self._adapter, end, self._progress_lines()))[0]
        await self._delivery.wait_until_owner()
        try:
            with anyio.move_on_after(DRAFT_DEADLINE_S):
                await adapter.send_draft(
                    self._inbound.reply_target,
                    draft,
                    key=f"{self._row.id}:preview",
                    stop=self._stop_button,
                )
                self.note_sign()
        except DeliveryError as error:
            log.info("draft of turn %s skipped: %s", self._row.id, error.user_message)
            if not error.retryable:
                return False
            await anyio.sleep(error.retry_after_s or KEEPALIVE_S / 4)
        return True


class ProgressNotice(LiveReply):
    """Shows a notice only after a turn has taken `progress_notice_after_s`."""

    @override
    async def find_shown(self) -> None:
        if self.is_first_attempt:
            return
        if await self._store.call(lambda: self._delivery.find_row(self._key)) is not None:
            self.shown = LiveMessages(notice_key=self._key)

    @override
    async def run(self) -> None:
        if self.shown.notice_key:
            return
        await anyio.sleep(self._adapter.capabilities.progress_notice_after_s)
        # Set the key before the row exists, so that a turn that ends now also removes the notice.
        self.shown = LiveMessages(notice_key=self._key)
        await self._show(self._key, self._texts.working)

    @property
    def _key(self) -> str:
        return notice_key(self._row)


@asynccontextmanager
async def show_live_reply(
    delivery: DeliveryWorker, row: InboxRow, inbound: InboundMessage, *, now: Clock = time.time
) -> AsyncIterator[LiveReply]:
    """Inside the block, show that a turn runs. After the block, no indicators or edits are sent for it.

    If the agent may stay silent, nothing is shown before its first words.

    Raises only what the block raises. Failures to show something are logged.
    """
    adapter = delivery.adapter(row.key.channel)
    live_reply = _best_type(adapter, inbound)(delivery, row, inbound, now)
    # A message with a run was injected into another message's run and already has an indicator.
    is_first = live_reply.is_first_attempt and row.run_id is None
    show_working = delivery.show_working(
        row.key.channel, inbound.reply_target, is_first=is_first, on_shown=live_reply.note_sign
    )
    show_reply = live_reply.run_safely if type(live_reply) is not LiveReply else None
    await live_reply.find_shown()
    if inbound.may_be_declined:

        async def show_once_there_are_words() -> None:
            await live_reply.wait_for_words()
            await live_reply.open()
            async with run_beside(*filter(None, (show_working,))):
                await live_reply.run_safely()
                await anyio.sleep_forever()  # The indicator stays until the turn ends.

        async with run_beside(show_once_there_are_words):
            yield live_reply
        await live_reply.show_tool_steps()
        return
    if any(file.is_speech for file in inbound.attachments):
        show_reply = live_reply.open_below_notes
    else:
        await live_reply.open()
    async with run_beside(*filter(None, (show_working, show_reply))):
        yield live_reply
    await live_reply.show_tool_steps()


def _best_type(adapter: Adapter, inbound: InboundMessage) -> type[LiveReply]:
    drafts, streaming, removable = _supported_by(type(adapter))
    if drafts and cast("SupportsDrafts", adapter).uses_drafts(inbound.reply_target):
        return DraftReply
    numbers = adapter.capabilities
    if streaming and numbers.streaming:
        return StreamingMessage
    return ProgressNotice if numbers.progress_notice_after_s and removable else LiveReply


@cache
def _keeps_tool_steps(kind: type[Adapter]) -> bool:
    return issubclass(kind, SupportsToolSteps)


@cache
def _supported_by(kind: type[Adapter]) -> tuple[bool, bool, bool]:
    """Return whether adapters of a class have drafts, streaming, and both buttons and deletion.

    Checking a protocol takes 50 function calls, so it is not done for each turn.
    """
    removable = issubclass(kind, SupportsButtons) and issubclass(kind, SupportsDeletion)
    return issubclass(kind, SupportsDrafts), issubclass(kind, SupportsStreaming), removable
