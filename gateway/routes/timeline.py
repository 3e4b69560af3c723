"""The timeline of a conversation, put together from the rows of the journal and the thread's messages."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import orjson
from anyio import to_thread
from pydantic import BaseModel
from typing_extensions import override

from agent.usage.limits import NANO
from bus.access.remedy import Remedy
from bus.causes import describe_cause, schedule_id_of
from bus.history.user_messages import files_of, user_text
from bus.history.versions import message_ids
from bus.locales import Messages
from bus.locales.en import ENGLISH
from bus.messages import (
    Attachment,
    InboundMessage,
    OutboundEdit,
    OutboundFile,
    OutboundIndicator,
    OutboundMessage,
    OutboundNote,
    OutboundRemoval,
    OutboundText,
    decode_inbound,
    decode_outbound,
)
from bus.runs.stream import Message, is_user_message, messages_in, sender_of, text_of
from bus.service import Bus
from bus.voice.speech_reader import stored_transcripts
from gateway.routes.masking import masking
from gateway.routes.messages import (
    MessageState,
    RemedyView,
    is_part_of_answer,
    message_reason,
    message_state,
)
from gateway.routes.views import iso_time
from gateway.services import Services
from store.conversations import Conversation
from store.errors import RowNotFound
from store.inbox import InboxRow, ThreadSpan
from store.outbox import NEWEST, DeliveryState, OutboxRow
from store.refused_messages import RefusedRow
from store.runs import Run

Admission = Literal["private", "mention", "follow_up", "answer", "schedule", "hook"]

_CURSOR = re.compile(r"(?:\d{1,19}\.){3}(?:\d{1,19}|-1)")

NO_SPAN = ThreadSpan(conversation_id=0, thread_id="", first=0, last=0, since=0, until=0)


class FileView(BaseModel):
    """A file; `path` is its virtual path in the thread, null if the thread does not have it."""

    name: str
    mime: str = ""
    path: str | None = None


class FailedAttempt(BaseModel):
    """An attempt to deliver that failed."""

    at: str
    error: str


class TimelineDelivery(BaseModel):
    """Something that the bot sends.

    Attributes:
        kind: `text`, `file`, `note`, `edit`, `removal` or `undecodable`.
        is_shown: Whether people see it as a part of the answer. False for edits and for messages that were replaced.
        attempts: Number of attempts to send its current message.
        uncertain_attempts: Number of attempts whose outcome is unknown.
        platform_id: The platform's ID of the message.
        failed_attempts: The failed attempts, oldest first, at most about 4,000 characters.
    """

    id: int
    key: str
    kind: str
    text: str
    file: FileView | None
    is_shown: bool
    state: DeliveryState
    attempts: int
    uncertain_attempts: int
    created_at: str
    first_sent_at: str | None
    last_sent_at: str | None
    updated_at: str
    platform_id: str | None
    error: str | None
    failed_attempts: list[FailedAttempt]


class RunView(BaseModel):
    """The run that answered a message; `ended_at` is null while it works."""

    run_id: str
    assistant_id: str
    status: str
    error: str
    created_at: str
    ended_at: str | None


class RunUsage(BaseModel):
    """The usage of a run's model calls; `kind` is `run`, `subagent`, `title`, `summarize` and so on."""

    kind: str
    model: str
    agent: str
    calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd: float


class SpeechView(BaseModel):
    """The words of a recording; `source`: the platform or the model that transcribed it; `language` "" = unknown."""

    text: str
    language: str
    source: str
    duration_s: float | None


class ThreadMessage(BaseModel):
    """A message of the thread: a model's response (`ai`), with its tool calls and tokens, or a tool's result."""

    id: str
    type: str
    name: str = ""
    content: str
    tool_calls: list[dict[str, Any]] = []
    tool_call_id: str = ""
    status: str = ""
    model: str = ""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


