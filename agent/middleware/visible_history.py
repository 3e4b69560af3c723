"""Selects the part of a thread that the model sees: the summary, kept skill files, recent messages. Pure.

Long tool results before a certain message are replaced with their beginning and the path of a file.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolCall, ToolMessage

from agent.middleware.history_size import KeptSize, cut_index
from agent.models.answers import PROVIDER_FIELDS
from agent.paths import relative_parts
from agent.saved_texts import SAVED_TO, message_text, part_path, text_path, with_text
from agent.state import HistorySummary, LeftOutTexts
from agent.token_estimate import chars_for_tokens, estimate_message_tokens, estimate_tokens
from agent.tools.files import READ_FILE
from agent.user_messages import SUMMARY, is_user_message

KEPT_SKILL_READS = 5
"""Number of skill files that stay visible to the model; the most recently read ones are kept."""

KEPT_SKILL_TOKENS = 25_000
"""Maximum total size of kept skill files, estimated tokens."""

KEPT_SKILL_TOKENS_EACH = 5_000
"""Maximum size of one kept skill file, estimated tokens. Larger files are summarized."""

LONG_RESULT_CHARS = 1_000
"""Results up to this length, in characters, are never left out: that would save too little."""

SHOWN_CHARS = 200
"""Length of the beginning of a result that stays, characters: enough to recognize it."""

INTRODUCTION = "Here is a summary of the conversation to date:"
NO_SUMMARY = (
    "The earlier messages of this conversation are left out; there is no summary of them yet."
)
NOT_COVERED = "It does not cover the last of the left-out messages yet."
IMPORTANT = (
    "What people marked as important, in their words (if lines contradict, the last one holds):"
)

FILES = "The left-out messages, word for word (search them with grep, read them with read_file):"

NOTHING_LEFT_OUT = LeftOutTexts(before="", whole=[], unsaved=[], in_files={}, shortened={})


@dataclass(frozen=True)
class VisibleHistory:
    """A thread, and a record of the parts that requests omit. A part that refers to a missing message has no effect.

    Attributes:
        thread: All messages.
        summary: The summary of the beginning.
        left_out: Long texts that are shown in part.
    """

    thread: list[AnyMessage]
    summary: HistorySummary | None = None
    left_out: LeftOutTexts | None = None

    @property
    def key(self) -> str:
        """A key for this history within its thread. Needed because subagents share their parent's thread ID."""
        return str(self.thread[0].id) if self.thread else ""

    @cached_property
    def start(self) -> int:
        """The index of the first message that is not replaced by the summary."""
        return self._index(self.summary["kept_from"]) if self.summary else 0

    @property
    def summarized(self) -> int:
        """The index of the first message that the summary does not cover."""
        return self._index(self.summary["summarized_to"]) if self.summary else 0

    @cached_property
    def messages(self) -> list[AnyMessage]:
        """The messages to send. The latest user message is always among them.

        Returns the thread itself if it is sent unchanged.
        """
        start = self.start
        if start == 0 and self.left_out is None:
            return self.thread
        kept = self.part(start, len(self.thread))
        if start == 0 or self.summary is None:
            return kept
        head = self.thread[:start]
        return [
            summary_message(self.summary, self.key),
            *_kept_skill_reads(head, self.summary["kept_calls"]),
            *self._latest_user_message(kept),
            *kept,
        ]

    def part(self, start: int, end: int) -> list[AnyMessage]:
        """Return these messages as requests contain them."""
        left_out = self.left_out
        if left_out is None:
            return self.thread[start:end]
        before = self._index(left_out["before"])
        return [
            _shown(message, left_out, is_old=at < before)
            for at, message in enumerate(self.thread[start:end], start)
        ]

    def without_results(self, end: int, skills: str) -> "VisibleHistory":
        """Return the history without the long tool results before an index. Keeps the skill files read last.

        Args:
            end: The index of the first message whose result stays.
            skills: The virtual path of the skills.
        """
        if end <= self.start or end <= self._index((self.left_out or NOTHING_LEFT_OUT)["before"]):
            return self
        left_out = self.left_out or NOTHING_LEFT_OUT
        whole = recent_skill_reads(self.thread[self.start : end], skills)
        before = str(self.thread[end].id)
        return replace(self, left_out={**left_out, "before": before, "whole": whole})

    def with_unsaved(self, message_ids: Collection[str]) -> "VisibleHistory":
        """Return the history with a note at texts that could not be saved to a file."""
        if not message_ids or self.left_out is None:
            return self
        unsaved = sorted({*self.left_out["unsaved"], *message_ids})
        return replace(self, left_out={**self.left_out, "unsaved": unsaved})

    def with_files(self, lines: Mapping[str, str]) -> "VisibleHistory":
        """Return the history with, by message ID, the lines of existing files that contain its texts."""
        if not lines or self.left_out is None:
            return self
        in_files = {**self.left_out["in_files"], **lines}
        return replace(self, left_out={**self.left_out, "in_files": in_files})

    def shortened(self, tokens: int) -> "VisibleHistory":
        """Return the history with its longest texts shortened, so that it has about `tokens` tokens in total."""
        given = [message for message in self.messages if message.id is not None]
        sizes = [estimate_message_tokens([message]) for message in given]
        most = tokens
        for count, size in enumerate(sorted(sizes)):
            # Shorter texts stay whole; the longer ones get equal shares of the remaining tokens.
            most = max(tokens, 0) // (len(sizes) - count)
            if size > most:
                break
            tokens -= size
        chars = {
            str(message.id): max(chars_for_tokens(message_text(message), most), LONG_RESULT_CHARS)
            for message, size in zip(given, sizes, strict=True)
            if size > most
        }
        if not chars:
            return self
        left_out = self.left_out or NOTHING_LEFT_OUT
        shortened = {**left_out["shortened"], **chars}
        return replace(self, left_out={**left_out, "shortened": shortened})

    def read_paths(self) -> dict[str, str]:
        """Return the paths of files that the model read, by the IDs of the calls."""
        return dict(_reading_calls(self.thread[self.start :]))

    @cached_property
    def partial_texts(self) -> dict[str, AnyMessage]:
        """Messages that are shown in part and not saved yet, by the path of the file for their text."""
        shown = self.part(self.start, len(self.thread))
        return {
            text_path(message): message
            for message, part in zip(self.thread[self.start :], shown, strict=True)
            if part is not message and SAVED_TO not in message.additional_kwargs
        }

    def cut(self, keep: KeptSize) -> int:
        """Return the index of the first message to keep."""
        start = self.start
        at = start + cut_index(self.part(start, len(self.thread)), keep)
        while at > start and self.thread[at].id is None:
            at -= 1  # a message without an id exists only in this request and cannot be found again
        return at

    def _latest_user_message(self, kept: Sequence[AnyMessage]) -> list[AnyMessage]:
        if any(map(is_user_message, kept)):
            return []
        before = range(self.start - 1, -1, -1)
        at = next((at for at in before if is_user_message(self.thread[at])), None)
        return [] if at is None else self.part(at, at + 1)

    def _index(self, message_id: str) -> int:
        """Return the index of a message; 0 if it is gone."""
        return message_index(self.thread, message_id) or 0 if message_id else 0


