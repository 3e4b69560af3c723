"""The bus, running: one task group that owns adapters, conversations, delivery and housekeeping."""

import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import httpx
from anyio.abc import TaskGroup
from langgraph_sdk.client import LangGraphClient

from bus.buttons import ButtonAction
from bus.commands import CommandRunner, Desks
from bus.commands.conversation import ConversationCommands, Levers
from bus.commands.export import ExportCommand
from bus.commands.gateway import GatewayCommands
from bus.commands.language import LanguageCommand
from bus.commands.rewind import RewindCommands
from bus.commands.selection import SelectionCommands
from bus.commands.why import WhyCommand
from bus.config import BusConfig, ChannelPolicy
from bus.conversation.approvals import Questions
from bus.conversation.effects import TurnEffects
from bus.conversation.steering import Steering
from bus.conversation.workers import ConversationWorkers
from bus.history.turn_history import TurnHistory
from bus.inbound.albums import AlbumCollector
from bus.inbound.button_actions import ButtonActions
from bus.inbound.button_presses import ButtonPressHandler
from bus.inbound.chat_migrations import ChatMigrations
from bus.inbound.dispatcher import InboundDispatcher
from bus.inbound.intake import BusIntake, Shelves
from bus.inbound.message_edits import Door, MessageEditHandler, Rows
from bus.outbound.worker import DeliveryWorker
from bus.platform import Adapter, ChannelHealth, Clock, Disposition
from bus.retry import Backoff
from bus.runs.client import RunClient
from bus.runs.uploads import FileUploader
from bus.settings.language import LanguageResolver
from bus.settings.resolver import SettingsResolver
from bus.settings.sessions import SessionResolver
from bus.supervision import AdapterSupervisor
from store.chat_migrations import ChatMigrationStore
from store.conversation_settings import ConversationSettingsStore
from store.conversations import ConversationStore
from store.database import Database
from store.errors import RowNotFound, StoreError
from store.inbox import InboxStore
from store.message_edits import MessageEditStore
from store.message_history import MessageHistoryStore
from store.message_topics import MessageTopicStore
from store.outbox import OutboxRow, OutboxStore
from store.pairings import Pairing, PairingStore
from store.retention import Retention

log = logging.getLogger(__name__)

FLUSH_S = 1.5
"""How long, after the last turn, what is due may still be sent, seconds."""

RESTARTS = Backoff(first_s=1.0, cap_s=60.0)
"""The waits before an adapter that crashed is started again."""

SWEEP_S = 30.0
"""How often the journal is searched for messages that nobody works on."""

PRUNE_EVERY = 120
"""Sweeps between two prunings: one hour."""