class TimelineRow(BaseModel):
    """A message with its run and deliveries, or a message that another system sent.

    Attributes:
        id: `m` and the number of an accepted message; `r` and the number of a refused message; `d` and the number of a
            delivery that answers no message; or `t` and the ID of a message that only the thread has, because rows are
            deleted after 7 days.
        admitted: Why the bot answers it; null for refused messages and for messages that only the thread has.
        cause: The schedule, webhook or client of the API that sent it, in the reader's language; "" = a person sent it.
        speech: The transcripts of its recordings.
        reason: Why it has no answer, as in the list of messages.
        undelivered: The deliveries that failed.
        remedy: How to make the bot answer a refused message; null for other messages.
        starts: Number of times that its turn was started.
        queue_s: Seconds from its arrival to the start of its run; null = no run started, or it is unknown.
        usage: The usage of its run; null = it had no run. If a run answers several messages, each of them has the run's
            usage.
        messages: The messages of models and tools in its turn; empty if the thread no longer has the message.
        is_in_thread: Whether the thread has the message. Summaries and repetitions remove it.
        event: The platform's event in Parley's form; null = the event is not kept.
    """

    id: str
    kind: Literal["chat", "command", "refused", "sent", "thread"]
    at: str | None
    user_id: str
    user_name: str
    text: str
    files: list[FileView]
    state: MessageState | DeliveryState
    admitted: Admission | None
    cause: str
    speech: list[SpeechView]
    reason: str
    undelivered: list[int]
    remedy: RemedyView | None
    starts: int
    thread_id: str | None
    queue_s: float | None
    run: RunView | None
    usage: list[RunUsage]
    messages: list[ThreadMessage]
    is_in_thread: bool
    deliveries: list[TimelineDelivery]
    event: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The position at which a page ends.

    >>> Cursor.parse(str(Cursor(seq=7, refused=9, sent=3))).seq
    7

    Attributes:
        seq: The position of its last message.
        refused, sent: The IDs of its last refused message and of its last message that another system sent.
        kept: The number of older messages that only the thread has; -1 = not counted yet.
    """

    seq: int = NEWEST
    refused: int = NEWEST
    sent: int = NEWEST
    kept: int = -1

    @override
    def __str__(self) -> str:
        return f"{self.seq}.{self.refused}.{self.sent}.{self.kept}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Parse a cursor; "" = the first page. Raises ValueError."""
        if not text:
            return cls()
        if not _CURSOR.fullmatch(text):
            raise ValueError("not a cursor")
        seq, refused, sent, kept = (min(int(part), NEWEST) for part in text.split("."))
        return cls(seq=seq, refused=refused, sent=sent, kept=kept)

    def after(self, row: "InboxRow | RefusedRow | OutboxRow") -> "Cursor":
        """Return the cursor after one more row."""
        if isinstance(row, InboxRow):
            return replace(self, seq=row.seq)
        return (
            replace(self, refused=row.id)
            if isinstance(row, RefusedRow)
            else replace(self, sent=row.id)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePage:
    """Rows, newest first, and the cursor of the next page; None = this is the last page."""

    rows: list[dict[str, Any]]
    next: Cursor | None


@dataclass(slots=True, kw_only=True)
class ThreadTurns:
    """The turns of a thread's state: each begins with a person's message. `index` finds them by the message's ID."""

    turns: list[list[Message]] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, messages: Iterable[Message]) -> "ThreadTurns":
        """Split the messages of a state."""
        found = cls()
        for message in messages:
            if is_user_message(message):
                found.index[str(message.get("id"))] = len(found.turns)
                found.turns.append([message])
            elif found.turns:
                found.turns[-1].append(message)
        return found

    def find(self, ids: Sequence[str]) -> list[Message]:
        """Return the turn of the newest of these message IDs; empty = none of them is in the thread."""
        at = next((self.index[one] for one in reversed(ids) if one in self.index), None)
        return [] if at is None else self.turns[at]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationHistory:
    """A conversation of a thread.

    Attributes:
        conversation: The chat's conversation; None for a thread of the API.
        is_current: Whether new messages go to this thread.
        turns: The thread's turns; None = the agent's server does not answer.
        title: The thread's title.
        texts: The bot's texts in the reader's language.
    """

    services: Services
    thread_id: str
    conversation: Conversation | None
    span: ThreadSpan
    is_current: bool
    turns: ThreadTurns | None
    title: str
    texts: Messages

    async def page(
        self, after: Cursor, *, limit: int, with_not_addressed: bool = False
    ) -> TimelinePage:
        """Return rows, newest first. `with_not_addressed`: also messages between people. Raises StoreError."""
        rows = (
            []
            if after.kept >= 0
            else await self._rows(after, limit=limit, with_not_addressed=with_not_addressed)
        )
        end = after
        for row in rows:
            end = end.after(row)
        views = await self._views(rows)
        if len(rows) < limit:
            older = await self._turns_without_rows()
            left = len(older) if after.kept < 0 else after.kept
            turns = older[max(0, left - limit + len(rows)) : left]
            views += [_thread_row(turn, self.thread_id) for turn in reversed(turns)]
            end = replace(end, kept=left - len(turns))
        mask = masking(self.services.config)
        shown = await to_thread.run_sync(lambda: [mask(view) for view in views])
        return TimelinePage(rows=shown, next=end if end.kept else None)

    async def _rows(
        self, after: Cursor, *, limit: int, with_not_addressed: bool
    ) -> list[InboxRow | RefusedRow | OutboxRow]:
        """Return the rows of the journal, newest first."""
        bus, span = self.services.bus, self.span
        if bus is None or self.conversation is None:
            return []
        found: list[InboxRow | RefusedRow | OutboxRow] = []
        found += await bus.inbox.list_of_thread(span, limit=limit, before=after.seq)
        sent = await bus.outbox.list_sent_to(self.conversation.id, limit=limit, before=after.sent)
        found += [
            one for one in sent if self.is_current or span.since <= one.created_at <= span.until
        ]
        if span.first:
            key = self.conversation.key
            found += await bus.refused.list_recent(
                limit=limit,
                before=after.refused,
                with_not_addressed=with_not_addressed,
                channel=key.channel,
                workspace=key.workspace,
                chat=key.chat,
                topic=key.topic,
                since=span.since,
                until=None if self.is_current else span.until,
            )
        return sorted(found, key=_time_of, reverse=True)[:limit]

    async def _turns_without_rows(self) -> list[list[Message]]:
        """Return the turns whose messages are missing from the journal, oldest first."""
        turns = [] if self.turns is None else self.turns.turns
        bus = self.services.bus
        if bus is None or self.conversation is None:
            return turns
        channel = self.conversation.key.channel
        known = {f"{channel}:{one}" for one in await bus.inbox.list_event_ids(self.span)}
        return [turn for turn in turns if str(turn[0].get("id")).partition("#")[0] not in known]

    async def _views(
        self, rows: Sequence[InboxRow | RefusedRow | OutboxRow]
    ) -> list[dict[str, Any]]:
        bus = self.services.bus
        if bus is None or not rows:
            return []
        accepted = [row for row in rows if isinstance(row, InboxRow)]
        refused = [row for row in rows if isinstance(row, RefusedRow)]
        remedies = dict(zip(refused, await bus.find_remedies(refused), strict=True))
        deliveries: dict[str, list[OutboxRow]] = {}
        for one in await bus.outbox.list_of_messages([row.id for row in accepted]):
            deliveries.setdefault(one.key.partition(":")[0], []).append(one)
        ids = list({row.run_id for row in accepted if row.run_id})
        runs = {run.run_id: run for run in await self._runs(ids)}
        usage = await self._usage(runs.values())
        causes = {row.id: await self._cause(bus, row) for row in accepted}

        def build() -> list[dict[str, Any]]:
            views = []
            for row in rows:
                if isinstance(row, RefusedRow):
                    views.append(_refused_row(row, remedies[row]))
                elif isinstance(row, OutboxRow):
                    views.append(_sent_row(row, self.texts))
                else:
                    run = runs.get(row.run_id or "")
                    mine = deliveries.get(str(row.id), [])
                    turns = self.turns or ThreadTurns()
                    view = _accepted_row(row, run, usage, mine, turns)
                    views.append({**view, "cause": causes[row.id]})
            return views

        return await to_thread.run_sync(build)

    async def _cause(self, bus: Bus, row: InboxRow) -> str:
        """Return the schedule or hook that sent a message; "" = a person sent it."""
        try:
            message = _inbound_of(row)
        except ValueError:  # a damaged row
            return ""
        schedule = None
        if schedule_id := schedule_id_of(message):
            with suppress(RowNotFound):  # The schedule was deleted.
                schedule = await bus.schedules.find(schedule_id)
        return describe_cause(message, schedule, self.texts)

    async def _runs(self, ids: Sequence[str]) -> list[Run]:
        return await self.services.runs.rows.list_these(self.thread_id, ids) if ids else []

    async def _usage(self, runs: Iterable[Run]) -> dict[str, list[RunUsage]]:
        recorder = self.services.agent_services.usage
        known = list(runs)
        if recorder.store is None or not known:
            return {}
        await recorder.flush()
        found: dict[str, list[RunUsage]] = {}
        for row in await recorder.store.list_of_runs(
            [run.run_id for run in known],
            since=_day(min(run.created_at for run in known)),
            until=_day(max(run.updated_at for run in known) + 86_400),
        ):
            view = RunUsage.model_validate({**row, "cost_usd": row["cost_nano_usd"] / NANO})
            found.setdefault(row["run_id"], []).append(view)
        return found

    async def newest(self) -> InboundMessage | None:
        """Return the newest message of the conversation; None if the journal has none. Raises StoreError."""
        bus = self.services.bus
        if bus is None or not self.span.first:
            return None
        for row in await bus.inbox.list_of_thread(self.span, limit=1):
            try:
                return _inbound_of(row)
            except ValueError:  # a damaged row
                return None
        return None