def summary_message(summary: HistorySummary, key: str) -> HumanMessage:
    """Return the message that replaces the summarized messages."""
    parts = [f"{INTRODUCTION}\n\n{summary['text']}" if summary["text"] else NO_SUMMARY]
    if summary["text"] and summary["summarized_to"] != summary["kept_from"]:
        parts.append(NOT_COVERED)
    if summary["important"]:
        parts.append("\n- ".join((IMPORTANT, *summary["important"])))
    if summary["parts"]:
        files = [part_path(key, 1)]
        if summary["parts"] > 1:
            files[0] += " (oldest, and so on)"
            files.append(f"{part_path(key, summary['parts'])} (newest)")
        parts.append("\n- ".join((FILES, *files)))
    return HumanMessage("\n\n".join(parts), name=SUMMARY, additional_kwargs={"hide_from_ui": True})


def message_index(messages: Sequence[AnyMessage], message_id: str) -> int | None:
    """Return the index of a message, searched from the end; None if it is gone."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].id == message_id:
            return at
    return None


def recent_skill_reads(messages: Sequence[AnyMessage], skills: str) -> list[str]:
    """Return the ids of the latest calls that read skill files, within the limits, in order.

    Args:
        messages: The messages about to be dropped.
        skills: The virtual path of the skills.
    """
    results = {m.tool_call_id: m for m in messages if isinstance(m, ToolMessage)}
    kept: list[str] = []
    left = KEPT_SKILL_TOKENS
    calls = [call for call, path in _reading_calls(messages) if relative_parts(path, skills)]
    for call_id in reversed(calls):
        if len(kept) >= KEPT_SKILL_READS:
            break
        result = results.get(call_id)
        size = estimate_message_tokens([result]) if result is not None else 0
        if 0 < size <= min(left, KEPT_SKILL_TOKENS_EACH):
            kept.insert(0, call_id)
            left -= size
    return kept


def _shown(message: AnyMessage, left_out: LeftOutTexts, *, is_old: bool) -> AnyMessage:
    """Return a message as requests contain it."""
    if (
        is_old
        and isinstance(message, ToolMessage)
        and message.tool_call_id not in left_out["whole"]
    ):
        shown = SHOWN_CHARS
    else:
        shown = left_out["shortened"].get(str(message.id), 0) if left_out["shortened"] else 0
    if not shown or message.type not in ("tool", "human"):
        return message
    text = message_text(message)
    if len(text) <= max(LONG_RESULT_CHARS, shown):
        return message
    if lines := left_out["in_files"].get(str(message.id)):
        where = f"{lines} had this text; read them with read_file or search the file with grep"
    elif str(message.id) in left_out["unsaved"]:
        where = "it could not be saved; call the tool again if you need it"
    else:
        where = f"the whole text is in {text_path(message)}; read it with read_file or search it with grep"
    tail = 0 if shown == SHOWN_CHARS else shown // 4
    end = f"\n{text[-tail:]}" if tail else ""
    note = f"[{len(text) - shown} of {len(text)} characters left out to save space: {where}]"
    return with_text(message, f"{text[: shown - tail]}\n... {note}{end}")


def saved_tokens(before: Iterable[AnyMessage], after: Iterable[AnyMessage]) -> int:
    """Return how many tokens the second version of the same messages saves."""
    return sum(
        estimate_tokens(message_text(old)) - estimate_tokens(message_text(new))
        for old, new in zip(before, after, strict=True)
        if old is not new
    )


def _reading_calls(messages: Sequence[AnyMessage]) -> Iterator[tuple[str, str]]:
    """Yield the IDs and paths of calls of read_file."""
    for message in messages:
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            path = call["args"].get("path")
            if call["name"] == READ_FILE and isinstance(path, str) and call["id"]:
                yield call["id"], path


def _kept_skill_reads(head: Sequence[AnyMessage], call_ids: Collection[str]) -> list[AnyMessage]:
    """Return the calls with these ids and their results, without other calls of the same messages."""
    if not call_ids:
        return []
    results = {
        m.tool_call_id: m for m in head if isinstance(m, ToolMessage) and m.tool_call_id in call_ids
    }
    pairs: list[AnyMessage] = []
    for message in head:
        if not isinstance(message, AIMessage):
            continue
        for call in message.tool_calls:
            if call["id"] in results and call["id"] in call_ids:
                pairs += [_only_call(message, call), results[call["id"]]]
    return pairs


def _only_call(message: AIMessage, call: ToolCall) -> AIMessage:
    """Return a message with only one of its calls, and the data that its provider requires with the call."""
    fields = message.additional_kwargs.get(PROVIDER_FIELDS)
    extra = {PROVIDER_FIELDS: fields} if fields else {}
    return AIMessage(content="", tool_calls=[call], id=message.id, additional_kwargs=extra)
