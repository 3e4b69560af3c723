"""Builds the inbound side, bottom-up: the pipeline's stages in their order, and the handlers of other events."""

from bus.access.checker import AccessChecker
from bus.access.intake_stats import IntakeStats
from bus.access.rate_limits import SenderRateLimiter
from bus.commands.runner import CommandRunner
from bus.context import BusContext
from bus.conversation.approvals import Questions
from bus.conversation.workers import ConversationWorkers
from bus.inbound.access import AccessStage
from bus.inbound.album import AlbumCollector
from bus.inbound.bot_messages import BotMessageStage
from bus.inbound.button_actions import ButtonActions
from bus.inbound.button_presses import ButtonPressHandler
from bus.inbound.chat_migrations import ChatMigrations
from bus.inbound.clean import clean
from bus.inbound.command import recognize_command
from bus.inbound.commit import CommitStage
from bus.inbound.deduplicate import DeduplicateStage
from bus.inbound.dispatcher import InboundDispatcher
from bus.inbound.intake import BusIntake
from bus.inbound.limits import LimitStage
from bus.inbound.localize import LocalizeStage
from bus.inbound.message_edits import MessageEditHandler
from bus.inbound.notices import IntakeNotices
from bus.inbound.pipeline import InboundPipeline, IntakeCapacity, Stage
from bus.inbound.place import PlaceStage
from bus.inbound.rerun_offers import RerunOffers
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
    access = AccessChecker(policies=bus.policies, pairings=stores.pairings, now=now)
    localize = LocalizeStage(languages=languages, migrations=migrations, adapters=bus.adapters)
    album = AlbumCollector(bus, workers)
    dispatcher = InboundDispatcher(bus, commands=commands, workers=workers, albums=album)
    place = PlaceStage(
        expected=questions.pending,
        topics=stores.topics,
        conversations=stores.conversations,
        delivery=delivery,
    )
    stages = _stages(bus, album, place, access, localize, delivery, dispatcher)
    pipeline = InboundPipeline(stages, capacity=capacity, stats=stats, now=now)
    reruns = RerunOffers(history=stores.history, pipeline=pipeline, delivery=delivery, now=now)
    intake = BusIntake(
        pipeline=pipeline,
        presses=_presses(bus, access, languages, questions, workers, pipeline, reruns),
        edits=MessageEditHandler(bus, access=access, workers=workers, reruns=reruns),
        migrations=migrations,
        access=access,
        capacity=capacity,
        stats=stats,
    )
    return intake, dispatcher


def _stages(
    bus: BusContext,
    album: AlbumCollector,
    place: PlaceStage,
    access: AccessChecker,
    localize: LocalizeStage,
    delivery: DeliveryWorker,
    dispatcher: InboundDispatcher,
) -> tuple[Stage, ...]:
    """Return the stages in the order in which a message passes them."""
    limiter, deduplicate = SenderRateLimiter(), DeduplicateStage()
    notices = IntakeNotices(
        access=access, limiter=limiter, localizer=localize, delivery=delivery, now=bus.now
    )
    return (
        clean,
        recognize_command,
        deduplicate,
        BotMessageStage(bus),
        album,
        place,
        AccessStage(access=access, notices=notices),
        localize,
        LimitStage(bus, limiter),
        CommitStage(
            bus,
            deduplicate=deduplicate,
            limiter=limiter,
            notices=notices,
            dispatcher=dispatcher,
        ),
    )


def _presses(
    bus: BusContext,
    access: AccessChecker,
    languages: LanguageResolver,
    questions: Questions,
    workers: ConversationWorkers,
    pipeline: InboundPipeline,
    reruns: RerunOffers,
) -> ButtonPressHandler:
    history = bus.stores.history
    actions = ButtonActions(
        history=history, questions=questions, pipeline=pipeline, workers=workers, reruns=reruns
    )
    return ButtonPressHandler(
        access=access, history=history, languages=languages, actions=actions.by_action()
    )