async def open_history(
    services: Services, thread_id: str, texts: Messages = ENGLISH
) -> ConversationHistory | None:
    """Return the history of a thread; None if the thread does not exist. Raises StoreError."""
    bus = services.bus
    conversation = None if bus is None else await bus.conversations.find_of_thread(thread_id)
    state = None if bus is None else await bus.thread_state(thread_id)
    span, is_current = NO_SPAN, False
    if bus is not None and conversation is not None:
        is_current = conversation.thread_id == thread_id
        span = await bus.inbox.find_span(conversation.id, thread_id)
        if is_current:
            span = replace(span, last=NEWEST)
        elif not span.first:
            conversation = None  # API clients may write any metadata.
    if conversation is None and not state:
        return None
    return ConversationHistory(
        services=services,
        thread_id=thread_id,
        conversation=conversation,
        span=span,
        is_current=is_current,
        turns=None if state is None else ThreadTurns.of(messages_in(state)),
        title=str((state or {}).get("title") or ""),
        texts=texts,
    )


def _time_of(row: InboxRow | RefusedRow | OutboxRow) -> float:
    return row.created_at if isinstance(row, OutboxRow) else row.received_at


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _inbound_of(row: InboxRow) -> InboundMessage:
    return decode_inbound(row.body)


def _view(**fields: object) -> dict[str, Any]:
    """Return a row with its known fields."""
    return {
        "files": [],
        "admitted": None,
        "cause": "",
        "speech": [],
        "reason": "",
        "undelivered": [],
        "remedy": None,
        "starts": 0,
        "thread_id": None,
        "queue_s": None,
        "run": None,
        "usage": [],
        "messages": [],
        "is_in_thread": False,
        "deliveries": [],
        "event": None,
        **fields,
    }


