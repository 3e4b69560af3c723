"""Speech statistics: outcomes by channel since the start, and the latest recordings of each chat."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bus.bounded import BoundedDict
from bus.errors import SpeechFailure
from bus.messages import ConversationKey, chat_of

MAX_CHATS = 1000
"""Maximum number of chats to keep recordings for. If there are more, the least recent are dropped."""

PER_CHAT = 5
"""Maximum number of recordings to keep per chat."""

SpeechOutcome = Literal["ok"] | SpeechFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recording that was transcribed, or not.

    Attributes:
        at: When the transcription ended, Unix seconds.
        user_id: The sender.
        source: The platform or model that transcribed it; "" = none.
        detail: What the speech service said about a failure.
    """

    at: float
    user_id: str
    outcome: SpeechOutcome
    source: str = ""
    detail: str = ""


class SpeechStats:
    """Counts recordings since this process started."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, SpeechOutcome]]()
        self._seconds: dict[str, float] = {}
        self._recent = BoundedDict[ConversationKey, deque[Recording]](MAX_CHATS)

    def record(self, key: ConversationKey, recording: Recording, seconds: float = 0.0) -> None:
        """Count a recording and its length, and remember it."""
        self._counts[(key.channel, recording.outcome)] += 1
        self._seconds[key.channel] = self._seconds.get(key.channel, 0.0) + seconds
        kept = self._recent.get(chat_of(key)) or deque(maxlen=PER_CHAT)
        kept.append(recording)
        self._recent[chat_of(key)] = kept

    def counts(self) -> Mapping[tuple[str, SpeechOutcome], int]:
        """Return the number of recordings by channel and outcome."""
        return dict(self._counts)

    def seconds(self) -> Mapping[str, float]:
        """Return the total length of transcribed recordings by channel, seconds, as far as it is known."""
        return dict(self._seconds)

    def recent(self, key: ConversationKey) -> Sequence[Recording]:
        """Return the latest recordings in a conversation's chat, newest first."""
        return list(self._recent.get(chat_of(key), ()))[::-1]
