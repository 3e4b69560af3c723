"""The bus, running: one task group that owns adapters, conversations, delivery and housekeeping."""

import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import httpx
from langgraph_sdk.client import LangGraphClient

from bus.access.intake_stats import IntakeStats
from bus.commands.build import build_commands
from bus.config import BusConfig, ChannelPolicy
from bus.context import BusContext
from bus.conversation.approvals import Questions
from bus.conversation.effects import TurnEffects
from bus.conversation.steering import Steering
from bus.conversation.workers import ConversationWorkers
from bus.inbound.build import build_inbound
from bus.inbound.chat_migrations import ChatMigrations
from bus.inbound.dispatcher import InboundDispatcher
from bus.inbound.intake import BusIntake
from bus.outbound.worker import DeliveryWorker
from bus.platform import Adapter, ChannelHealth, Clock, Disposition
from bus.retry import Backoff
from bus.runs.client import RunClient
from bus.runs.uploads import FileUploader
from bus.settings.language import LanguageResolver
from bus.settings.resolver import SettingsResolver
from bus.settings.sessions import SessionResolver
from bus.stores import JournalStores
from bus.supervision import AdapterSupervisor
from store.database import Database
from store.errors import RowNotFound, StoreError
from store.outbox import OutboxRow
from store.pairings import Pairing
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
        dispatcher: Resumes messages that nobody works on.
        inbox, outbox, conversations, pairings: The journal's stores.
    """

    def __init__(self, parts: "_Parts", config: BusConfig, now: Clock) -> None:
        self.intake = parts.intake
        self.dispatcher = parts.dispatcher
        self.inbox = parts.stores.inbox
        self.conversations = parts.stores.conversations
        self.pairings = parts.stores.pairings
        self.outbox = parts.stores.outbox
        self._delivery = parts.delivery
        self._workers = parts.workers
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
        return self._workers.load

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
            await self._workers.close()
        with anyio.move_on_after(FLUSH_S):
            await self._delivery.wait_idle()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the bus is made of."""

    database: Database
    stores: JournalStores
    settings: SettingsResolver
    migrations: ChatMigrations
    delivery: DeliveryWorker
    workers: ConversationWorkers
    dispatcher: InboundDispatcher
    intake: BusIntake
    supervised: Mapping[str, AdapterSupervisor]


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

    Args: see `BusContext`; `database` is the journal, open.
    """
    async with anyio.create_task_group() as tasks:
        context = BusContext(
            tasks=tasks,
            config=config,
            policies=policies,
            adapters=adapters,
            stores=JournalStores.from_database(database, now=now),
            langgraph=langgraph,
            gateway=gateway,
            now=now,
        )
        parts = _build(context, database)
        bus = Bus(parts, config, now)
        await parts.settings.load()
        await parts.migrations.load()
        await tasks.start(parts.delivery.run)
        if resumed := await parts.dispatcher.resume():
            log.info("%s unfinished messages of an earlier process are resumed", resumed)
        tasks.start_soon(_run_housekeeping, parts, now)
        for supervised in parts.supervised.values():
            tasks.start_soon(supervised.run, parts.intake)
        try:
            yield bus
        finally:
            with anyio.move_on_after(config.drain_s + 2 * FLUSH_S, shield=True):
                await bus.drain()
            tasks.cancel_scope.cancel()


def _build(bus: BusContext, database: Database) -> _Parts:
    """Put the parts together, bottom-up."""
    stores, stats = bus.stores, IntakeStats()
    settings = SettingsResolver(stores.settings)
    languages = LanguageResolver(bus.config, bus.policies, settings)
    delivery = DeliveryWorker(
        adapters=bus.adapters,
        outbox=stores.outbox,
        gateway=bus.gateway,
        now=bus.now,
    )
    migrations = ChatMigrations(store=stores.migrations, settings=settings, delivery=delivery)
    questions = Questions(stores.history, delivery)
    workers = _workers(bus, questions, delivery, settings)
    commands = build_commands(
        bus,
        settings=settings,
        languages=languages,
        stats=stats,
        delivery=delivery,
        workers=workers,
    )
    intake, dispatcher = build_inbound(
        bus,
        languages=languages,
        migrations=migrations,
        delivery=delivery,
        questions=questions,
        workers=workers,
        commands=commands,
        stats=stats,
    )
    supervised = {
        name: AdapterSupervisor(adapter, now=bus.now, backoff=RESTARTS)
        for name, adapter in bus.adapters.items()
    }
    return _Parts(
        database, stores, settings, migrations, delivery, workers, dispatcher, intake, supervised
    )


def _workers(
    bus: BusContext, questions: Questions, delivery: DeliveryWorker, settings: SettingsResolver
) -> ConversationWorkers:
    stores, runs = bus.stores, RunClient(bus.langgraph)
    steering = Steering(
        history=stores.history, runs=runs, uploads=FileUploader(bus.gateway), delivery=delivery
    )
    effects = TurnEffects(
        inbox=stores.inbox,
        conversations=stores.conversations,
        questions=questions,
        runs=runs,
        steering=steering,
        delivery=delivery,
        limiter=anyio.CapacityLimiter(bus.config.max_concurrent_runs),
    )
    return ConversationWorkers(
        tasks=bus.tasks,
        handlers=effects.handlers(),
        sessions=SessionResolver(bus.config, bus.policies, settings),
        inbox=stores.inbox,
        conversations=stores.conversations,
    )


async def _run_housekeeping(parts: _Parts, now: Clock) -> None:
    """Prune the journal every hour, and look for messages that nobody works on."""
    sweeps, retention = 0, Retention(parts.database)
    while True:
        try:
            if sweeps % PRUNE_EVERY == 0:
                await retention.prune(now=now())
            await anyio.sleep(SWEEP_S)
            taken = await parts.dispatcher.resume(older_than=now() - SWEEP_S)
            if taken:
                log.warning("%s messages that nobody worked on are taken up again", taken)
        except StoreError as error:
            log.warning("housekeeping waits for the journal: %s", error)
            await anyio.sleep(SWEEP_S)
        except Exception:
            log.exception("housekeeping failed; it is tried again")
            await anyio.sleep(SWEEP_S)
        sweeps += 1
