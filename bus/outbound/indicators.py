"""Working, done and failure indicators: reactions, typing, statuses."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import anyio

from bus.bounded import BoundedDict
from bus.errors import DeliveryError, unwrapped
from bus.messages import (
    OutboundFile,
    OutboundIndicator,
    OutboundMessage,
    OutboundText,
    ReplyTarget,
    decode_outbound,
)
from bus.outbound.rows import indicator_row, text_key
from bus.platform import Adapter, SupportsIndicators, SupportsRefusalIndicator, WorkShown
from bus.retry import Backoff
from store.outbox import NewOutboxRow, OutboxRow, OutboxStore

log = logging.getLogger(__name__)

INDICATOR_DEADLINE_S = 10.0
"""Time limit of one call, seconds. After that, the indicator is given up."""

RETRY_S = 6 * 3600.0
"""How long to retry an indicator that the platform temporarily refuses, seconds. Clocks may jump by an hour."""

RETRY_BACKOFF = Backoff(first_s=1.0, cap_s=60.0, jitter=0.5)
"""Minimum waits between these attempts, seconds."""

REPEATED, REPEATED_S = 2000, 15.0
"""At a start, indicators of recently closed rows are shown again: the maximum number of rows, and how long before the
last row they may have been closed, seconds."""

SHOW_AFTER_S = 0.05
"""How long a turn works before its indicator is shown, seconds. An earlier call would delay an immediate answer."""

MAX_WORKING = 64
"""Maximum number of simultaneous working indicators per channel. Further indicators are shown when these end."""

MAX_REMEMBERED = 1_000
"""Maximum number of messages to remember as having no indicator from an earlier process.

