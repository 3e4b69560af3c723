"""The running bus: one task group owns adapters, conversations, delivery and housekeeping."""

import logging
import math
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from bus.access.intake_stats import IntakeStats
from bus.access.policy import is_channel_admin
from bus.access.refusal_journal import RefusalJournal
from bus.access.remedy import Remedy, find_remedy, refused_message
from bus.commands.runner import build_commands
from bus.config import BusConfig, ChannelPolicy
from bus.context import AgentServer, BusContext
from bus.conversation.conversations import Conversations
from bus.conversation.open_questions import OpenQuestions
from bus.conversation.run_slots import RunSlots
from bus.conversation.steps import TurnSteps
from bus.errors import AgentThreadNotFound, RunError
from bus.history.message_index import index_messages
from bus.history.transcript import last_words
from bus.history.turn_history import find_rewind_point
from bus.hooks.hooks import Hooks
from bus.inbound.button_presses import answer_again
from bus.inbound.chat_migrations import ChatMigrations
from bus.inbound.dispatcher import InboundDispatcher
from bus.inbound.intake import BusIntake
from bus.inbound.stages import build_inbound
from bus.locales import messages_for
from bus.messages import CONSOLE_EVENT, InboundMessage, decode_inbound, prompt_of
from bus.nodes.failover import ChatFailover
from bus.nodes.forwarding import ForwardingIntake
from bus.notifications.broadcasts import Broadcasts
from bus.notifications.chat_directory import ChatDirectory
from bus.notifications.notifications import Notifications
from bus.notifications.sender import BroadcastSender
from bus.outbound.deliveries import Deliveries
from bus.outbound.retry_policy import RetryTimings
from bus.outbound.rows import text_key
from bus.outbound.worker import DeliveryWorker
from bus.platform import Adapter, ChannelHealth, Clock, Disposition, Intake
from bus.profiles import Profiles
from bus.retry import Backoff, StoreRetry, retried
from bus.runs.port import ThreadFiles
from bus.runs.stream import messages_in
from bus.runs.uploads import FileUploader
from bus.schedules.places import Places
from bus.schedules.scheduler import Scheduler
from bus.schedules.schedules import Schedules, owner_of
from bus.settings.language import LanguageResolver
from bus.settings.resolver import AllowedChoices, SettingsResolver
from bus.settings.sessions import SessionResolver
from bus.settings.timezone import TimezoneResolver
from bus.stores import JournalStores
from bus.supervision import AdapterSupervisor
from bus.takeovers import TAKEOVERS, Takeovers
from bus.tracing import NO_TRACER, MessageTracer
from bus.voice.config import VoiceConfig
from bus.voice.engine import SpeechEngine, open_engine
from bus.voice.speech_reader import SpeechReader
from store.conversations import ConversationKey
from store.database import Database
from store.errors import RowConflict, RowNotFound, StoreError
from store.inbox import InboxRow
from store.node_calls import NodeCalls
from store.outbox import DeliveryState
from store.pairings import Pairing
from store.refused_messages import RefusedRow
from store.retention import Retention
from store.schedules import Schedule
from store.signals import Signals

log = logging.getLogger(__name__)

STATE_S = 5.0
"""Timeout of the request for a thread's state, seconds."""

FLUSH_S = 1.5
"""How long to keep sending due messages after the last turn, seconds."""

RESTARTS = Backoff(first_s=1.0, cap_s=60.0)
"""Waits before restarting a crashed adapter."""

AGAIN_S = 2.0
"""How soon background work begins again after an error, seconds."""

PRUNE_S, RETRY_S = 3600.0, 30.0
"""How often to prune the journal, and how soon to retry after a failure, seconds."""

NO_VOICE = VoiceConfig()

STOP, STOP_S = "bus.stop", 2.0
"""The call that stops a turn on another node, and its time limit, seconds."""

SETTINGS, MIGRATIONS, BROADCASTS, SCHEDULES = "settings", "migrations", "broadcasts", "schedules"
"""Topics of signals between nodes. They say that something of this kind changed."""


