"""What became of messages: counted by channel since the start, and the last refusals of each chat."""

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bus.messages import ConversationKey, InboundMessage, chat_of
from bus.platform import Disposition

MAX_CHATS_TRACKED = 1000
"""Chats whose refusals are kept; of more, those that were quiet for longest are dropped."""

REFUSALS_PER_CHAT = 5
"""Refusals that are kept of a chat."""


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that was not accepted. `at` is in Unix seconds."""

    at: float
    reason: Disposition
    user_id: str


class IntakeStats:
    """The fate of messages since the start of this process."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Disposition]] = Counter()
        self._refusals: OrderedDict[ConversationKey, deque[RefusedMessage]] = OrderedDict()

    def count(self, channel: str, reason: Disposition) -> None:
        """Count an event of which no more is known."""
        self._counts[(channel, reason)] += 1

    def record(self, inbound: InboundMessage, reason: Disposition, *, at: float) -> None:
        """Count a message, and remember it where it was not accepted."""
        self.count(inbound.key.channel, reason)
        if reason is Disposition.ACCEPTED:
            return
        chat = chat_of(inbound.key)
        kept = self._refusals.setdefault(chat, deque(maxlen=REFUSALS_PER_CHAT))
        kept.append(RefusedMessage(at, reason, inbound.sender.user_id))
        self._refusals.move_to_end(chat)
        if len(self._refusals) > MAX_CHATS_TRACKED:
            self._refusals.popitem(last=False)

    def counts(self) -> Mapping[tuple[str, Disposition], int]:
        """Return how many messages had which fate, by channel."""
        return dict(self._counts)

    def refusals_by_reason(self, channel: str) -> Mapping[Disposition, int]:
        """Return how many messages of a channel were not accepted, by reason, the most frequent first."""
        return {
            reason: count
            for (name, reason), count in self._counts.most_common()
            if name == channel and reason is not Disposition.ACCEPTED
        }

    def recent_refusals(self, key: ConversationKey) -> Sequence[RefusedMessage]:
        """Return the last refusals in the chat of a conversation, newest first."""
        return list(self._refusals.get(chat_of(key), ()))[::-1]
