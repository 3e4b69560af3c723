"""Streaming cards: updates their text, and recovers if the platform closes a stream.

The platform closes a stream after ten minutes, or when no update arrives for a long time. A closed stream is reopened.
If Feishu refuses that, each update replaces the whole card, which needs no stream.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from bots.feishu import cards
from bots.feishu.cardkit import CardKitApi
from bots.feishu.cards import Card, CardFooter
from bots.feishu.errors import CLOSED_CODES, SEQUENCE_CODE, FeishuError
from bus.bounded import BoundedDict

log = logging.getLogger(__name__)

RENEW_S = 500.0
"""Time after which to reopen a stream, seconds. The platform closes it after 600 s."""

_KEPT = 200
"""Maximum number of cards to remember, 1.5 KB each. The next change to an older card replaces the whole card."""

_EPOCH = 1_735_689_600
"""Start of 2025. Sequence numbers count from it, five per second, so that they rise across restarts, until 2038."""

_STEPS_PER_S = 5
_MAX_SEQUENCE = 2**31 - 1
_LEAPS = (100_000, 10_000_000)
"""Steps to skip when the platform has a higher sequence number: half a day's and 23 days' worth."""


@dataclass(slots=True)
class _StreamingCard:
    """The state of a card.

    Attributes:
        sequence: The last used number.
        footer: The current part below the text; None = unknown.
        opened_at: When its stream was opened (monotonic seconds).
        is_unstreamable: Whether its stream cannot be reopened.
    """

    sequence: int
    footer: tuple[str, ...] | None = None
    opened_at: float = 0.0
    is_unstreamable: bool = False
    finished: bool = False
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class StreamingCards:
    """The growing cards of this process. Operations on one card run one by one."""

    def __init__(
        self,
        kit: CardKitApi,
        *,
        clock: Callable[[], float] = anyio.current_time,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._kit = kit
        self._clock = clock
        self._now = now
        self._streams = BoundedDict[str, _StreamingCard](_KEPT)

    def register(self, card_id: str, footer: CardFooter) -> None:
        """Remember a card that was just created and is streaming."""
        stream = self._stream(card_id)
        if stream.footer is None:
            stream.footer, stream.opened_at = _shape(footer), self._clock()

    async def update(self, card_id: str, text: str, footer: CardFooter) -> None:
        """Show more of an answer. Raises FeishuError."""
        stream = self._stream(card_id)
        async with stream.lock:
            if stream.footer is not None and self._clock() - stream.opened_at > RENEW_S:
                await self._open_stream(card_id, stream)
            try:
                await self._update_card(card_id, stream, text, footer)
            except FeishuError as error:
                if error.code not in CLOSED_CODES or stream.is_unstreamable:
                    raise
                log.info("a streaming card was closed by the platform: %s", error)
                await self._open_stream(card_id, stream)
                await self._update_card(card_id, stream, text, footer)

    async def finish(self, card_id: str, card: Card) -> None:
        """Show the final answer. Raises FeishuError."""
        stream = self._stream(card_id)
        async with stream.lock:
            if not stream.finished:
                await self._close_stream(card_id, stream)
            await self._replace_card(card_id, stream, card, is_frame=False)
            stream.finished, stream.footer = True, None

    async def _update_card(
        self, card_id: str, stream: _StreamingCard, text: str, footer: CardFooter
    ) -> None:
        """Change only the text if nothing else has changed, or else the whole card."""
        if stream.is_unstreamable:
            await self._replace_card(
                card_id, stream, cards.progress_card(text, footer), is_frame=True
            )
        elif stream.footer == _shape(footer):
            await self._update_text(card_id, stream, text)
        else:
            await self._replace_card(
                card_id, stream, cards.streaming_card(text, footer), is_frame=True
            )
            if stream.footer is None:
                stream.opened_at = self._clock()
            stream.footer, stream.finished = _shape(footer), False

    async def _update_text(self, card_id: str, stream: _StreamingCard, text: str) -> None:
        async def written(sequence: int) -> None:
            await self._kit.update_text(card_id, cards.non_empty(text), sequence=sequence)

        await _in_sequence(stream, written)

    async def _open_stream(self, card_id: str, stream: _StreamingCard) -> None:
        """Open the stream for another ten minutes. Remember a refusal."""

        async def opened(sequence: int) -> None:
            await self._kit.set_streaming(card_id, on=True, sequence=sequence)

        try:
            await _in_sequence(stream, opened)
        except FeishuError as error:
            if error.retryable:
                raise
            log.warning("a card cannot stream again and is replaced from now on: %s", error)
            stream.is_unstreamable = True
        else:
            stream.opened_at = self._clock()

    async def _close_stream(self, card_id: str, stream: _StreamingCard) -> None:
        async def closed(sequence: int) -> None:
            await self._kit.set_streaming(card_id, on=False, sequence=sequence)

        try:
            await _in_sequence(stream, closed)
        except FeishuError as error:
            # The finished card follows, with the same content.
            log.info("a stream was not closed: %s", error)

    async def _replace_card(
        self, card_id: str, stream: _StreamingCard, card: Card, *, is_frame: bool
    ) -> None:
        async def replaced(sequence: int) -> None:
            await self._kit.replace(card_id, card, sequence=sequence, is_frame=is_frame)

        await _in_sequence(stream, replaced)

    def _stream(self, card_id: str) -> _StreamingCard:
        stream = self._streams.get(card_id)
        if stream is None:
            steps = int((self._now() - _EPOCH) * _STEPS_PER_S)
            stream = _StreamingCard(steps % _MAX_SEQUENCE)
        self._streams[card_id] = stream
        return stream


async def _in_sequence(stream: _StreamingCard, operation: Callable[[int], Awaitable[None]]) -> None:
    """Run an operation with the next number. Skip ahead if the platform has a higher number. Raises FeishuError."""
    for leap in (*_LEAPS, 0):
        stream.sequence += 1  # The number is used up even if the operation fails.
        try:
            await operation(stream.sequence)
        except FeishuError as error:
            if error.code != SEQUENCE_CODE or not leap:
                raise
            stream.sequence = min(stream.sequence + leap, _MAX_SEQUENCE - 1000)
        else:
            return


def _shape(footer: CardFooter) -> tuple[str, ...]:
    return (footer.note, *(f"{button.token} {button.label}" for button in footer.buttons))