class Bus:
    """The running bus, as the gateway sees it.

    Attributes:
        intake: Receives messages and other events from adapters.
        local_intake: Handles events of this node's chats.
        failover: Takes chats of stopped nodes, and gives up this node's chats.
        dispatcher: Resumes messages that have no worker.
        owners, inbox, outbox, conversations, pairings, refused, words, people, known_chats: The journal's stores.
        channels: The platforms, by channel.
        chats: The chats in which people have written to the bot.
        deliveries: Lets administrators change messages to the platforms.
        notifications: Accepts messages from API clients to one chat.
        broadcasts: Accepts messages to many chats.
        broadcast_sender: Sends broadcasts.
        speech_stats: Transcribed recordings since the start.
        hooks: Accepts events of other systems.
        schedules: Creates and changes the schedules of chats.
        scheduler: Sends messages that are due.
        takeovers: Lets people answer instead of the agent.
        profiles: What applies to people and rooms.
    """

    def __init__(
        self,
        context: BusContext,
        *,
        intake: BusIntake,
        dispatcher: InboundDispatcher,
        conversations: Conversations,
        questions: OpenQuestions,
        scheduler: Scheduler,
    ) -> None:
        self.owners = context.stores.owners
        self.intake: Intake = ForwardingIntake(intake, owners=self.owners, calls=context.calls)
        self.dispatcher = dispatcher
        self.inbox = context.stores.inbox
        self.conversations = context.stores.conversations
        self.pairings = context.stores.pairings
        self.outbox = context.stores.outbox
        self.refused = context.stores.refused
        self.words = context.stores.words
        self.people = context.stores.people
        self.known_chats = context.stores.chats
        self.profiles = Profiles(context)
        self.channels = {
            name: AdapterSupervisor(adapter, now=context.now, backoff=RESTARTS)
            for name, adapter in context.adapters.items()
        }
        self.deliveries = Deliveries(
            self.outbox,
            context.stores.discarded,
            context.delivery,
            adapters=context.adapters,
            now=context.now,
        )
        self.chats = ChatDirectory(context.stores.chats, self.inbox, now=context.now)
        self.notifications = Notifications(
            context.stores.notifications,
            outbox=self.outbox,
            delivery=context.delivery,
            directory=self.chats,
            now=context.now,
        )
        self.places = Places(
            delivery=context.delivery,
            languages=context.languages,
            access=context.access,
            directory=self.chats,
            schedules=context.schedules,
        )
        self.takeovers = Takeovers(
            context,
            conversations,
            questions,
            directory=self.chats,
            notifications=self.notifications,
        )
        self.broadcasts = Broadcasts(
            context.stores.notifications,
            files=self.outbox.files,
            directory=self.chats,
            pairings=self.pairings,
            policies=context.policies,
            on_accepted=partial(context.calls.database.signals.publish, BROADCASTS),
            now=context.now,
        )
        self.broadcast_sender = BroadcastSender(
            context.stores.notifications, context.delivery, health=self.health, now=context.now
        )
        self.hooks = Hooks(
            intake.events,
            self.chats,
            channels=context.adapters.keys(),
            now=context.now,
        )
        self.schedules = context.schedules
        self.scheduler = scheduler
        scheduler.accept_with(self.intake)
        self.failover = ChatFailover(context, dispatcher)
        self.speech_stats = context.speech_stats
        self._context = context
        self.local_intake = intake
        self._conversations = conversations
        context.calls.serve(STOP, self._stop_here)

    def health(self) -> dict[str, ChannelHealth]:
        """Return the state of every running channel."""
        return {name: adapter.health() for name, adapter in self.channels.items()}

    def counters(self) -> Mapping[tuple[str, Disposition], int]:
        """Return the number of messages by channel and disposition since the start."""
        return self.local_intake.counters()

    def load(self) -> tuple[int, int]:
        """Return the number of conversations with a running turn, and of messages that wait behind these turns."""
        return self._conversations.load

    def connect(self, tasks: TaskGroup) -> None:
        """Connect the channels. `tasks` owns the connections."""
        for channel in self.channels.values():
            tasks.start_soon(channel.run, self.intake)

    async def restart(self, name: str) -> None:
        """Reconnect a channel. Raises RowNotFound."""
        if name not in self.channels:
            raise RowNotFound(f"There is no running channel {name}.")
        self.channels[name].restart()

    async def stop_message(self, row_id: int) -> bool:
        """Cancel the waiting or running turn of a message for an operator, on whichever node it is. Notifies the chat.

        Returns whether there was one. Raises StoreError.
        """
        if await self._conversations.stop_message(row_id, by_operator=True):
            return True
        answers = await self._context.calls.call_others(STOP, str(row_id), within_s=STOP_S)
        return any(answer for answer in answers.values())

    async def _stop_here(self, row_id: str) -> str:
        stopped = await self._conversations.stop_message(int(row_id), by_operator=True)
        return "stopped" if stopped else ""

    async def repeat_message(self, row: InboxRow, text: str | None) -> Disposition:
        """Answer a message again, with different words unless `text` is None. The answer replaces the earlier one.

        Raises like `Intake.receive`, and ValueError for a damaged row.
        """
        asked = replace(decode_inbound(row.body), key=row.key)
        point = await find_rewind_point(self._context.stores.history, row, asked)
        words = asked.text if text is None else text
        again = answer_again(
            replace(asked, text=words),
            event_id=f"{CONSOLE_EVENT}{row.id}:{uuid.uuid4().hex}",
            rewind_point=replace(point, text=prompt_of(words, asked.quoted)),
        )
        return await self.intake.receive(again)

    async def answer_refused(self, row: RefusedRow) -> Disposition:
        """Accept a refused message after all, and delete its row. A second call has no effect.

        Raises like `Intake.receive`, and RowConflict if its sender is not admitted, or the message was not kept.
        """
        (remedy,) = await self.find_remedies([row])
        message = refused_message(row)
        if message is None or not remedy.can_answer:
            raise RowConflict("The message cannot be answered: its sender is not admitted.")
        again = answer_again(
            message, event_id=f"{CONSOLE_EVENT}refused:{row.id}", rewind_point=None
        )
        disposition = await self.intake.receive(again)
        if disposition in (Disposition.ACCEPTED, Disposition.DUPLICATE):
            await self.refused.delete(row.id)
        return disposition

    async def approve(self, code: str) -> Pairing:
        """Approve the person or group with a pairing code, and tell them. Raises RowNotFound, StoreError."""
        return self._tell(await self.pairings.approve(code, now=self._context.now()))

    async def admit(self, row: RefusedRow) -> Pairing:
        """Approve the person or group of a refused message, and tell them.

        Raises:
            RowConflict: An approval would not make the bot answer them.
            StoreError: Nothing was stored.
        """
        (remedy,) = await self.find_remedies([row])
        message = refused_message(row)
        if message is None or remedy.kind not in ("person", "chat"):
            setting = f" {remedy.setting} decides about it." if remedy.setting else ""
            raise RowConflict(f"An approval would change nothing here.{setting}")
        target = replace(message.reply_target, language=self._context.languages.resolve(message))
        return self._tell(await self._context.access.admit(replace(message, reply_target=target)))

    async def find_remedies(self, rows: Sequence[RefusedRow]) -> list[Remedy]:
        """Return what would make the bot answer each of these refused messages. Raises StoreError."""
        approved: set[tuple[str, str, str]] = set()
        if any(row.body for row in rows):
            listed = await self.pairings.list_all()
            approved = {
                (one.channel, one.workspace, one.user_id) for one in listed if one.approved_at
            }
        return [find_remedy(row, self._context.policies, approved) for row in rows]

    def _tell(self, approved: Pairing) -> Pairing:
        """Send the notice of an approval, which is already in the outbox."""
        key = ConversationKey(
            channel=approved.channel,
            workspace=approved.workspace,
            chat=approved.chat,
            topic=approved.topic,
        )
        self._context.delivery.notify(key)
        return approved

    async def find_place(self, channel: str, chat: str, topic: str) -> InboundMessage:
        """Return the newest message of a chat, or of one topic of it. Raises RowNotFound, StoreError."""
        row = await self.inbox.find_newest(channel, chat, topic)
        if row is None:
            raise RowNotFound(f"Nobody has written to the bot in this chat of {channel} recently.")
        return replace(decode_inbound(row.body), key=row.key)

    async def find_asked(self, thread_id: str) -> InboundMessage | None:
        """Return the message that a thread's running turn answers; None = there is none. Raises StoreError."""
        row = await self.inbox.find_running(thread_id)
        return None if row is None else replace(decode_inbound(row.body), key=row.key)

    def may_change(self, schedule: Schedule, asked: InboundMessage) -> bool:
        """Return whether the sender of a message may change a schedule: its owner, or an administrator."""
        is_owner = owner_of(schedule).sender.user_id == asked.sender.user_id
        policies, channel = self._context.policies, asked.key.channel
        return is_owner or is_channel_admin(policies, channel, asked.sender)

    def now(self) -> float:
        """Return the time, Unix seconds."""
        return self._context.now()

    async def delivery_state(self, inbox_id: int | None) -> DeliveryState | None:
        """Return the state of the first message that answers an inbox row; None = there is none (anymore)."""
        if inbox_id is None:
            return None
        found = await self.outbox.find(text_key(str(inbox_id), 0))
        return None if found is None else found.state

    async def last_words(self, key: ConversationKey, *, count: int) -> list[tuple[bool, str]]:
        """Return the last messages of a conversation. See `history.transcript.last_words`.

        Empty if there are none, or if the agent's server does not respond in time. Raises StoreError.
        """
        found = await self.conversations.find(key)
        if found is None or found.thread_id is None:
            return []
        state = await self.thread_state(found.thread_id) or {}
        return last_words(messages_in(state), messages_for(""), count=count)

    async def thread_state(self, thread_id: str) -> Mapping[str, Any] | None:
        """Return the current values of a thread; empty if it has none.

        None if the agent's server does not respond in time.
        """
        try:
            with anyio.fail_after(STATE_S):
                return await self._context.runs.get_state(thread_id)
        except AgentThreadNotFound:
            return {}
        except (RunError, TimeoutError) as error:
            log.info("the state of thread %s cannot be read: %r", thread_id, error)
            return None

    async def drain(self) -> None:
        """Accept nothing more. Give running turns `drain_s` to finish, and send their answers.

        If there is another node, runs end as soon as their current step is stored, and that node continues unfinished
        turns and waiting messages at once. Otherwise, the next start continues them.
        """
        self.local_intake.close()
        self.broadcast_sender.stop()
        self.scheduler.stop()
        drain_s = self._context.config.drain_s
        with anyio.move_on_after(drain_s + 2 * FLUSH_S, shield=True):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._hand_over)
                with anyio.move_on_after(drain_s):
                    await self._conversations.close()
                with anyio.move_on_after(FLUSH_S):
                    await self._context.delivery.wait_idle()
                tasks.cancel_scope.cancel()

    async def _hand_over(self) -> None:
        await self.failover.hand_over(self._conversations)
        await self.local_intake.wait_idle()
        await self.failover.leave()


