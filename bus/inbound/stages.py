"""The stages of the inbound pipeline in order, including the short stages, and the intake that runs them."""

import anyio
from typing_extensions import override

from bus.access.checker import AccessChecker
from bus.bounded import BoundedDict
from bus.commands import recognize_command
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
from bus.inbound.pipeline import InboundContext, Stage
from bus.messages import ConversationKey, chat_of
from bus.platform import Disposition
from bus.schedules.scheduler import Scheduler

MAX_CHATS_TRACKED = 10_000
"""Maximum number of chats to keep counts for. If there are more, the least recent are dropped."""


async def note_command(context: InboundContext) -> None:
    """Record which command the message is, if any. Only people send commands."""
    if not context.message.origin:
        context.command = recognize_command(context.message.text)


class BotMessageStage(Stage):
    """Refuses messages from other bots beyond `max_bot_messages` in a row.

    Another bot can reach this bot only by mentioning it in a group. It cannot continue a conversation or run commands.
    A repeated message counts once: Slack reports a mention in two events, and platforms resend messages that could not
    be stored. A message from a person resets the chat's count. So does a restart, because counts are in memory.
    """

    def __init__(self, bus: BusContext) -> None:
        self._policies = bus.policies
        # By chat: number of messages, and the last message's ID.
        self._counts = BoundedDict[ConversationKey, tuple[int, str]](MAX_CHATS_TRACKED)

    @override
    async def __call__(self, context: InboundContext) -> Disposition | None:
        message, chat = context.message, chat_of(context.message.key)
        if not message.sender.is_bot:
            self._counts.pop(chat, None)
            return None
        policy = self._policies.get(chat.channel)
        limit = policy.max_bot_messages if policy is not None else 0
        name = message.message_id or message.event_id
        count, last = self._counts.get(chat, (0, ""))
        count += name != last
        is_mention = message.is_addressed and not message.is_private and context.command is None
        if not is_mention or count > limit:
            return Disposition.FROM_BOT
        self._counts[chat] = count, name
        return None


class AccessStage(Stage):
    """Applies the access policy, and notifies people whose messages it refuses."""

    def __init__(self, *, access: AccessChecker, notices: IntakeNotices) -> None:
        self._access = access
        self._notices = notices

    @override
    async def __call__(self, context: InboundContext) -> Disposition | None:
        disposition = await self._access.check(
            context.message, is_known_reply=context.is_known_reply
        )
        if disposition is Disposition.ACCEPTED:
            return None
        if context.message.origin:
            return disposition  # Its sender did not write it, and gets a separate notice.
        await self._notices.notify_refused(context.message, disposition)
        return disposition


def build_inbound(
    bus: BusContext,
    *,
    migrations: ChatMigrations,
    questions: OpenQuestions,
    conversations: Conversations,
    commands: CommandRunner,
    scheduler: Scheduler,
) -> tuple[BusIntake, InboundDispatcher]:
    """Return the intake of all adapters, and the dispatcher to which it passes accepted messages."""
    access = bus.access
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
        (clean, localize, commit),
        access=access,
        migrations=migrations,
        questions=questions,
        conversations=conversations,
        gestures=gestures,
        changes=changes,
        scheduler=scheduler,
    )
    return intake, dispatcher
