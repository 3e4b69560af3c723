"""Stage: refuses messages of people who may not use the bot, and messages that are not meant for it."""

from typing_extensions import override

from bus.access.checker import AccessChecker
from bus.inbound.notices import IntakeNotices
from bus.inbound.pipeline import InboundContext, Stage
from bus.platform import Disposition


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
        await self._notices.notify_refused(context.message, disposition)
        return disposition