@asynccontextmanager
async def run_bus(
    *,
    config: BusConfig,
    policies: Mapping[str, ChannelPolicy],
    adapters: Mapping[str, Adapter],
    calls: NodeCalls,
    server: AgentServer,
    voice: VoiceConfig = NO_VOICE,
    now: Clock = time.time,
    tracer: MessageTracer = NO_TRACER,
) -> AsyncIterator[Bus]:
    """Run the bus inside the block.

    Resumes the work of an earlier process before it connects the channels. On exit, it accepts no more messages and
    gives running turns `config.drain_s` to finish. Only then does it disconnect the channels, so that answers can be
    sent.
    Args: See `BusContext`. `calls` are calls to other nodes; `voice` says how to transcribe recordings.
    """
    database = calls.database
    async with open_engine(voice) as engine, anyio.create_task_group() as tasks:
        stores = JournalStores.from_database(database, now=now)
        publish, allowed = database.signals.publish, AllowedChoices(policies)
        journal = RefusalJournal(stores.refused, now=now, on_stored=tracer.record_refusals)
        settings = SettingsResolver(stores.settings, partial(publish, SETTINGS), allowed=allowed)
        context = BusContext(
            tasks=tasks,
            config=config,
            policies=policies,
            adapters=adapters,
            stores=stores,
            calls=calls,
            runs=server.runs,
            files=server.files,
            gateway=server.gateway,
            graphs=server.graphs,
            delivery=_delivery_worker(adapters, stores, server.files, database, now, tracer),
            settings=settings,
            languages=LanguageResolver(config, policies, settings),
            schedules=Schedules(
                stores.schedules,
                TimezoneResolver(config, settings),
                can_check=server.checks is not None,
                on_change=partial(publish, SCHEDULES),
                now=now,
            ),
            now=now,
            stats=IntakeStats(journal),
            tracer=tracer,
        )
        tasks.start_soon(_repeated, "the journal of refused messages", journal.run)
        migrations = ChatMigrations(context, partial(publish, MIGRATIONS))
        await settings.load()
        await migrations.reload()
        bus = _build(context, migrations, server, voice, engine)
        await tasks.start(context.delivery.run)
        await _take_up(context, bus, migrations, database)
        bus.connect(tasks)
        try:
            yield bus
        finally:
            await bus.drain()
            with suppress(StoreError):
                await journal.flush()
            bus.dispatcher.close()
            tasks.cancel_scope.cancel()


