"""Stage: drops events that this process stored a moment ago, without asking the journal."""

from typing_extensions import override

from bus.bounded import BoundedDict
from bus.inbound.pipeline import InboundContext, Stage
from bus.messages import InboundMessage
from bus.platform import Disposition

MAX_EVENTS = 1_000
"""Events that are remembered, 400 bytes each: most that platforms send twice come within seconds."""


class DeduplicateStage(Stage):
    """Recognizes events that were stored. The journal's own check, in the commit, also knows older ones."""

    def __init__(self) -> None:
        self._stored = BoundedDict[tuple[str, str, str], None](MAX_EVENTS)

    @override
    async def __call__(self, context: InboundContext) -> Disposition | None:
        return Disposition.DUPLICATE if _event(context.message) in self._stored else None

    def remember(self, message: InboundMessage) -> None:
        """Remember that the journal knows the event of a message."""
        self._stored[_event(message)] = None


def _event(message: InboundMessage) -> tuple[str, str, str]:
    return message.key.channel, message.key.workspace, message.event_id
