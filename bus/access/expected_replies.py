"""Who is expected to answer a question, also by words that do not say what they answer.

Where conversations are chains of replies, a message that replies to nothing begins a new one. People who were just
asked something often write plainly all the same: their next words belong to the question.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio

from bus.messages import ConversationKey, InboundMessage

EXPECTED_REPLY_S = 1800.0
"""How long an answer is expected, seconds."""

MAX_EXPECTED = 1000
"""Expected answers that are remembered; of more, the oldest are not expected any more."""


@dataclass(frozen=True, slots=True)
class _Person:
    chat: ConversationKey
    user_id: str


class ExpectedReplies:
    """The answers that are expected; forgotten at a restart, when a reply is needed again."""

    def __init__(self, *, clock: Callable[[], float] = anyio.current_time) -> None:
        self._clock = clock
        self._expected: OrderedDict[_Person, tuple[ConversationKey, float]] = OrderedDict()

    def expect(self, asker: InboundMessage, key: ConversationKey) -> None:
        """Expect the next words of who wrote `asker` to belong to the conversation `key`."""
        if asker.private or not asker.track_replies:
            return
        person = _person(asker)
        self._expected[person] = (key, self._clock())
        self._expected.move_to_end(person)
        while len(self._expected) > MAX_EXPECTED:
            self._expected.popitem(last=False)

    def clear(self, key: ConversationKey) -> None:
        """Expect no answer in a conversation any more: it was given, or something else was said there."""
        for person in [one for one, (where, _) in self._expected.items() if where == key]:
            del self._expected[person]

    def assign(self, inbound: InboundMessage) -> InboundMessage:
        """Return a message that answers plainly as one of the conversation in which was asked."""
        begins = (
            inbound.track_replies and not inbound.replies_to and not inbound.reply_target.thread
        )
        if not begins or inbound.private or not inbound.addressed:
            return inbound
        key, at = self._expected.get(_person(inbound), (inbound.key, 0.0))
        if key == inbound.key or self._clock() - at > EXPECTED_REPLY_S:
            return inbound
        return replace(inbound, key=key)


def _person(inbound: InboundMessage) -> _Person:
    return _Person(replace(inbound.key, topic=""), inbound.sender.user_id)
