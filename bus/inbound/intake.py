"""The intake: receives messages, button presses, edits, deletions and chat migrations from adapters."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

import anyio
from typing_extensions import override

from bus.access.checker import AccessChecker
from bus.context import BusContext
from bus.conversation.conversations import Conversations
from bus.conversation.open_questions import OpenQuestions
from bus.inbound.button_actions import ButtonActions
from bus.inbound.button_presses import ButtonPressHandler
from bus.inbound.chat_migrations import ChatMigrations
from bus.inbound.gesture_collector import GestureCollector
from bus.inbound.message_edits import MessageEditHandler
from bus.inbound.pipeline import InboundPipeline, IntakeCapacity, Stage
from bus.inbound.rerun_offers import RerunOffers
from bus.inbound.schedule_buttons import ScheduleButtons
from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    MessageEdit,
    PressResponse,
    Sender,
)
from bus.platform import Disposition, Intake
from bus.schedules.scheduler import Scheduler
from store.conversations import ChatMigration

log = logging.getLogger(__name__)


class BusIntake(InboundPipeline, Intake):
    """Passes each event to the handler for its kind, and counts and logs the disposition.

    Messages go through the stages of the pipeline. So do presses and edits that become messages.

    Attributes:
        events: The pipeline for events of other systems.

    Args:
        stages: The stages of the pipeline.
        event_stages: The stages for events of other systems, which are never commands, answers or parts of gestures.
        changes: Held while an edit or deletion is applied, or a gesture changes.
    """

    def __init__(
        self,
        bus: BusContext,
        stages: tuple[Stage, ...],
        event_stages: tuple[Stage, ...],
        *,
        access: AccessChecker,
        migrations: ChatMigrations,
        questions: OpenQuestions,
        conversations: Conversations,
        gestures: GestureCollector,
        changes: anyio.Lock,
        scheduler: Scheduler,
    ) -> None:
        capacity = IntakeCapacity(bus.config.max_intake)
        super().__init__(stages, capacity=capacity, stats=bus.stats, now=bus.now)
        self.events = InboundPipeline(event_stages, capacity=capacity, stats=bus.stats, now=bus.now)
        gestures.accept_with(self.receive)
        reruns = RerunOffers(bus, self)
        actions = ButtonActions(
            bus,
            questions=questions,
            pipeline=self,
            conversations=conversations,
            reruns=reruns,
            schedules=ScheduleButtons(bus, scheduler),
        )
        self._presses = ButtonPressHandler(bus, access, actions.by_action())
        self._edits = MessageEditHandler(
            bus,
            access=access,
            conversations=conversations,
            gestures=gestures,
            reruns=reruns,
            changes=changes,
        )
        self._conversations = bus.stores.conversations
        self._nodes = bus.nodes
        self._migrations = migrations
        self._access = access

    def close(self) -> None:
        """Accept nothing more."""
        self._capacity.close()

    async def wait_idle(self) -> None:
        """Wait until no message is being accepted. Used when stopping."""
        while self._capacity.in_progress:  # noqa: ASYNC110 - only at shutdown, where 20 ms do not matter
            await anyio.sleep(0.02)

    def counters(self) -> Mapping[tuple[str, Disposition], int]:
        """Return the number of events by channel and disposition since the start."""
        return self._stats.counts()

    @override
    def divide_limit(self, limit: int) -> int:
        return self._nodes.divide_limit(limit)

    @override
    def exclusive(
        self, name: str, on_wait: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[None]:
        return self._nodes.exclusive(name, on_wait)

    @override
    async def has_conversation(self, key: ConversationKey) -> bool:
        return await self._conversations.has_messages(key)

    @override
    async def handle_button_press(self, press: ButtonPress) -> PressResponse:
        self._capacity.check()
        outcome = await self._presses.handle(press)
        self._stats.count(press.key.channel, outcome.disposition)
        log.info(
            "button %r of %s in %r: %s (event %r, presser %r)",
            press.token,
            press.key.channel,
            press.key.chat,
            outcome.disposition,
            press.event_id,
            press.sender.user_id,
        )
        return outcome.response

    @override
    async def handle_edit(self, edit: MessageEdit) -> Disposition:
        return await self._handle_change(edit, "edited")

    @override
    async def handle_deletion(self, deletion: MessageDeletion) -> Disposition:
        return await self._handle_change(deletion, "deleted")

    @override
    async def handle_bot_added(self, key: ConversationKey, added_by: Sender) -> None:
        is_approved = await self._access.approve_group_of(key, added_by)
        log.info(
            "bot added to chat %r of %s by %r%s",
            key.chat,
            key.channel,
            added_by.user_id,
            ": the group is approved" if is_approved else "",
        )

    @override
    async def migrate_chat(
        self, channel: str, workspace: str, old_chat: str, new_chat: str
    ) -> None:
        await self._migrations.migrate(
            ChatMigration(
                channel=channel, workspace=workspace, old_chat=old_chat, new_chat=new_chat
            )
        )

    @override
    def report_ignored(self, channel: str, reason: Disposition, detail: str = "") -> None:
        self._stats.count(channel, reason)
        log.info("event of %s ignored: %s %r", channel, reason, detail[:200])

    async def _handle_change(self, change: MessageEdit | MessageDeletion, what: str) -> Disposition:
        self._capacity.check()
        outcome = await self._edits.handle(change)
        if isinstance(outcome, InboundMessage):
            return await self.receive(outcome)
        self._stats.count(change.key.channel, outcome)
        log.info(
            "message %r of %s in %r was %s: %s (event %r)",
            change.message_id,
            change.key.channel,
            change.key.chat,
            what,
            outcome,
            change.event_id,
        )
        return outcome
