"""Builds the inbound side, bottom-up: the pipeline's stages in their order, and the handlers of other events."""

from bus.access.checker import AccessChecker
from bus.access.intake_stats import IntakeStats
from bus.access.rate_limits import SenderRateLimiter
from bus.commands.runner import CommandRunner
from bus.context import BusContext
from bus.conversation.approvals import Questions
from bus.conversation.workers import ConversationWorkers
from bus.history.turn_history import TurnHistory
from bus.inbound.button_actions import ButtonActions
from bus.inbound.button_presses import ButtonPressHandler
from bus.inbound.chat_migrations import ChatMigrations
from bus.inbound.dispatcher import InboundDispatcher
from bus.inbound.intake import BusIntake
from bus.inbound.message_edits import MessageEditHandler
from bus.inbound.notices import IntakeNotices
from bus.inbound.pipeline import InboundPipeline, IntakeCapacity, Stage
from bus.inbound.rerun_offers import RerunOffers
from bus.inbound.stages.access import AccessStage
from bus.inbound.stages.album import AlbumCollector
from bus.inbound.stages.clean import clean
from bus.inbound.stages.command import recognize_command
from bus.inbound.stages.commit import CommitStage
from bus.inbound.stages.deduplicate import DeduplicateStage
from bus.inbound.stages.limits import LimitStage
from bus.inbound.stages.localize import LocalizeStage
from bus.inbound.stages.place import PlaceStage
from bus.outbound.worker import DeliveryWorker
from bus.settings.language import LanguageResolver


def build_inbound(
    bus: BusContext,
    *,
    languages: LanguageResolver,
    migrations: ChatMigrations,
    delivery: DeliveryWorker,
    questions: Questions,
    workers: ConversationWorkers,
    commands: CommandRunner,
    stats: IntakeStats,
) -> tuple[BusIntake, InboundDispatcher]:
    """Return the intake of all adapters, and the dispatcher behind it."""
    stores, now = bus.stores, bus.now
    capacity = IntakeCapacity(bus.config.max_intake)
    limiter = SenderRateLimiter()
    access = AccessChecker(policies=bus.policies, pairings=stores.pairings, now=now)
    localize = LocalizeStage(languages=languages, migrations=migrations, adapters=bus.adapters)
    notices = IntakeNotices(
        access=access, limiter=limiter, localizer=localize, delivery=delivery, now=now
    )
    album = AlbumCollector(
        tasks=bus.tasks, edits=stores.edits, topics=stores.topics, workers=workers, now=now
    )
    dispatcher = InboundDispatcher(
        tasks=bus.tasks,
        inbox=stores.inbox,
        commands=commands,
        workers=workers,
        albums=album,
        channels=bus.adapters.keys(),
    )
    deduplicate = DeduplicateStage()
    stages: tuple[Stage, ...] = (
        clean,
        recognize_command,
        deduplicate,
        album,
        PlaceStage(
            expected=questions.pending,
            topics=stores.topics,
            conversations=stores.conversations,
            delivery=delivery,
        ),
        AccessStage(access=access, notices=notices),
        localize,
        LimitStage(config=bus.config, policies=bus.policies, limiter=limiter, now=now),
        CommitStage(
            config=bus.config,
            adapters=bus.adapters,
            inbox=stores.inbox,
            deduplicate=deduplicate,
            limiter=limiter,
            notices=notices,
            dispatcher=dispatcher,
            now=now,
        ),
    )
    pipeline = InboundPipeline(stages, capacity=capacity, stats=stats, now=now)
    reruns = RerunOffers(
        history=TurnHistory(stores.history, stores.edits),
        pipeline=pipeline,
        delivery=delivery,
        now=now,
    )
    actions = ButtonActions(
        history=stores.history,
        questions=questions,
        pipeline=pipeline,
        workers=workers,
        reruns=reruns,
    )
    intake = BusIntake(
        pipeline=pipeline,
        presses=ButtonPressHandler(
            access=access, history=stores.history, languages=languages, actions=actions.by_action()
        ),
        edits=MessageEditHandler(
            inbox=stores.inbox,
            edits=stores.edits,
            access=access,
            workers=workers,
            reruns=reruns,
            now=now,
        ),
        migrations=migrations,
        access=access,
        capacity=capacity,
        stats=stats,
    )
    return intake, dispatcher