def _accepted_row(
    row: InboxRow,
    run: Run | None,
    usage: Mapping[str, list[RunUsage]],
    deliveries: Sequence[OutboxRow],
    turns: ThreadTurns,
) -> dict[str, Any]:
    try:
        inbound = _inbound_of(row)
    except ValueError:  # a damaged row
        said: dict[str, Any] = {"user_id": "", "user_name": "", "text": row.body}
        turn: list[Message] = []
    else:
        turn = turns.find(message_ids(inbound))
        stored = [_file_of(file) for one in turn[:1] for file in files_of(one)]
        said = {
            "user_id": inbound.sender.user_id,
            "user_name": inbound.sender.name,
            "text": inbound.prompt,
            "files": stored or [_attachment(one) for one in inbound.attachments],
            "admitted": _admission(inbound),
            "speech": [asdict(one) for one in stored_transcripts(row).values()],
            "event": orjson.loads(row.body),
        }
    failed = [one for one in deliveries if one.state == "failed" and is_part_of_answer(one)]
    return _view(
        **said,
        id=f"m{row.id}",
        kind=row.kind,
        at=iso_time(row.received_at),
        state=message_state(row, failed),
        reason=message_reason(row, failed),
        undelivered=[one.id for one in failed],
        starts=row.starts,
        thread_id=row.thread_id,
        queue_s=None if run is None else max(0.0, run.created_at - row.received_at),
        run=None if run is None else _run_view(run),
        usage=[] if run is None else [one.model_dump() for one in usage.get(run.run_id, [])],
        messages=[_thread_message(one) for one in turn[1:]],
        is_in_thread=bool(turn),
        deliveries=[_delivery(one) for one in deliveries],
    )


def _admission(inbound: InboundMessage) -> Admission:
    if inbound.origin_kind == "schedule":
        return "schedule"
    if inbound.origin_kind:
        return "hook"
    if inbound.answers_row:
        return "answer"
    if inbound.is_private:
        return "private"
    return "mention" if inbound.is_addressed else "follow_up"


def _refused_row(row: RefusedRow, remedy: Remedy) -> dict[str, Any]:
    return _view(
        id=f"r{row.id}",
        kind="refused",
        at=iso_time(row.received_at),
        user_id=row.user_id,
        user_name=row.user_name,
        text=row.text,
        state="refused",
        reason=row.reason,
        remedy=asdict(remedy),
    )


