"""Intake statistics: dispositions by channel since the start, and the latest refusals of each chat."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bus.access.refusal_journal import RefusalJournal
from bus.bounded import BoundedDict
from bus.messages import ConversationKey, InboundMessage, chat_of
from bus.platform import Disposition

MAX_CHATS_TRACKED = 1000
"""Maximum number of chats whose refusals are kept. Beyond it, the least recent are dropped."""

REFUSALS_PER_CHAT = 5
"""Maximum number of refusals to keep per chat."""


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that was not accepted. `at` is in Unix seconds, `origin` as on `InboundMessage`."""

    at: float
    disposition: Disposition
    user_id: str
    origin: str = ""


class IntakeStats:
    """Counts messages by disposition since this process started, and passes them to the journal of refusals."""

    def __init__(self, journal: RefusalJournal | None = None) -> None:
        self._journal = journal
        self._counts: Counter[tuple[str, Disposition]] = Counter()
        self._refusals = BoundedDict[ConversationKey, deque[RefusedMessage]](MAX_CHATS_TRACKED)

    def count(self, channel: str, disposition: Disposition) -> None:
        """Count an event."""
        self._counts[(channel, disposition)] += 1

    def record(self, message: InboundMessage, disposition: Disposition, *, at: float) -> None:
        """Count a message, and remember it if it was not accepted."""
        self.count(message.key.channel, disposition)
        if disposition is Disposition.ACCEPTED:
            return
        if self._journal is not None:
            self._journal.note(message, disposition)
        chat = chat_of(message.key)
        kept = self._refusals.get(chat) or deque(maxlen=REFUSALS_PER_CHAT)
        kept.append(RefusedMessage(at, disposition, message.sender.user_id, message.origin))
        self._refusals[chat] = kept

    def counts(self) -> Mapping[tuple[str, Disposition], int]:
        """Return the number of events by channel and disposition."""
        return dict(self._counts)

    def refusals_by_reason(self, channel: str) -> Mapping[Disposition, int]:
        """Return the number of events of a channel that were not accepted, by disposition, most frequent first."""
        return {
            disposition: count
            for (name, disposition), count in self._counts.most_common()
            if name == channel and disposition is not Disposition.ACCEPTED
        }

    def recent_refusals(self, key: ConversationKey) -> Sequence[RefusedMessage]:
        """Return the latest refusals in a conversation's chat, newest first."""
        return list(self._refusals.get(chat_of(key), ()))[::-1]
