"""RefusalJournal: stores messages that were not accepted, in batches, without delaying the pipeline."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import anyio

from bus.access.remedy import ACCESS_REASONS, LIMIT_REASONS, MAX_TEXT_CHARS
from bus.bounded import BoundedDict
from bus.messages import ConversationKey, InboundMessage, chat_of, encode_inbound
from bus.platform import Clock, Disposition
from store.refused_messages import RefusedMessages, RefusedRow

MAX_BUFFERED = 5000
"""Maximum number of messages that wait to be stored. The oldest are dropped, because the pipeline never waits."""

EVERY_S = 1.0
"""How long to collect messages for one transaction, seconds."""

MAX_RECENT = 1000
"""Number of recorded messages to remember, because Slack reports a mention in two events."""

MAX_FILES = 10
"""Maximum number of files to keep per message, as references to the platform."""

NOT_REFUSED = frozenset(
    {Disposition.ACCEPTED, Disposition.DUPLICATE, Disposition.DECLINED, Disposition.UNCHANGED}
)
"""Dispositions of messages that were accepted, or that are not new messages."""

NOT_FOR_THE_BOT = frozenset({Disposition.NOT_ADDRESSED, Disposition.FROM_BOT})
"""Reasons for messages that people wrote to each other. The texts of these are not kept."""

log = logging.getLogger(__name__)


class RefusalJournal:
    """Keeps refused messages across restarts, so that administrators see why there was no answer.

    `on_stored` is called after messages have been stored.
    """

    def __init__(
        self, store: RefusedMessages, *, now: Clock, on_stored: Callable[[], None] = lambda: None
    ) -> None:
        self._store = store
        self._now = now
        self._on_stored = on_stored
        self._recent = BoundedDict[tuple[ConversationKey, str], None](MAX_RECENT)
        self._waiting: deque[RefusedRow] = deque(maxlen=MAX_BUFFERED)
        self._has_waiting = anyio.Event()
        self._flushing = anyio.Lock()

    def note(self, message: InboundMessage, reason: Disposition) -> None:
        """Remember a message, if it was refused. Cheap."""
        name = (chat_of(message.key), message.message_id)
        if reason in NOT_REFUSED or (message.message_id and name in self._recent):
            return
        self._recent[name] = None
        text = "" if reason in NOT_FOR_THE_BOT else message.text[:MAX_TEXT_CHARS]
        self._waiting.append(
            RefusedRow(
                channel=message.key.channel,
                workspace=message.key.workspace,
                chat=message.key.chat,
                topic=message.key.topic,
                is_private=message.is_private,
                place=message.chat_title,
                user_id=message.sender.user_id,
                user_name=message.sender.name,
                text=text,
                origin=message.origin,
                reason=reason.value,
                body=_body(message) if reason in ACCESS_REASONS | LIMIT_REASONS else "",
                received_at=self._now(),
            )
        )
        self._has_waiting.set()

    async def run(self) -> None:
        """Store remembered messages until canceled. Raises StoreError."""
        while True:
            await self._has_waiting.wait()
            await anyio.sleep(EVERY_S)
            await self.flush()

    async def flush(self) -> None:
        """Store the remembered messages now. Raises StoreError."""
        async with self._flushing:
            rows = list(self._waiting)
            if rows:
                await self._store.add(rows)
                for _ in rows:
                    if self._waiting:
                        self._waiting.popleft()
                self._on_stored()
            if not self._waiting:
                self._has_waiting = anyio.Event()


def _body(message: InboundMessage) -> str:
    """Return the data needed to admit its sender or to answer it later. The row has the text."""
    kept = replace(
        message,
        text="",
        quoted=message.quoted[:MAX_TEXT_CHARS],
        attachments=message.attachments[:MAX_FILES],
        parts=(),
    )
    return encode_inbound(kept)