async def _take_up(
    context: BusContext,
    bus: Bus,
    migrations: ChatMigrations,
    database: Database,
) -> None:
    """Resume the work of an earlier process. From now on, also resume work of other nodes and follow their changes."""
    context.tasks.start_soon(_take_housekeeping, bus, database, context)
    context.tasks.start_soon(bus.broadcast_sender.run, context.nodes)
    context.tasks.start_soon(_reload, database.signals, BROADCASTS, bus.broadcast_sender.wake)
    context.tasks.start_soon(_repeated, "takeovers", bus.takeovers.run)
    context.tasks.start_soon(_reload, database.signals, TAKEOVERS, bus.takeovers.wake)
    context.tasks.start_soon(bus.scheduler.run, context.nodes)
    context.tasks.start_soon(_reload, database.signals, SCHEDULES, bus.scheduler.wake)
    context.tasks.start_soon(_reload, database.signals, SETTINGS, context.settings.load)
    context.tasks.start_soon(_reload, database.signals, MIGRATIONS, migrations.reload)
    await bus.failover.search()
    context.tasks.start_soon(bus.failover.run)


async def _reload(signals: Signals, topic: str, load: Callable[[], Awaitable[None]]) -> None:
    """Reload settings and migrations whenever other nodes signal a change."""
    store = StoreRetry(topic)
    with signals.subscribe(topic) as payloads:
        signals.publish(topic)  # Load changes from before this process received signals.
        async for _ in payloads:
            await store.call(load)


