"""Expected replies: assigns a person's next message to the conversation that asked them a question.

On platforms where conversations are chains of replies, a message that is not a reply starts a new conversation. But
people often answer a question without replying to it.
"""

from collections.abc import Callable
from dataclasses import replace

import anyio

from bus.bounded import BoundedDict
from bus.messages import ConversationKey, InboundMessage, chat_of

EXPECTED_REPLY_S = 1800.0
"""How long a reply is expected, seconds."""

MAX_EXPECTED = 1000
"""Maximum number of expected replies to remember. If there are more, the oldest are dropped."""

_Person = tuple[ConversationKey, str]
"""A chat and the ID of a person in it."""


class ExpectedReplies:
    """The expected replies, in memory. `FindConversationStage` adds those that an earlier process expected."""

    def __init__(self, *, clock: Callable[[], float] = anyio.current_time) -> None:
        self._clock = clock
        self._expected = BoundedDict[_Person, tuple[ConversationKey, float]](MAX_EXPECTED)

    def expect(self, asked: InboundMessage, key: ConversationKey, *, age_s: float = 0.0) -> None:
        """Expect the next message of the sender of `asked` to belong to the conversation `key`.

        `age_s`: how long it has been expected, seconds. A more recent expectation takes precedence.
        """
        if asked.is_private or not asked.track_replies:
            return
        person, at = _person(asked), self._clock() - age_s
        if person in self._expected and self._expected[person][1] > at:
            return
        self._expected[person] = (key, at)

    def clear(self, key: ConversationKey) -> None:
        """Stop expecting a reply in a conversation, because it was given or the conversation continued without it."""
        for person in [one for one, (where, _) in self._expected.items() if where == key]:
            del self._expected[person]

    def assign(self, message: InboundMessage) -> InboundMessage:
        """Return an expected reply with the key of the question's conversation. Returns other messages unchanged."""
        if not may_answer_plainly(message) or not message.is_addressed:
            return message
        key, at = self._expected.get(_person(message), (message.key, 0.0))
        if key == message.key or self._clock() - at > EXPECTED_REPLY_S:
            return message
        return replace(message, key=key)


def may_answer_plainly(message: InboundMessage) -> bool:
    """Return whether a message may answer a question even though it is not a reply."""
    starts = message.track_replies and not message.replies_to and not message.reply_target.thread
    return starts and not message.is_private


def _person(message: InboundMessage) -> _Person:
    return chat_of(message.key), message.sender.user_id
