"""Builds the inbound side: the pipeline's stages in order, and the intake that runs them."""

import anyio

from bus.access.checker import AccessChecker
from bus.commands.runner import CommandRunner
from bus.context import BusContext
from bus.conversation.conversations import Conversations
from bus.conversation.open_questions import OpenQuestions
from bus.inbound.chat_migrations import ChatMigrations
from bus.inbound.clean import clean
from bus.inbound.commit import CommitStage
from bus.inbound.dispatcher import InboundDispatcher
from bus.inbound.find_conversation import FindConversationStage
from bus.inbound.gesture_collector import GestureCollector
from bus.inbound.intake import BusIntake
from bus.inbound.localize import LocalizeStage
from bus.inbound.notices import IntakeNotices
from bus.inbound.pipeline import Stage
from bus.inbound.stages import AccessStage, BotMessageStage, note_command


def build_inbound(
    bus: BusContext,
    *,
    migrations: ChatMigrations,
    questions: OpenQuestions,
    conversations: Conversations,
    commands: CommandRunner,
) -> tuple[BusIntake, InboundDispatcher]:
    """Return the intake of all adapters, and the dispatcher to which it passes accepted messages."""
    access = AccessChecker(policies=bus.policies, pairings=bus.stores.pairings, now=bus.now)
    changes = anyio.Lock()
    gestures = GestureCollector(bus, conversations, changes=changes)
    dispatcher = InboundDispatcher(
        bus, commands=commands, conversations=conversations, gestures=gestures
    )
    localize = LocalizeStage(bus, migrations)
    notices = IntakeNotices(bus, access=access, localizer=localize)
    commit = CommitStage(
        bus,
        notices=notices,
        dispatcher=dispatcher,
        gestures=gestures,
    )
    stages: tuple[Stage, ...] = (
        clean,
        note_command,
        BotMessageStage(bus),
        gestures,
        FindConversationStage(bus, questions.pending),
        AccessStage(access=access, notices=notices),
        localize,
        commit,
    )
    intake = BusIntake(
        bus,
        stages,
        access=access,
        migrations=migrations,
        questions=questions,
        conversations=conversations,
        gestures=gestures,
        changes=changes,
    )
    return intake, dispatcher