Other messages are assumed to have one.
"""

MAX_LOGGED_KINDS = 100
"""Maximum number of kinds of failure to log. Each is logged once."""


_Message = tuple[str, ReplyTarget]
"""The channel, and the message that is being answered."""


class IndicatorUpdater:
    """Shows and refreshes indicators on platforms that have them. Failures of indicators are not raised.

    Args:
        credentials_after_s: How long to retry the last indicator of a turn while the platform refuses the bot's
            credentials.
    """

    def __init__(self, *, credentials_after_s: float = RETRY_S) -> None:
        self._credentials_after_s = credentials_after_s
        self._logged: set[str] = set()
        self._rooms: dict[str, anyio.Semaphore] = {}
        self._was_shown = BoundedDict[_Message, WorkShown](MAX_REMEMBERED)

    def working(
        self,
        adapter: Adapter,
        target: ReplyTarget,
        *,
        is_first: bool = False,
        on_shown: Callable[[], None] = lambda: None,
    ) -> Callable[[], Awaitable[None]] | None:
        """Return a function that shows the working indicator from `SHOW_AFTER_S` on until it is canceled.

        None = the platform has no indicators.

        `is_first`: whether no other process has worked on the message at `target`. `on_shown` is called whenever the
        platform has shown it.
        """
        if not isinstance(adapter, SupportsIndicators):
            return None
        # Without a limit, a burst of messages would cause more calls for typing than for answers.
        self._rooms.setdefault(adapter.name, anyio.Semaphore(MAX_WORKING, fast_acquire=True))
        message = (adapter.name, target)
        if is_first and message not in self._was_shown:
            self._was_shown[message] = WorkShown.NO
        refresh_s = adapter.capabilities.indicator_refresh_s
        return partial(self._refresh, adapter, message, refresh_s, on_shown)

    async def finished(
        self, adapter: Adapter, target: ReplyTarget, *, ok: bool, age_s: float = 0.0
    ) -> float | None:
        """Replace the working indicator with a done or failure indicator.

        `age_s`: how long this has been tried. Returns the seconds after which to retry; None = it succeeded, or was
        given up.
        """
        if not isinstance(adapter, SupportsIndicators):
            return None
        message = (adapter.name, target)
        was_shown = self._was_shown.get(message, WorkShown.UNKNOWN)
        error = await self._call(
            adapter, lambda: adapter.show_finished(target, ok=ok, was_shown=was_shown)
        )
        if error is None or not error.retryable:
            self._was_shown.pop(message, None)
            return None
        if age_s > (self._credentials_after_s if error.credentials_refused else RETRY_S):
            return None
        # Each wait is longer than the one before, because only some of the calls that wait for a rate limit can succeed
        # when it ends.
        doublings = int(max(age_s, 0.0) + 1).bit_length()
        return max(error.retry_after_s or 0.0, RETRY_BACKOFF.wait_s(doublings))

    async def refused(self, adapter: Adapter, target: ReplyTarget) -> None:
        """Show on a message that it was not accepted. Does not retry, because the person also gets a notice."""
        if isinstance(adapter, SupportsRefusalIndicator):
            await self._call(adapter, lambda: adapter.show_refused(target))

    async def _refresh(
        self,
        adapter: SupportsIndicators,
        message: _Message,
        refresh_s: float,
        on_shown: Callable[[], None],
    ) -> None:
        channel, target = message
        await anyio.sleep(SHOW_AFTER_S)
        async with self._rooms[channel]:
            if self._was_shown.get(message) is WorkShown.NO:
                self._was_shown[message] = WorkShown.HERE
            while True:
                error = await self._call(adapter, lambda: adapter.show_working(target))
                if error is None:
                    on_shown()
                if refresh_s <= 0 or (error is not None and not error.retryable):
                    return
                await anyio.sleep(refresh_s)

    async def _call(
        self, adapter: object, call: Callable[[], Awaitable[None]]
    ) -> DeliveryError | None:
        """Make one call. Return its error. Raises nothing."""
        name = type(adapter).__name__
        try:
            with unwrapped(), anyio.fail_after(INDICATOR_DEADLINE_S):
                await call()
        except TimeoutError:
            error = DeliveryError("no response in time", retryable=True)
        except DeliveryError as refusal:
            error = refusal
        except Exception:
            log.exception("indicator of %s failed unexpectedly", name)
            return DeliveryError("unexpected error")
        else:
            return None
        kind = f"{name}: {error}"
        if kind not in self._logged and len(self._logged) < MAX_LOGGED_KINDS:
            self._logged.add(kind)
            log.warning("indicator failed: %s", kind)
        # The traceback and this frame refer to each other, so both would stay in memory until the next garbage
        # collection.
        return error.with_traceback(None)


async def list_repeated(outbox: OutboxStore, now: float) -> list[NewOutboxRow]:
    """Return rows that show the indicators of the most recently sent messages again. Raises StoreError."""
    repeated: list[NewOutboxRow] = []
    for row in await outbox.list_last_closed(now=now, limit=REPEATED, within_s=REPEATED_S):
        with suppress(ValueError):  # A row that cannot be decoded was not sent.
            repeated += await _indicator_rows(outbox, row)
    return repeated


async def is_answered(
    outbox: OutboxStore, row: OutboxRow, body: OutboundMessage, sent: str = ""
) -> bool:
    """Return whether a turn whose last row is closed has succeeded, and people may see its answer. Raises StoreError.

    False if the platform permanently refused one of its texts. A text with an unknown outcome may be visible.
    `sent`: the key of a row that is known to be visible.
    """
    if body.final_status != "ok":
        return False
    # If there was a progress notice, the last row removes it and does not show whether the answer was sent.
    is_answer = isinstance(body, OutboundText | OutboundFile) and row.key != sent
    if is_answer and _is_refused(await outbox.find(row.key)):
        return False
    index = 0
    while (key := text_key(row.key, index)) != row.key and (text := await outbox.find(key)):
        if _is_refused(text):
            return False
        index += 1
    return True


def _is_refused(row: OutboxRow | None) -> bool:
    return row is not None and row.state == "failed"


async def _indicator_rows(outbox: OutboxStore, closed: OutboxRow) -> list[NewOutboxRow]:
    """Return the indicator's row if the given row is the last one of a turn. Raises ValueError."""
    body = decode_outbound(closed.body)
    if isinstance(body, OutboundIndicator) or not body.final_status:
        return []
    ok = await is_answered(outbox, closed, body)
    return [indicator_row(closed.conversation, body.reply_target, ok=ok)]
