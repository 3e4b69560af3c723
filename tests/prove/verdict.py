"""The verdict on every message: its outcome, and all broken promises. Pure."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from bus.locales import LANGUAGES
from tests.people.chat_user import Arrival, ShownMessage
from tests.prove.journal import InboxRecord, Journal, OutboxRecord
from tests.prove.model import MARK, TOOL_FAILED, own_words
from tests.prove.plan import MessageKind, ModelBehavior

FAILURE_SIGN = "⚠️"
_END = re.compile(rf"End of {MARK.pattern}")
_BEGIN = re.compile(rf"Reply to {MARK.pattern}:")
_NO_ANSWER = tuple(words.no_answer for words in LANGUAGES.values())

_REFUSED_MORE = tuple(
    re.compile(re.escape(words.refused_more).replace(re.escape("{count}"), r"(?P<count>\d+)"))
    for words in LANGUAGES.values()
)


class Outcome(StrEnum):
    """The outcome of a message. Each outcome keeps the promise."""

    ANSWERED = "answered"
    SENT = "sent for a client"
    REPEATED = "answered, shown twice"  # The platform hid the outcome. The outbox says uncertain.
    GIVEN_UP = "given up, person told"
    REFUSED = "refused, person told"
    STOPPED = "stopped by the person"
    INTERRUPTED = "interrupted by the next message"
    NOT_ALLOWED = "not allowed, person told"
    DELETED = "deleted by the person"
    UNCERTAIN = "uncertain, administrator told"
    WAITING = "waiting for the person"
    NOTHING_SAID = "the model said nothing in a group"
    IGNORED = "not for the bot"
    UNDELIVERED = (
        "given up by the platform"  # The bot was away longer than the platform repeats events.
    )


class ViolationKind(StrEnum):
    """A kind of broken promise."""

    SILENT = "silent"
    STALE = "stale"
    STUCK = "stuck"
    DOUBLED = "doubled"
    INCOMPLETE = "incomplete"
    OUT_OF_ORDER = "out of order"
    UNEXPECTED = "unexpected answer"
    DATABASE = "database"
    PLATFORM_RULE = "platform rule"
    SERVICE = "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken promise. `message` is the message's mark; "" = none."""

    kind: ViolationKind
    text: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class SentEdit:
    """An edit by a person. Times are Unix seconds."""

    version: int
    at: float
    arrival: Arrival


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """A message that a person sent, and the platform's data about it. Times are Unix seconds.

    Attributes:
        id: Its mark.
        message_id: The platform's ID.
        arrival: Whether the bot acknowledged it.
        deletion: Whether the bot acknowledged its deletion; None = it was not deleted.
        working_signs: Its working reactions.
        has_failed_sign: Whether it has a failure reaction.
        answers: Answers that only its author sees, such as those to a slash command.
    """

    id: str
    place: str
    channel: str
    chat: str
    kind: MessageKind
    behavior: ModelBehavior
    versions: tuple[str, ...]
    message_id: str
    sent_at: float
    arrival: Arrival
    edits: tuple[SentEdit, ...] = ()
    deletion: Arrival | None = None
    working_signs: tuple[str, ...] = ()
    has_failed_sign: bool = False
    answers: tuple[ShownMessage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All evidence, collected once everything is quiet.

    Attributes:
        shown: The bot's messages as people see them, oldest first, by place.
        chats: Channel and chat, by place.
        stops: When people pressed a stop button, by place.
        interrupting: Channels in which a message interrupts the active turn.
        platform_violations: Violations that the platforms found in the bot's requests.
        service_failures: Unexpected ends of the process.
    """

    messages: Sequence[SentMessage]
    shown: Mapping[str, Sequence[ShownMessage]]
    journal: Journal
    chats: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    stops: Mapping[str, Sequence[float]] = field(default_factory=dict)
    interrupting: Collection[str] = ()
    platform_violations: Sequence[str] = ()
    service_failures: Sequence[str] = ()


@dataclass(slots=True, kw_only=True)
class MessageHistory:
    """A message with everything that belongs to it, and its outcome. None = a promise was broken.

    `marks`: its own mark, and those of messages that were sent together with it.
    """

    sent: SentMessage
    marks: set[str]
    inbox: list[InboxRecord] = field(default_factory=list)
    outbox: list[OutboxRecord] = field(default_factory=list)
    shown: list[ShownMessage] = field(default_factory=list)
    outcome: Outcome | None = None
    violations: list[Violation] = field(default_factory=list)

    @property
    def is_part(self) -> bool:
        """Whether another message's row contains it, because they were sent together."""
        own = {row.message_id or row.event_id for row in self.inbox[:1]}
        return bool(own) and self.sent.message_id not in own


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The histories, and all violations, including those without a message."""

    histories: list[MessageHistory]
    violations: list[Violation]


def judge(evidence: Evidence) -> Verdict:
    """Judge every message, every place, the databases and the service."""
    builder = _VerdictBuilder(evidence)
    histories = [builder.judge(message) for message in evidence.messages]
    violations = [violation for history in histories for violation in history.violations]
    violations += builder.judge_order()
    violations += builder.judge_copies()
    violations += builder.judge_rows()
    violations += _general(ViolationKind.DATABASE, evidence.journal.problems)
    violations += _general(ViolationKind.PLATFORM_RULE, evidence.platform_violations)
    violations += _general(ViolationKind.SERVICE, evidence.service_failures)
    return Verdict(histories=histories, violations=violations)


def _general(kind: ViolationKind, texts: Iterable[str]) -> list[Violation]:
    return [Violation(kind=kind, text=text) for text in texts]


class _VerdictBuilder:
    """Judges the evidence, grouped by messages and places."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._rows: dict[tuple[str, str, str], list[InboxRecord]] = defaultdict(list)
        self._by_conversation: dict[int, list[InboxRecord]] = defaultdict(list)
        self._stops = _stop_commands(evidence.journal.inbox)
        self._again: dict[str, list[InboxRecord]] = defaultdict(list)
        self._by_mark: dict[str, list[InboxRecord]] = defaultdict(list)
        self._by_run: dict[str, list[InboxRecord]] = defaultdict(list)
        self._by_id = {row.id: row for row in evidence.journal.inbox}
        self._behaviors = {sent.id: sent.behavior for sent in evidence.messages}
        for row in evidence.journal.inbox:
            self._rows[row.channel, row.chat, row.message_id or row.event_id].append(row)
            if row.run_id:
                self._by_run[row.run_id].append(row)
            for mark in _marks(row):
                self._by_mark[mark].append(row)
            self._by_conversation[row.conversation_id].append(row)
            cause, _, rest = row.event_id.partition(":")
            if cause in ("press", "rerun"):  # A button below the answer to this row.
                self._again[rest.partition(":")[0]].append(row)
        self._of_row: dict[str, list[OutboxRecord]] = defaultdict(list)
        self._showing: dict[tuple[str, str, str], OutboxRecord] = {}
        self._notices: dict[tuple[str, str], list[OutboxRecord]] = defaultdict(list)
        self._denials: dict[tuple[str, str], list[OutboxRecord]] = defaultdict(list)
        self._notices_left: Counter[tuple[str, str]] = Counter()
        self._uncertain_left: Counter[tuple[str, str]] = Counter()
        for sent in evidence.journal.outbox:
            self._of_row[sent.key.partition(":")[0]].append(sent)
            self._showing[sent.channel, sent.chat, sent.platform_id] = sent
            self._sort_notice(sent)

    def _sort_notice(self, sent: OutboxRecord) -> None:
        """Record a row that tells a person that a message was not accepted."""
        if sent.key.startswith(("refused:", "pairing:")):
            self._denials[sent.channel, sent.chat].append(sent)
        if sent.key.startswith(("full:", "fast:", "more:")):
            self._notices[sent.channel, sent.chat].append(sent)
            counts = {"delivered": self._notices_left, "uncertain": self._uncertain_left}
            if sent.state in counts:
                counts[sent.state][sent.channel, sent.chat] += count_refused(sent.text)

    def judge(self, sent: SentMessage) -> MessageHistory:
        """Find a message's history and its outcome."""
        rows = list(self._rows[sent.channel, sent.chat, sent.message_id])
        # Files and words sent together share one row, that of the first message.
        rows = rows or [row for row in self._by_mark[sent.id] if row.chat == sent.chat]
        # The row of a gesture's first message has the content of the others, and the answer.
        rows = [self._by_id.get(row.body.get("part_of") or row.id, row) for row in rows]
        rows += [again for row in rows for again in self._again[str(row.id)] if again not in rows]
        # A message that a run consumed shares the answer or failure of that run's turn.
        runs = {row.run_id for row in rows if row.run_id}
        together = {row.id: row for run in runs for row in self._by_run[run]}
        together |= {row.id: row for row in rows}
        outbox = [one for row_id in sorted(together) for one in self._of_row[str(row_id)]]
        known = {one.platform_id for one in outbox if one.platform_id}
        # A file's ID differs from the ID of the message that shows it.
        files = {str(one.body.get("name")) for one in outbox if one.body["kind"] == "file"}
        shown = [
            message
            for message in self._evidence.shown.get(sent.place, ())
            if message.id in known or message.file in files or _is_about(message, sent)
        ]
        shown += [message for message in sent.answers if message not in shown]
        marks = {sent.id, *(mark for row in rows for mark in _marks(row))}
        history = MessageHistory(sent=sent, marks=marks, inbox=rows, outbox=outbox, shown=shown)
        history.outcome = self._outcome(history)
        if history.is_part and sent.deletion is None and sent.id not in _marks(rows[0]):
            text = f"inbox row {rows[0].id}, which it was joined to, does not contain it"
            _violate(history, ViolationKind.SILENT, text)
        self._check_repeats(history)
        self._check_completeness(history)
        if sent.working_signs:
            _violate(
                history, ViolationKind.STUCK, f"reactions left: {', '.join(sent.working_signs)}"
            )
        for message in shown:
            if message.unfinished:
                _violate(
                    history,
                    ViolationKind.STUCK,
                    f"{message.text[:60]!r} still says that work goes on",
                )
        return history

    def _outcome(self, history: MessageHistory) -> Outcome | None:
        if history.sent.kind in {MessageKind.ASIDE, MessageKind.STRANGER}:
            return self._outcome_of_unheard(history)
        if not history.inbox:
            return self._outcome_without_row(history)
        open_rows = [row for row in history.inbox if row.state in ("new", "running")]
        if open_rows:
            text = f"inbox row {open_rows[0].id} is {open_rows[0].state}"
            _violate(history, ViolationKind.STUCK, text)
            return None
        if _answers(history, history.sent):
            return self._outcome_of_answer(history)
        return self._outcome_without_answer(history)

    def _outcome_without_answer(self, history: MessageHistory) -> Outcome | None:
        sent, own = history.sent, history.inbox[0]
        content = [one for one in history.outbox if one.is_content]
        possible = {
            Outcome.GIVEN_UP: any(_tells_failure(one) for one in history.shown),
            Outcome.DELETED: sent.deletion is not None and bool(own.body.get("is_stopped")),
            Outcome.STOPPED: self._was_stopped(history),
            Outcome.INTERRUPTED: self._was_interrupted(history),
            Outcome.UNCERTAIN: any(one.state == "uncertain" for one in content),
            Outcome.ANSWERED: sent.kind is MessageKind.COMMAND and bool(content and history.shown),
            Outcome.NOTHING_SAID: self._was_nothing_said(history),
        }
        found = next((outcome for outcome, holds in possible.items() if holds), None)
        if found is None:
            failed = [f"not delivered: {one.error}" for one in content if one.state == "failed"]
            reason = [*failed, f"inbox row {own.id} is {own.state}, nothing is shown"][0]
            _violate(history, ViolationKind.SILENT, reason)
        return found

    def _outcome_of_unheard(self, history: MessageHistory) -> Outcome | None:
        """Messages that are not for the bot have no answer. People who may not use it get a notice, once per chat."""
        sent = history.sent
        if history.inbox or history.shown:
            _violate(history, ViolationKind.UNEXPECTED, "answered, though it should not be")
            return None
        if sent.kind is MessageKind.ASIDE:
            return Outcome.IGNORED
        if self._evidence.shown.get(sent.place):
            return Outcome.NOT_ALLOWED
        denials = self._denials[sent.channel, sent.chat]
        history.outbox += denials
        if any(one.state == "uncertain" for one in denials):
            return Outcome.UNCERTAIN  # It was sent once, and nobody knows whether it arrived.
        return self._outcome_without_row(history)

    def _outcome_without_row(self, history: MessageHistory) -> Outcome | None:
        sent = history.sent
        if sent.arrival is Arrival.GIVEN_UP:
            return Outcome.UNDELIVERED
        if sent.arrival is Arrival.WAITING:
            _violate(history, ViolationKind.STUCK, "the bot never acknowledged it")
            return None
        if self._is_refusal_told(history) or sent.has_failed_sign:
            return Outcome.REFUSED
        if self._is_notice_uncertain(history):
            return Outcome.UNCERTAIN
        _violate(history, ViolationKind.SILENT, "acknowledged, and not in the inbox")
        return None

    def _is_refusal_told(self, history: MessageHistory) -> bool:
        """Return whether its own notice, or a notice about several messages, says that it was refused."""
        chat = history.sent.channel, history.sent.chat
        own = [one for one in self._notices[chat] if one.replies_to == history.sent.message_id]
        history.outbox += own
        if any(one.state == "delivered" for one in own):
            return True
        self._notices_left[chat] -= 1
        return self._notices_left[chat] >= 0

    def _is_notice_uncertain(self, history: MessageHistory) -> bool:
        """Return whether the outbox calls the delivery of such a notice uncertain."""
        chat = history.sent.channel, history.sent.chat
        own = [one for one in self._notices[chat] if one.replies_to == history.sent.message_id]
        if any(one.state == "uncertain" for one in own):
            return True
        self._uncertain_left[chat] -= 1
        return self._uncertain_left[chat] >= 0

    def _outcome_of_answer(self, history: MessageHistory) -> Outcome:
        """Return the outcome of an answered message, which depends on whether the answer is to its current text."""
        sent = history.sent
        arrived = [edit.version for edit in sent.edits if edit.arrival is Arrival.CONFIRMED]
        newest = max([1, *arrived])
        is_excused = (
            max(_answers(history, sent)) >= newest
            or self._is_offered_again(history)
            or self._was_stopped(history)
            or any(FAILURE_SIGN in message.text for message in history.shown)
        )
        if not is_excused:
            text = f"version {newest} has no answer, nor an offer of one"
            _violate(history, ViolationKind.STALE, text)
        if any(one.state == "uncertain" and not _is_shown(history, one) for one in history.outbox):
            return Outcome.UNCERTAIN
        is_uncertain = any(one.uncertain_attempts for one in history.outbox)
        times = max(map(len, _answers(history, sent).values()))
        return Outcome.REPEATED if is_uncertain and times > 1 else Outcome.ANSWERED

    def _is_offered_again(self, history: MessageHistory) -> bool:
        return any(":rerun:" in one.key for one in history.outbox)

    def _was_stopped(self, history: MessageHistory) -> bool:
        """Return whether the person sent /stop or pressed a stop button after it."""
        sent, own = history.sent, history.inbox[0]
        pressed = any(at >= sent.sent_at for at in self._evidence.stops.get(sent.place, ()))
        stops = self._stops.get((own.channel, own.chat), ())
        later = [row for row in stops if row.id > own.id]
        return pressed or any(
            row.conversation_id == own.conversation_id
            or (_is_outside(row) and _sender(row) == _sender(own))
            for row in later
        )

    def _was_interrupted(self, history: MessageHistory) -> bool:
        """Return whether a later message interrupted its turn.

        If its run failed and the process was killed before saying so, the person reads that the turn was interrupted.
        """
        own = history.inbox[0]
        is_over = own.run_status == "error" and bool(history.shown)
        return (
            history.sent.channel in self._evidence.interrupting
            and (own.run_status in (None, "interrupted") or is_over or _is_of_former_version(own))
            and any(
                row.seq > own.seq and row.kind == "chat"
                for row in self._by_conversation[own.conversation_id]
            )
        )

    def _was_nothing_said(self, history: MessageHistory) -> bool:
        """Return whether it was in a group and the model did not answer it or another message of its run."""
        own = history.inbox[0]
        runs = {row.run_id for row in history.inbox} - {None}
        others = (mark for run in runs for row in self._by_run[str(run)] for mark in _marks(row))
        is_empty = any(
            self._behaviors.get(mark) is ModelBehavior.EMPTY for mark in (*history.marks, *others)
        )
        return is_empty and own.state == "done" and own.body.get("is_private") is False

    def _count_retries(self, history: MessageHistory) -> int:
        """Return how often the person sent /retry after it."""
        own = history.inbox[0]
        later = (row for row in self._by_conversation[own.conversation_id] if row.seq > own.seq)
        return sum("/retry" in str(row.body.get("text")) for row in later)

    def _count_reruns(self, history: MessageHistory) -> int:
        """Return how often another message of its run was run again after an edit, which answers both again."""
        runs = {row.run_id for row in history.inbox} - {None}
        own = {row.id for row in history.inbox}
        rows = self._by_conversation[history.inbox[0].conversation_id]
        others = {str(row.id) for row in rows if row.run_id in runs and row.id not in own}
        reruns = (row.event_id.split(":") for row in rows if row.event_id.startswith("rerun:"))
        return sum(of in others for _, of, *_ in reruns)

    def _check_repeats(self, history: MessageHistory) -> None:
        """Check that a version has one answer, plus at most one for each attempt whose outcome the platform hid."""
        sent = history.sent
        places = ((sent.channel, sent.chat, message.id) for message in history.shown)
        # If a message was injected into an earlier turn that then ran again, that turn's answer is the answer.
        others = [self._showing[place] for place in places if place in self._showing]
        outbox = {one.id: one for one in (*history.outbox, *others)}.values()
        uncertain = sum(one.uncertain_attempts + (one.state == "uncertain") for one in outbox)
        again = len(history.inbox) - 1
        again += self._count_retries(history) + self._count_reruns(history) if history.inbox else 0
        firsts = [row for row in history.inbox if not row.event_id.startswith(("press:", "rerun:"))]
        if len(firsts) > 1:
            _violate(history, ViolationKind.DOUBLED, f"accepted {len(firsts)} times")
        for version, answers in _answers(history, sent).items():
            # An answer to later messages may cover this one again if its own answer was stopped or removed.
            shown = [one for one in answers if MARK.findall(one.text)[-1][0] in history.marks]
            if not history.is_part and len(shown) > 1 + uncertain + max(again, 0):
                text = f"version {version} is answered {len(shown)} times, {uncertain} attempts are uncertain"
                _violate(history, ViolationKind.DOUBLED, text)

    def _check_completeness(self, history: MessageHistory) -> None:
        """Check that an answer is complete and has its file."""
        sent = history.sent
        text = "\n".join(message.text for message in history.shown)
        was_cut = (
            FAILURE_SIGN in text or (history.inbox and self._was_stopped(history)) or "⏹" in text
        )
        ids = {message.id for message in history.shown}
        in_doubt = [one for one in history.outbox if one.is_content and one.state == "uncertain"]
        if any(one.platform_id not in ids for one in in_doubt):
            return  # The outbox may call a missing part uncertain.
        for version in _answers(history, sent):
            ends = {
                min(int(at), len(sent.versions))
                for mark, at in _END.findall(text)
                if mark in history.marks
            }
            if version not in ends and not was_cut:
                _violate(
                    history,
                    ViolationKind.INCOMPLETE,
                    f"the answer to version {version} lacks its end",
                )
        if sent.kind is MessageKind.FILE_REQUEST and history.outcome is Outcome.ANSWERED:
            files = [message for message in history.shown if message.file == f"{sent.id}.txt"]
            if not files and not was_cut and TOOL_FAILED not in text:
                _violate(history, ViolationKind.INCOMPLETE, "the file is missing")

    def judge_copies(self) -> list[Violation]:
        """Check that the outbox explains each repeated message, by its rows or by uncertain attempts."""
        violations = []
        known: dict[tuple[str, str], set[str]] = defaultdict(set)
        uncertain: Counter[tuple[str, str]] = Counter()
        for row in self._evidence.journal.outbox:
            known[row.channel, row.chat].add(row.platform_id)
            uncertain[row.channel, row.chat] += row.uncertain_attempts + (row.state == "uncertain")
            # The answer to a slash command has no ID.
            uncertain[row.channel, row.chat] += row.state == "delivered" and not row.platform_id
        for place, (channel, chat) in self._evidence.chats.items():
            shown = self._evidence.shown.get(place, ())
            texts = {one.text for one in shown if one.id in known[channel, chat]}
            copies = [
                one
                for one in shown
                if one.text in texts and one.text and one.id not in known[channel, chat]
            ]
            if len(copies) > uncertain[channel, chat]:
                text = f"{place}: the outbox does not know {copies[0].id}: {copies[0].text[:60]!r}"
                violations.append(Violation(kind=ViolationKind.DOUBLED, text=text))
        return violations

    def judge_order(self) -> list[Violation]:
        """Check that answers in each thread are in the order of its messages.

        After /new, two threads continue in parallel.
        """
        violations = []
        position = {
            (place, message.id): number
            for place, shown in self._evidence.shown.items()
            for number, message in enumerate(shown)
        }
        place_of = {
            (sent.channel, sent.chat, sent.message_id): sent for sent in self._evidence.messages
        }
        threads: dict[tuple[int, str | None], list[InboxRecord]] = defaultdict(list)
        for row in self._evidence.journal.inbox:
            threads[row.conversation_id, row.thread_id].append(row)
        for rows in threads.values():
            last = (-1, "")
            for row in rows:
                sent = place_of.get((row.channel, row.chat, row.message_id))
                answer = self._final_answer(row)
                if sent is None or answer is None or (sent.place, answer) not in position:
                    continue
                at = position[sent.place, answer]
                if at < last[0]:
                    text = f"answered before {last[1]}, which came earlier"
                    violations.append(
                        Violation(kind=ViolationKind.OUT_OF_ORDER, text=text, message=sent.id)
                    )
                last = max(last, (at, sent.id))
        return violations

    def _final_answer(self, row: InboxRecord) -> str | None:
        if row.kind != "chat":
            return None
        sent = [one for one in self._of_row[str(row.id)] if one.key.endswith(":reply:0")]
        # If two copies are shown, the outbox has recorded the later one.
        return sent[0].platform_id if sent and not sent[0].uncertain_attempts else None

    def judge_rows(self) -> list[Violation]:
        """Check that the journal has no unfinished row."""
        violations = []
        for row in self._evidence.journal.outbox:
            if row.state in ("pending", "sending"):
                text = f"outbox row {row.key} is {row.state}: {row.error}"
                violations.append(Violation(kind=ViolationKind.STUCK, text=text))
            elif row.state == "failed" and row.is_content:
                text = f"outbox row {row.key} failed: {row.error}"
                violations.append(Violation(kind=ViolationKind.SILENT, text=text))
        planned = {(sent.channel, sent.chat, sent.message_id) for sent in self._evidence.messages}
        for entry in self._evidence.journal.inbox:
            is_planned = (entry.channel, entry.chat, entry.message_id) in planned
            if entry.state in ("new", "running") and not is_planned:
                text = f"inbox row {entry.id} ({entry.event_id}) is {entry.state}"
                violations.append(Violation(kind=ViolationKind.STUCK, text=text))
        return violations


def _violate(history: MessageHistory, kind: ViolationKind, text: str) -> None:
    history.violations.append(Violation(kind=kind, text=text, message=history.sent.id))


def _is_about(message: ShownMessage, sent: SentMessage) -> bool:
    """Return whether a message is about another one, by its mark. The messages of a schedule share a mark."""
    if sent.kind is MessageKind.SCHEDULE:
        return False
    return message.file == f"{sent.id}.txt" or f"Reply to {sent.id}v" in message.text


def _tells_failure(message: ShownMessage) -> bool:
    return FAILURE_SIGN in message.text or message.text.startswith(_NO_ANSWER)


def _is_shown(history: MessageHistory, row: OutboxRecord) -> bool:
    """Return whether people see the message of an outbox row with an unknown outcome."""
    if row.body["kind"] == "file":
        return any(message.file == row.body.get("name") for message in history.shown)
    return any(message.text and not message.file for message in history.shown)


def count_refused(text: str) -> int:
    """Return the number of messages in a notice besides the one that it replies to.

    >>> count_refused("I did not accept 3 more of your messages. Please send them again later.")
    3
    >>> count_refused("You are sending messages too fast, so I did not accept this one.")
    0
    """
    found = next((match for match in (one.match(text) for one in _REFUSED_MORE) if match), None)
    return int(found["count"]) if found else 0


def _marks(row: InboxRecord) -> set[str]:
    """Return the marks in the text and file names of a row."""
    names = [str(file.get("name")) for file in row.body.get("attachments") or ()]
    words = own_words(str(row.body.get("text")))
    return {mark for mark, _ in MARK.findall(" ".join([words, *names]))}


def _stop_commands(rows: Iterable[InboxRecord]) -> dict[tuple[str, str], list[InboxRecord]]:
    """Return the rows of /stop, by channel and chat."""
    found: dict[tuple[str, str], list[InboxRecord]] = defaultdict(list)
    for row in rows:
        if row.kind == "command" and "/stop" in str(row.body.get("text")):
            found[row.channel, row.chat].append(row)
    return found


def _is_of_former_version(row: InboxRecord) -> bool:
    """Return whether the run of a message answers its text from before the last edit."""
    edits = int(row.body.get("edit_count") or 0)
    return edits > 0 and not str(row.run_version).endswith(f"#{edits}")


def _sender(row: InboxRecord) -> object:
    return dict(row.body.get("sender") or {}).get("user_id")


def _is_outside(row: InboxRecord) -> bool:
    """Return whether a command in a group is outside of every conversation.

    It then concerns its sender's turns in the chat.
    """
    return not row.body.get("is_private") and row.topic in ("", row.message_id)


def _answers(history: MessageHistory, sent: SentMessage) -> dict[int, list[ShownMessage]]:
    """Return, by version of the message, the messages that begin an answer to it.

    An answer to a message that was sent together with it also counts. That message may have more versions.
    """
    found: dict[int, list[ShownMessage]] = {}
    for message in history.shown:
        begun = [(mark, int(version)) for mark, version in _BEGIN.findall(message.text)]
        versions = {
            min(version, len(sent.versions)) for mark, version in begun if mark in history.marks
        }
        for version in versions:
            found.setdefault(version, []).append(message)
    return found
