"""Where messages come in: decide, commit, hand over; then the platform may be acknowledged."""

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

import anyio
from typing_extensions import override

from bus.access.expected_replies import ExpectedReplies
from bus.access.intake_stats import IntakeStats
from bus.access.policy import decide_access, effective_dm_policy
from bus.access.rate_limits import COMMAND_LIMIT, SenderRateLimiter, rate_limit_for, whole_seconds
from bus.commands import parse_command
from bus.config import BusConfig, ChannelPolicy, RateLimit
from bus.errors import IntakeClosed, IntakeFull
from bus.inbound.albums import AlbumCollector
from bus.inbound.button_presses import PressOutcome
from bus.inbound.chat_migrations import ChatMigrations
from bus.inbound.cleaning import clean_message
from bus.locales import messages_for
from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    MessageEdit,
    OutboundText,
    PressResponse,
    Sender,
    encode_inbound,
    encode_outbound,
)
from bus.outbound.worker import DeliveryWorker
from bus.platform import Clock, Disposition, Intake
from bus.settings.language import LanguageResolver
from store.conversations import ChatMigration, ConversationStore
from store.errors import StoreUnavailable
from store.inbox import DuplicateMessage, InboxRow, InboxStore, NewInboxRow, QueueFull
from store.message_edits import MessageEditStore
from store.message_topics import MessageTopicStore
from store.outbox import NewOutboxRow
from store.pairings import Pairing, PairingStore

log = logging.getLogger(__name__)

COMMIT_S = 10.0
"""How long a commit may take. A caller that gives up earlier does not undo it: what is kept is handed over."""

RECORDED_S = 1.0
"""How long a reply to an unknown message waits for the sends under way in its chat, of which it may answer one."""

BURST_S = 60.0
"""A person whose messages are refused is told once in this time, seconds."""

CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
CODE_LENGTH = 8
"""32 letters without 0, O, 1, I: 40 bits, good for an hour, at most 100 open a channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelves:
    """The tables that the intake reads and writes, and what it keeps in mind."""

    inbox: InboxStore
    conversations: ConversationStore
    origins: MessageTopicStore
    pairings: PairingStore
    revisions: MessageEditStore
    languages: LanguageResolver
    relocations: ChatMigrations
    decisions: IntakeStats = field(default_factory=IntakeStats)
    rates: SenderRateLimiter = field(default_factory=SenderRateLimiter)


class BusIntake(Intake):
    """The one door for messages of every platform.

    Args:
        hand_over: Called with every committed row; must return at once.
    """

    def __init__(
        self,
        *,
        config: BusConfig,
        policies: Mapping[str, ChannelPolicy],
        shelves: Shelves,
        delivery: DeliveryWorker,
        hand_over: Callable[[InboxRow, InboundMessage], None],
        now: Clock,
    ) -> None:
        self._config = config
        self._policies = policies
        self._shelves = shelves
        self._delivery = delivery
        self._hand_over = hand_over
        self._now = now
        self._closed = False
        self._admitted = 0
        self._told: dict[int, float] = {}
        self._albums: AlbumCollector | None = None
        self._pending: ExpectedReplies | None = None
        self._answer_press: Callable[[ButtonPress], Awaitable[PressOutcome]] = self._inactive
        self._answer_change: Callable[
            [MessageEdit | MessageDeletion], Awaitable[Disposition | InboundMessage]
        ] = _untouched

    def answer_presses(self, answer: Callable[[ButtonPress], Awaitable[PressOutcome]]) -> None:
        """Have pressed buttons acted on; before this, none is active."""
        self._answer_press = answer

    def gather(self, albums: AlbumCollector) -> None:
        """Have files that are sent together be one message; before this, each is one."""
        self._albums = albums

    def expect(self, pending: ExpectedReplies) -> None:
        """Have plain answers to questions go where was asked; before this, they begin a conversation."""
        self._pending = pending

    def answer_changes(
        self,
        answer: Callable[[MessageEdit | MessageDeletion], Awaitable[Disposition | InboundMessage]],
    ) -> None:
        """Have changed messages acted on; before this, none is."""
        self._answer_change = answer

    def close(self) -> None:
        """Accept nothing more."""
        self._closed = True

    def counters(self) -> Mapping[tuple[str, Disposition], int]:
        """Return how many messages had which fate, by channel, since the start."""
        return self._shelves.decisions.counts()

    @override
    async def receive(self, inbound: InboundMessage) -> Disposition:
        self._check_room()
        self._admitted += 1
        try:
            clean = clean_message(inbound)
            joined = await self._joined(clean)
            if joined is not None:
                return joined
            clean = self._expected(self._late(clean))
            if clean.replies_to and not await self._answers_known(clean):
                key = clean.key
                await self._delivery.wait_recorded(
                    key.channel, clean.reply_target.chat, within_s=RECORDED_S
                )
            reason = await self._decided(clean)
            if reason is Disposition.PAIRING:
                await self._ask_to_pair(self._placed(clean))
            elif reason is Disposition.ACCEPTED:
                reason = await self._accepted(self._placed(clean))
            elif reason is Disposition.NOT_ADDRESSED and clean.album and self._albums is not None:
                self._albums.keep_unaddressed(clean)
        finally:
            self._admitted -= 1
        self._shelves.decisions.record(clean, reason, at=self._now())
        log.info(
            "message of %s in %s %r: %s (event %r, sender %r)",
            clean.key.channel,
            "private chat" if clean.private else "group",
            clean.key.chat,
            reason,
            clean.event_id,
            clean.sender.user_id,
        )
        return reason

    @override
    async def handle_button_press(self, press: ButtonPress) -> PressResponse:
        self._check_room()
        outcome = await self._answer_press(press)
        self._shelves.decisions.count(press.key.channel, outcome.reason)
        log.info(
            "button %r of %s in %r: %s (event %r, presser %r)",
            press.token,
            press.key.channel,
            press.key.chat,
            outcome.reason,
            press.event_id,
            press.sender.user_id,
        )
        return outcome.answer

    async def admits(self, inbound: InboundMessage) -> Disposition:
        """Return whether its sender may talk to the bot, as `receive` would decide. Raises StoreError."""
        return await self._decided(inbound)

    @override
    async def handle_edit(self, edit: MessageEdit) -> Disposition:
        return await self._change(edit)

    @override
    async def handle_deletion(self, deletion: MessageDeletion) -> Disposition:
        return await self._change(deletion)

    async def _change(self, change: MessageEdit | MessageDeletion) -> Disposition:
        self._check_room()
        outcome = await self._answer_change(change)
        if isinstance(outcome, InboundMessage):
            return await self.receive(outcome)
        self._shelves.decisions.count(change.key.channel, outcome)
        log.info(
            "message %r of %s in %r was %s: %s (event %r)",
            change.message_id,
            change.key.channel,
            change.key.chat,
            "deleted" if isinstance(change, MessageDeletion) else "edited",
            outcome,
            change.event_id,
        )
        return outcome

    @override
    async def migrate_chat(
        self, channel: str, workspace: str, old_chat: str, new_chat: str
    ) -> None:
        move = ChatMigration(
            channel=channel, workspace=workspace, old_chat=old_chat, new_chat=new_chat
        )
        await self._shelves.relocations.migrate(move, self._delivery)

    @override
    async def handle_bot_added(self, key: ConversationKey, added_by: Sender) -> None:
        log.info("bot added to chat %r of %s by %r", key.chat, key.channel, added_by.user_id)

    @override
    def report_ignored(self, channel: str, reason: Disposition, detail: str = "") -> None:
        self._shelves.decisions.count(channel, reason)
        log.info("event of %s ignored: %s %r", channel, reason, detail[:200])

    def _check_room(self) -> None:
        """Raise IntakeClosed, or IntakeFull where too much is being accepted at once."""
        if self._closed:
            raise IntakeClosed
        if self._admitted >= self._config.max_intake:
            raise IntakeFull

    async def _inactive(self, press: ButtonPress) -> PressOutcome:
        said = messages_for(self._shelves.languages.resolve(press)).press_inactive
        return PressOutcome(Disposition.TOO_LATE, said)

    async def _joined(self, inbound: InboundMessage) -> Disposition | None:
        """Add one of several files that are sent together to the message they are; None if it is not such a one."""
        if not inbound.album or self._albums is None:
            return None
        reason = await self._albums.add(inbound)
        if reason is not None:
            self._shelves.decisions.record(inbound, reason, at=self._now())
        return reason

    def _late(self, inbound: InboundMessage) -> InboundMessage:
        return self._albums.assign_late_part(inbound) if inbound.album and self._albums else inbound

    def _expected(self, inbound: InboundMessage) -> InboundMessage:
        """Return a message that answers a question without saying so where the question was asked."""
        if self._pending is None or parse_command(inbound.text) is not None:
            return inbound
        return self._pending.assign(inbound)

    async def _decided(self, inbound: InboundMessage) -> Disposition:
        policy = self._policies.get(inbound.key.channel)
        if policy is None:
            return Disposition.DISABLED
        paired = (
            inbound.private
            and effective_dm_policy(policy) == "pairing"
            and await self._paired(inbound)
        )
        known = not inbound.private and not inbound.addressed and await self._known(inbound)
        return decide_access(inbound, policy, paired=paired, known=known)

    def _placed(self, inbound: InboundMessage) -> InboundMessage:
        """Return the message with the language in which it is answered, and the room that it belongs to.

        What a button says was not written by whoever pressed it: their conversation goes on in its language.
        """
        pressed_in = inbound.reply_target.language if inbound.answers_row else ""
        language = pressed_in or self._shelves.languages.resolve(inbound)
        room = self._shelves.relocations.original_chat(inbound.key)
        adapter = self._delivery.find_adapter(inbound.key.channel)
        sign = adapter.capabilities.command_prefix if adapter is not None else "/"
        place = replace(inbound.reply_target, language=language, command_prefix=sign)
        return replace(inbound, reply_target=place, original_chat=room)

    async def _paired(self, inbound: InboundMessage) -> bool:
        key = inbound.key
        return await self._shelves.pairings.is_paired(
            key.channel, key.workspace, inbound.sender.user_id
        )

    async def _known(self, inbound: InboundMessage) -> bool:
        """Return whether a message answers one of a conversation in which the bot takes part."""
        if not inbound.replies_to:
            return False
        return await self._answers_known(inbound) or (
            bool(inbound.key.topic)
            and await self._shelves.conversations.find(inbound.key) is not None
        )

    async def _answers_known(self, inbound: InboundMessage) -> bool:
        """Return whether a message replies to one that holds a conversation together."""
        for message_id in inbound.replies_to:
            if await self._shelves.origins.find_topic(inbound.key, message_id) is not None:
                return True
        return False

    async def _accepted(self, inbound: InboundMessage) -> Disposition:
        """Commit a message and hand it over, also if the caller goes away meanwhile."""
        command = parse_command(inbound.text) is not None
        new = NewInboxRow(
            key=inbound.key,
            event_id=inbound.event_id,
            message_id=inbound.message_id,
            replies_to=inbound.replies_to,
            remember=inbound.track_replies,
            kind="command" if command else "chat",
            body=encode_inbound(inbound),
            received_at=self._now(),
        )
        try:
            with anyio.fail_after(COMMIT_S, shield=True):
                return await self._committed(inbound, new)
        except TimeoutError:
            raise StoreUnavailable("The journal did not take the message in time.") from None

    async def _committed(self, inbound: InboundMessage, new: NewInboxRow) -> Disposition:
        limit = self._limit(new)
        wait_s = self._shelves.rates.acquire(inbound, limit, lane=new.kind, now=self._now())
        # One that comes too fast is remembered like one for a full conversation: sent again, it is not run later.
        cap = 0 if wait_s else self._cap(inbound.key.channel)
        result = await self._shelves.inbox.accept(new, cap=cap)
        if not wait_s and not isinstance(result, InboxRow):
            self._shelves.rates.release(inbound, lane=new.kind)
        match result:
            case DuplicateMessage():
                return Disposition.DUPLICATE
            case QueueFull() if wait_s:
                if self._shelves.rates.should_notify(
                    inbound, limit, lane=new.kind, now=self._now()
                ):
                    await self._tell_too_fast(result.key, inbound, wait_s)
                return Disposition.RATE_LIMITED
            case QueueFull():
                await self._tell_full(inbound, result)
                return Disposition.QUEUE_FULL
            case InboxRow():
                self._hand_over(result, replace(inbound, key=result.key))
                return Disposition.ACCEPTED
            case _:
                assert_never(result)

    def _limit(self, new: NewInboxRow) -> RateLimit:
        if new.kind == "command":
            return COMMAND_LIMIT
        return rate_limit_for(self._config, self._policies.get(new.key.channel))

    def _cap(self, channel: str) -> int:
        adapter = self._delivery.find_adapter(channel)
        if adapter is None:
            return self._config.max_queue
        return min(self._config.max_queue, adapter.capabilities.max_queue)

    async def _tell_full(self, inbound: InboundMessage, full: QueueFull) -> None:
        """Say, once a burst, that this conversation takes no more."""
        now = self._now()
        self._told = {row: at for row, at in self._told.items() if 0 <= now - at < BURST_S}
        if full.conversation_id in self._told:
            return
        self._told[full.conversation_id] = now
        text = inbound.reply_target.texts.queue_full.format(count=full.pending)
        await self._say(full.key, f"full:{full.conversation_id}:{inbound.event_id}", inbound, text)

    async def _tell_too_fast(
        self, key: ConversationKey, inbound: InboundMessage, wait_s: float
    ) -> None:
        text = inbound.reply_target.texts.rate_limited.format(seconds=whole_seconds(wait_s))
        await self._say(key, f"fast:{key.channel}:{inbound.event_id}", inbound, text)

    async def _ask_to_pair(self, inbound: InboundMessage) -> None:
        """Note a stranger's request, and tell them its code once."""
        key = inbound.key
        request = await self._shelves.pairings.request(
            Pairing(
                code="".join(secrets.choice(CODE_LETTERS) for _ in range(CODE_LENGTH)),
                channel=key.channel,
                workspace=key.workspace,
                user_id=inbound.sender.user_id,
                user_name=inbound.sender.name,
                chat=key.chat,
                created_at=self._now(),
                approved_at=None,
            )
        )
        if request is None:
            log.warning("too many people of %s wait to be paired", key.channel)
            return
        text = inbound.reply_target.texts.pairing_code.format(code=request.code)
        await self._say(key, f"pairing:{request.code}", inbound, text)

    async def _say(
        self, key: ConversationKey, name: str, inbound: InboundMessage, text: str
    ) -> None:
        body = OutboundText(channel=key.channel, reply_target=inbound.reply_target, markdown=text)
        owed = NewOutboxRow(key=name, conversation=key, body=encode_outbound(body))
        await self._delivery.enqueue(key, [owed])


async def _untouched(_: MessageEdit | MessageDeletion) -> Disposition:
    return Disposition.UNSUPPORTED
