"""Intake statistics: counts of dispositions by channel since the start."""

from collections import Counter
from collections.abc import Mapping

from bus.access.refusal_journal import RefusalJournal
from bus.messages import InboundMessage
from bus.platform import Disposition


class IntakeStats:
    """Counts messages by disposition since this process started, and passes them to the journal of refusals."""

    def __init__(self, journal: RefusalJournal | None = None) -> None:
        self._journal = journal
        self._counts: Counter[tuple[str, Disposition]] = Counter()

    def count(self, channel: str, disposition: Disposition) -> None:
        """Count an event."""
        self._counts[(channel, disposition)] += 1

    def record(self, message: InboundMessage, disposition: Disposition) -> None:
        """Count a message, and record it in the journal if it was not accepted."""
        self.count(message.key.channel, disposition)
        if self._journal is not None:
            self._journal.note(message, disposition)

    async def store_refusals(self) -> None:
        """Store the refusals that the journal still collects. Raises StoreError."""
        if self._journal is not None:
            await self._journal.flush()

    def counts(self) -> Mapping[tuple[str, Disposition], int]:
        """Return the number of events by channel and disposition."""
        return dict(self._counts)