def _sent_row(row: OutboxRow, texts: Messages) -> dict[str, Any]:
    delivery, author = _delivery(row), _author_of(row)
    return _view(
        id=f"d{row.id}",
        kind="sent",
        at=iso_time(row.created_at),
        user_id="",
        user_name=author,
        text="",
        cause=""
        if author
        else texts.cause_send.format(key=row.key.split(":", 2)[-1].rpartition(":")[0]),
        state=row.state,
        reason=row.error or "",
        deliveries=[delivery],
    )


def _author_of(row: OutboxRow) -> str:
    """Return the person who wrote a message as the bot; "" = the bot itself."""
    try:
        body = decode_outbound(row.body)
    except ValueError:  # a damaged row
        return ""
    return body.author if isinstance(body, OutboundText) else ""


def _thread_row(turn: Sequence[Message], thread_id: str) -> dict[str, Any]:
    user_id, name = sender_of(turn[0])
    return _view(
        id=f"t{turn[0].get('id')}",
        kind="thread",
        at=None,
        user_id=user_id,
        user_name=name,
        text=user_text(turn[0]),
        files=[_file_of(file) for file in files_of(turn[0])],
        state="answered",
        thread_id=thread_id,
        messages=[_thread_message(one) for one in turn[1:]],
        is_in_thread=True,
    )


def _run_view(run: Run) -> dict[str, Any]:
    has_ended = run.status not in ("pending", "running")
    return {
        "run_id": run.run_id,
        "assistant_id": run.assistant_id,
        "status": run.status,
        "error": (run.error or {}).get("message", ""),
        "created_at": iso_time(run.created_at),
        "ended_at": iso_time(run.updated_at) if has_ended else None,
    }


def _thread_message(message: Message) -> dict[str, Any]:
    used = message.get("usage_metadata") or {}
    details = used.get("input_token_details") or {}
    calls = [call for call in message.get("tool_calls") or [] if isinstance(call, dict)]
    return {
        "id": str(message.get("id") or ""),
        "type": str(message.get("type") or ""),
        "name": str(message.get("name") or ""),
        "content": text_of(message),
        "tool_calls": [{name: call.get(name) for name in ("id", "name", "args")} for call in calls],
        "tool_call_id": str(message.get("tool_call_id") or ""),
        "status": str(message.get("status") or ""),
        "model": str((message.get("response_metadata") or {}).get("model_name") or ""),
        "input_tokens": used.get("input_tokens"),
        "cached_tokens": details.get("cache_read"),
        "output_tokens": used.get("output_tokens"),
    }


def _file_of(file: Mapping[str, Any]) -> dict[str, Any]:
    path = file.get("path") or file.get("virtual_path")
    return {
        "name": str(file.get("filename") or ""),
        "mime": "",
        "path": str(path) if path else None,
    }


def _attachment(file: Attachment) -> dict[str, Any]:
    return {"name": file.name, "mime": file.mime, "path": None}


def _delivery(row: OutboxRow) -> dict[str, Any]:
    kind, text, file, is_shown = "undecodable", row.body, None, False
    try:
        body = decode_outbound(row.body)
    except ValueError:  # a damaged row
        pass
    else:
        kind, (text, file, is_shown) = body.kind, _content(body)
    failures = [json.loads(line) for line in row.failed_attempts.splitlines()]
    return {
        "id": row.id,
        "key": row.key,
        "kind": kind,
        "text": text,
        "file": file,
        "is_shown": is_shown,
        "state": row.state,
        "attempts": row.attempts,
        "uncertain_attempts": row.uncertain_attempts,
        "created_at": iso_time(row.created_at),
        "first_sent_at": iso_time(row.first_sent_at),
        "last_sent_at": iso_time(row.last_sent_at),
        "updated_at": iso_time(row.updated_at),
        "platform_id": row.platform_id,
        "error": row.error,
        "failed_attempts": [{"at": iso_time(one["at"]), "error": one["error"]} for one in failures],
    }


def _content(
    body: OutboundMessage | OutboundIndicator,
) -> tuple[str, dict[str, Any] | None, bool]:
    """Return the text and file of a delivery, and whether people see it as a part of the answer."""
    match body:
        case OutboundText():
            text = "\n\n".join(part for part in (body.markdown, *body.more) if part)
            return text, None, not body.provisional
        case OutboundFile():
            path = body.path or None
            return body.content, {"name": body.name, "mime": body.mime, "path": path}, True
        case OutboundNote():
            return body.text, None, True
        case OutboundEdit():
            return body.markdown, None, False
        case OutboundRemoval() | OutboundIndicator():
            return "", None, False