class Bus:
    """The running bus, as the gateway sees it.

    Attributes:
        intake: Where adapters hand messages over.
        inbox, outbox, conversations, pairings, origins: The tables behind it.
    """

    def __init__(self, parts: "_Parts", config: BusConfig, now: Clock) -> None:
        self.intake = parts.intake
        self.inbox = parts.shelves.inbox
        self.conversations = parts.shelves.conversations
        self.origins = parts.shelves.origins
        self.pairings = parts.shelves.pairings
        self.outbox = OutboxStore(parts.database)
        self._delivery = parts.delivery
        self._mailboxes = parts.mailboxes
        self._supervised = parts.supervised
        self._config = config
        self._now = now

    def health(self) -> dict[str, ChannelHealth]:
        """Return the true state of every channel that runs."""
        return {name: adapter.health() for name, adapter in self._supervised.items()}

    def counters(self) -> Mapping[tuple[str, Disposition], int]:
        """Return how many messages had which fate, by channel, since the start."""
        return self.intake.counters()

    def load(self) -> tuple[int, int]:
        """Return how many conversations have a turn at work, and how many messages wait behind these."""
        return self._mailboxes.load

    async def restart(self, name: str) -> None:
        """Connect a channel anew. Raises RowNotFound."""
        if name not in self._supervised:
            raise RowNotFound(f"There is no running channel {name}.")
        self._supervised[name].restart()

    async def resend(self, delivery_id: int) -> OutboxRow:
        """Send a failed or uncertain delivery again. Raises RowNotFound, RowConflict."""
        return await self._delivery.resend(delivery_id)

    async def discard(self, delivery_id: int) -> None:
        """Forget a delivery that is not being sent. Raises RowNotFound, RowConflict."""
        await self._delivery.discard(delivery_id)

    async def approve(self, code: str) -> Pairing:
        """Let the person of a pairing code in. Raises RowNotFound."""
        return await self.pairings.approve(code, now=self._now())

    async def drain(self) -> None:
        """Accept nothing more; give running turns `drain_s` to finish, and their answers a moment to leave.

        Turns that take longer, and messages that wait, are taken up at the next start.
        """
        self.intake.close()
        with anyio.move_on_after(self._config.drain_s):
            await self._mailboxes.close()
        with anyio.move_on_after(FLUSH_S):
            await self._delivery.wait_idle()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the bus is made of."""

    shelves: Shelves
    database: Database
    delivery: DeliveryWorker
    mailboxes: ConversationWorkers
    router: InboundDispatcher
    intake: BusIntake
    supervised: Mapping[str, AdapterSupervisor]
    choices: SettingsResolver


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dependencies:
    """The arguments of `run_bus`."""

    config: BusConfig
    policies: Mapping[str, ChannelPolicy]
    adapters: Mapping[str, Adapter]
    database: Database
    langgraph: LangGraphClient
    gateway: httpx.AsyncClient
    now: Clock = time.time


@asynccontextmanager
async def run_bus(
    *,
    config: BusConfig,
    policies: Mapping[str, ChannelPolicy],
    adapters: Mapping[str, Adapter],
    database: Database,
    langgraph: LangGraphClient,
    gateway: httpx.AsyncClient,
    now: Clock = time.time,
) -> AsyncIterator[Bus]:
    """Run the bus inside the block.

    What an earlier process left is taken up before a channel connects. On exit no message is accepted any
    more, running turns get `config.drain_s`, and only then the channels are cut off, so that answers leave.

    Args:
        config: Limits and the default session.
        policies: Who may talk to the bot, by channel.
        adapters: The platforms to connect, by channel.
        database: The journal, open.
        langgraph: The agent's server.
        gateway: The gateway's REST API; its base URL ends in `/api`.
        now: The wall clock.
    """
    site = _Dependencies(
        config=config,
        policies=policies,
        adapters=adapters,
        database=database,
        langgraph=langgraph,
        gateway=gateway,
        now=now,
    )
    async with anyio.create_task_group() as tasks:
        parts = _build(site, tasks)
        bus = Bus(parts, site.config, site.now)
        await parts.choices.load()
        await parts.shelves.relocations.load(parts.delivery)
        await tasks.start(parts.delivery.run)
        if resumed := await parts.router.resume():
            log.info("%s unfinished messages of an earlier process are taken up", resumed)
        tasks.start_soon(_run_housekeeping, parts, site.now)
        for supervised in parts.supervised.values():
            tasks.start_soon(supervised.run, parts.intake)
        try:
            yield bus
        finally:
            with anyio.move_on_after(site.config.drain_s + 2 * FLUSH_S, shield=True):
                await bus.drain()
            tasks.cancel_scope.cancel()


def _build(site: _Dependencies, tasks: TaskGroup) -> _Parts:
    """Put the parts together, from the bottom up."""
    database, now = site.database, site.now
    choices = SettingsResolver(ConversationSettingsStore(database, now=now))
    shelves = _shelves(site, choices)
    delivery = DeliveryWorker(
        adapters=site.adapters,
        outbox=OutboxStore(database, now=now),
        gateway=site.gateway,
        now=now,
    )
    questions = Questions(MessageHistoryStore(database), delivery)
    mailboxes = _mailboxes(site, tasks, shelves, questions, delivery, choices)
    commands = _commands(site, shelves, delivery, mailboxes, choices)
    albums = AlbumCollector(
        tasks=tasks,
        revisions=shelves.revisions,
        origins=shelves.origins,
        post=mailboxes.enqueue,
        now=now,
    )
    router = InboundDispatcher(
        tasks=tasks,
        inbox=shelves.inbox,
        commands=commands,
        mailboxes=mailboxes,
        albums=albums,
        channels=site.adapters.keys(),
    )
    intake = BusIntake(
        config=site.config,
        policies=site.policies,
        shelves=shelves,
        delivery=delivery,
        hand_over=router.dispatch,
        now=now,
    )
    _answer_events(site, shelves, questions, mailboxes, intake)
    intake.gather(albums)
    intake.expect(questions.pending)
    supervised = {
        name: AdapterSupervisor(adapter, now=now, backoff=RESTARTS)
        for name, adapter in site.adapters.items()
    }
    return _Parts(shelves, database, delivery, mailboxes, router, intake, supervised, choices)


def _shelves(site: _Dependencies, choices: SettingsResolver) -> Shelves:
    database, now = site.database, site.now
    return Shelves(
        inbox=InboxStore(database, now=now),
        conversations=ConversationStore(database, now=now),
        origins=MessageTopicStore(database, now=now),
        pairings=PairingStore(database, now=now),
        revisions=MessageEditStore(database),
        languages=LanguageResolver(site.config, site.policies, choices),
        relocations=ChatMigrations(ChatMigrationStore(database), choices),
    )


def _answer_events(
    site: _Dependencies,
    shelves: Shelves,
    questions: Questions,
    mailboxes: ConversationWorkers,
    intake: BusIntake,
) -> None:
    """Have pressed buttons and changed messages acted on."""
    history = MessageHistoryStore(site.database)
    deeds = ButtonActions(
        history=history, questions=questions, receive=intake.receive, stop=mailboxes.stop_message
    )
    changes = MessageEditHandler(
        rows=Rows(
            inbox=shelves.inbox,
            revisions=shelves.revisions,
            originals=TurnHistory(history, shelves.revisions),
        ),
        door=Door(receive=intake.receive, admits=intake.admits),
        mailboxes=mailboxes,
        delivery=questions.delivery,
        now=site.now,
    )
    presses = ButtonPressHandler(
        policies=site.policies,
        history=history,
        languages=shelves.languages,
        admits=intake.admits,
        deeds={**deeds.by_verb(), ButtonAction.RERUN: changes.rerun},
    )
    intake.answer_presses(presses.press)
    intake.answer_changes(changes.change)


def _mailboxes(
    site: _Dependencies,
    tasks: TaskGroup,
    shelves: Shelves,
    questions: Questions,
    delivery: DeliveryWorker,
    choices: SettingsResolver,
) -> ConversationWorkers:
    runs = RunClient(site.langgraph)
    steering = Steering(
        revisions=shelves.revisions,
        runs=runs,
        uploads=FileUploader(site.gateway),
        delivery=delivery,
    )
    effects = TurnEffects(
        inbox=shelves.inbox,
        conversations=shelves.conversations,
        questions=questions,
        runs=runs,
        steering=steering,
        delivery=delivery,
        limiter=anyio.CapacityLimiter(site.config.max_concurrent_runs),
    )
    return ConversationWorkers(
        tasks=tasks,
        handlers=effects.handlers(),
        sessions=SessionResolver(site.config, site.policies, choices),
        inbox=shelves.inbox,
        conversations=shelves.conversations,
    )


def _commands(
    site: _Dependencies,
    shelves: Shelves,
    delivery: DeliveryWorker,
    mailboxes: ConversationWorkers,
    choices: SettingsResolver,
) -> CommandRunner:
    lookups, runs = GatewayCommands(site.gateway), RunClient(site.langgraph)
    levers = Levers(
        stop=mailboxes.stop, renew=mailboxes.start_new_thread, bootstrap=mailboxes.start_bootstrap
    )
    return CommandRunner(
        inbox=shelves.inbox,
        delivery=delivery,
        desks=Desks(
            threads=ConversationCommands(shelves.conversations, levers),
            lookups=lookups,
            choosing=SelectionCommands(
                choices=choices, conversations=shelves.conversations, lookups=lookups
            ),
            exchanges=RewindCommands(
                inbox=shelves.inbox,
                conversations=shelves.conversations,
                runs=runs,
                mailboxes=mailboxes,
                originals=TurnHistory(MessageHistoryStore(site.database), shelves.revisions),
            ),
            export=ExportCommand(conversations=shelves.conversations, runs=runs),
            speaking=LanguageCommand(choices=choices, languages=shelves.languages),
            why=WhyCommand(policies=site.policies, decisions=shelves.decisions),
        ),
    )


async def _run_housekeeping(parts: _Parts, now: Clock) -> None:
    """Prune the journal every hour, and look for messages that nobody works on."""
    sweeps, retention = 0, Retention(parts.database)
    while True:
        try:
            if sweeps % PRUNE_EVERY == 0:
                await retention.prune(now=now())
            await anyio.sleep(SWEEP_S)
            taken = await parts.router.resume(older_than=now() - SWEEP_S)
            if taken:
                log.warning("%s messages that nobody worked on are taken up again", taken)
        except StoreError as error:
            log.warning("housekeeping waits for the journal: %s", error)
            await anyio.sleep(SWEEP_S)
        except Exception:
            log.exception("housekeeping failed; it is tried again")
            await anyio.sleep(SWEEP_S)
        sweeps += 1
