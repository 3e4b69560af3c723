"""Selects the part of a summarized thread that the model sees: summary, kept skill files, recent messages. Pure."""

from collections.abc import Collection, Iterator, Sequence

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolCall, ToolMessage

from agent.middleware.skills_in_use import READ_FILE
from agent.models.answers import PROVIDER_FIELDS
from agent.paths import relative_parts
from agent.state import HistorySummary
from agent.token_estimate import estimate_message_tokens
from agent.user_messages import SUMMARY, is_user_message

KEPT_SKILL_READS = 5
"""Number of skill files that stay visible to the model; the most recently read ones are kept."""

KEPT_SKILL_TOKENS = 25_000
"""Maximum total size of kept skill files, estimated tokens."""

KEPT_SKILL_TOKENS_EACH = 5_000
"""Maximum size of one kept skill file, estimated tokens. Larger files are summarized."""

INTRODUCTION = "Here is a summary of the conversation to date:"
NO_SUMMARY = (
    "The earlier messages of this conversation are left out; there is no summary of them yet."
)


def visible_messages(
    messages: list[AnyMessage], summary: HistorySummary | None
) -> list[AnyMessage]:
    """Return the messages to send for a thread. Without a valid summary, return all of them.

    The latest user message is always kept, even if it is older than the kept end.

    Args:
        messages: The whole thread.
        summary: The summary of its beginning.
    """
    start = message_index(messages, summary["kept_from"]) if summary else None
    if summary is None or start is None:
        return messages
    head, kept = messages[:start], messages[start:]
    return [
        summary_message(summary["text"]),
        *_kept_skill_reads(head, summary["kept_calls"]),
        *_latest_user_message(head, kept),
        *kept,
    ]


def summary_message(text: str) -> HumanMessage:
    """Return the message that replaces the summarized ones."""
    content = f"{INTRODUCTION}\n\n{text}" if text else NO_SUMMARY
    return HumanMessage(content, name=SUMMARY, additional_kwargs={"hide_from_ui": True})


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
    for call_id in reversed(list(_reading_calls(messages, skills))):
        if len(kept) >= KEPT_SKILL_READS:
            break
        result = results.get(call_id)
        size = estimate_message_tokens([result]) if result is not None else 0
        if 0 < size <= min(left, KEPT_SKILL_TOKENS_EACH):
            kept.insert(0, call_id)
            left -= size
    return kept


def _reading_calls(messages: Sequence[AnyMessage], skills: str) -> Iterator[str]:
    for message in messages:
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            path = call["args"].get("path")
            is_reading = call["name"] == READ_FILE
            if is_reading and isinstance(path, str) and relative_parts(path, skills) and call["id"]:
                yield call["id"]


def _kept_skill_reads(head: Sequence[AnyMessage], call_ids: Collection[str]) -> list[AnyMessage]:
    """Return calls with their results, without the calls next to them."""
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


def _latest_user_message(
    head: Sequence[AnyMessage], kept: Sequence[AnyMessage]
) -> list[AnyMessage]:
    if any(map(is_user_message, kept)):
        return []
    return next(([message] for message in reversed(head) if is_user_message(message)), [])