def _build(
    context: BusContext,
    migrations: ChatMigrations,
    server: AgentServer,
    voice: VoiceConfig,
    engine: SpeechEngine | None,
) -> Bus:
    """Build the parts, bottom-up."""
    stores, runs, delivery = context.stores, context.runs, context.delivery
    questions = OpenQuestions(stores.history, delivery)
    speech = SpeechReader(
        voice,
        engine,
        inbox=retried(stores.inbox, "speech"),
        delivery=retried(delivery, "speech"),
        stats=context.speech_stats,
        now=context.now,
    )
    steps = TurnSteps(
        inbox=stores.inbox,
        conversations=stores.conversations,
        history=stores.history,
        questions=questions,
        runs=runs,
        uploads=FileUploader(context.files, speech.of_message),
        delivery=delivery,
        slots=RunSlots(context.config.max_concurrent_runs),
        max_chars=context.config.max_answer_chars,
        now=context.now,
        tracer=context.tracer,
    )
    conversations = Conversations(
        tasks=context.tasks,
        steps=steps,
        sessions=SessionResolver(
            context.config, context.policies, context.settings, context.graphs
        ),
        inbox=stores.inbox,
        conversations=stores.conversations,
        stats=context.stats,
        tracer=context.tracer,
        now=context.now,
    )
    scheduler = Scheduler(
        stores.schedules,
        delivery=delivery,
        conversations=stores.conversations,
        channels=[*context.adapters],
        runs=server.schedules,
        checks=server.checks,
        now=context.now,
    )
    intake, dispatcher = build_inbound(
        context,
        migrations=migrations,
        questions=questions,
        conversations=conversations,
        commands=build_commands(context, conversations, scheduler),
        scheduler=scheduler,
    )
    return Bus(
        context,
        intake=intake,
        dispatcher=dispatcher,
        conversations=conversations,
        questions=questions,
        scheduler=scheduler,
    )


def _delivery_worker(
    adapters: Mapping[str, Adapter],
    stores: JournalStores,
    files: ThreadFiles,
    database: Database,
    now: Clock,
    tracer: MessageTracer,
) -> DeliveryWorker:
    """Return the delivery worker. It waits for working credentials as long as failed rows are kept."""
    days = database.retention_days or math.inf
    timings = RetryTimings(credentials_after_s=days * 24 * 3600)
    return DeliveryWorker(adapters, stores.outbox, files, now=now, timings=timings, tracer=tracer)


async def _take_housekeeping(bus: Bus, database: Database, context: BusContext) -> None:
    """While this node holds the role, do the work that only one node does at a time."""
    while True:
        async with database.nodes.exclusive("housekeeping"), anyio.create_task_group() as tasks:
            index = partial(index_messages, bus.words, context.tracer.record_index)
            tasks.start_soon(_repeated, "the index of messages", index)
            await _run_housekeeping(bus, database, context.now)


async def _repeated(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run endless work until canceled, and start it again after an error."""
    while True:
        try:
            await work()
        except StoreError as error:
            log.warning("%s waits for the journal: %s", name, error)
        except Exception:
            log.exception("%s failed and will be retried", name)
        await anyio.sleep(AGAIN_S)


async def _run_housekeeping(bus: Bus, database: Database, now: Clock) -> None:
    """Prune the journal every hour."""
    retention = Retention(database)
    while True:
        try:
            await bus.chats.refresh()
            await retention.prune(now=now())
        except StoreError as error:
            log.warning("housekeeping waits for the journal: %s", error)
            await anyio.sleep(RETRY_S)
        except Exception:
            log.exception("housekeeping failed and will be retried")
            await anyio.sleep(RETRY_S)
        else:
            await anyio.sleep(PRUNE_S)
