"""The model of a proof: answers each message with its mark, or fails according to the plan."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from agent.middleware.incomplete_answer import EMPTY_ANSWER_REMINDER
from agent.models.roles import BETWEEN, NO_ANSWER
from tests.fakes.model import ModelReply, ModelRequest, ToolCall, text_of
from tests.prove.plan import ModelBehavior, PlannedMessage

MARK = re.compile(r"\b([mr]\d{5})v(\d+)\b")
"""The mark and the version in the text of a person's message or a client's request."""

QUOTED = re.compile(r"^>.*$", re.MULTILINE)
OUTPUTS = "/mnt/user-data/outputs"
TOOL_FAILED = "The tool failed, so there is no file."
LONG_WORDS = 900
HANG_TIMEOUT_S = 5.0
"""Read timeout of the configured model, seconds. A request that hangs longer fails and is retried."""


def answer_text(mark: str, version: int, *, words: int = 0) -> str:
    """Return the model's answer to a version of a message. Its last words show that it is complete."""
    middle = " ".join(f"word{number}" for number in range(words)) or "as you asked"
    return f"Reply to {mark}v{version}: {middle}. End of {mark}v{version}."


def own_words(text: str) -> str:
    """Return a person's text without quoted lines, because these contain marks of other messages."""
    return QUOTED.sub("", text)


def _read_mark(text: str) -> tuple[str, int]:
    """Return the mark and version in a person's words, or in the name of the newest file, which is listed first."""
    files, _, words = own_words(text).rpartition("</uploaded_files>")
    marks = MARK.findall(words)[-1:] if words.strip() else MARK.findall(files)[:1]
    mark, version = marks[0] if marks else ("", "0")
    return mark, int(version)


def _last_words(request: ModelRequest) -> str:
    """Return the last message of a person. The agent's own reminders have the same role."""
    said = [text_of(one["content"]) for one in request.messages if one["role"] == "user"]
    return next((text for text in reversed(said) if text != EMPTY_ANSWER_REMINDER), "")


def _unanswered(messages: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the marks in messages since the last answer, with the newest version of each."""
    found: dict[str, int] = {}
    for message in reversed(messages):
        if message["role"] == "assistant" and _is_answer(message):
            break
        if message["role"] == "user":
            mark, version = _read_mark(text_of(message["content"]))
            found[mark] = max(version, found.get(mark, 0))
    return {mark: found[mark] for mark in sorted(found) if mark}


def _is_answer(message: Mapping[str, Any]) -> bool:
    """Return whether people see a message of the model as an answer.

    A question counts as an answer. Other tool calls do not, nor do words while messages have no answer yet.
    """
    names = {call["function"]["name"] for call in message.get("tool_calls") or ()}
    return "ask_clarification" in names or not (names or message["content"] in (BETWEEN, NO_ANSWER))


class ProofModel:
    """Answers requests. One-time behavior happens at the first request about a version of a message.

    Attributes:
        is_offline: Whether to break every connection.
        requests: Number of requests so far.

    Args:
        messages: The messages by mark.
        steered_places: Places in which one answer covers all unanswered messages.
    """

    def __init__(
        self, messages: Mapping[str, PlannedMessage], steered_places: Collection[str] = ()
    ) -> None:
        self.is_offline = False
        self.requests = 0
        self._messages = messages
        self._steered_places = frozenset(steered_places)
        self._requests: Counter[tuple[str, int]] = Counter()

    def answer(self, request: ModelRequest) -> ModelReply:
        """Return the reply to a request."""
        self.requests += 1
        if self.is_offline:
            return ModelReply(drop_after=0)
        mark, version = _read_mark(_last_words(request))
        message = self._messages.get(mark)
        if message is None:
            return ModelReply(text="I see.")
        self._requests[mark, version] += 1
        text = self._text(message, mark, version, request)
        first = _FIRST.get(message.behavior, ())
        if self._requests[mark, version] <= len(first):
            return first[self._requests[mark, version] - 1](text)
        return _ALWAYS.get(message.behavior) or _reply(message, mark, version, text, request)

    def _text(self, message: PlannedMessage, mark: str, version: int, request: ModelRequest) -> str:
        """Return the answer to the last message, after the answers to earlier messages that it covers."""
        words = LONG_WORDS if message.behavior is ModelBehavior.LONG else 0
        own = answer_text(mark, version, words=words)
        if message.place not in self._steered_places:
            return own
        earlier = _unanswered(request.messages)
        earlier.pop(mark, None)
        return "\n\n".join([*(answer_text(*one) for one in earlier.items()), own])


def _reply(
    message: PlannedMessage, mark: str, version: int, text: str, request: ModelRequest
) -> ModelReply:
    last = request.messages[-1]
    reply = ModelReply(text=text, token_delay_s=0.01)
    match message.behavior:
        case ModelBehavior.LONG:
            reply = ModelReply(text=text, token_delay_s=0.001)
        case ModelBehavior.TOOL if last["role"] != "tool":
            reply = _list_files(f"ls-{mark}v{version}")
        case ModelBehavior.QUESTION:
            question = {"question": text, "options": ["red", "green"]}
            call = ToolCall("ask_clarification", question, id=f"ask-{mark}v{version}")
            reply = ModelReply(calls=(call,))
        case ModelBehavior.FILE:
            reply = _hand_over(f"{mark}.txt", text, last)
    return reply


def _list_files(call_id: str) -> ModelReply:
    return ModelReply(calls=(ToolCall("ls", {"path": "/mnt/user-data/workspace"}, id=call_id),))


def _hand_over(name: str, text: str, last: Mapping[str, Any]) -> ModelReply:
    """Write a file, present it, and say so. If a tool fails, say that instead."""
    path, tool_call = f"{OUTPUTS}/{name}", last.get("tool_call_id")
    if str(last["content"]).startswith("Error"):
        return ModelReply(text=f"{text} {TOOL_FAILED}")
    if tool_call == f"present-{name}":
        return ModelReply(text=text)
    if tool_call == f"write-{name}":
        call = ToolCall("present_files", {"filepaths": [path]}, id=f"present-{name}")
    else:
        call = ToolCall("write_file", {"path": path, "content": text}, id=f"write-{name}")
    return ModelReply(calls=(call,))


_ALWAYS = {
    ModelBehavior.FAIL_ALWAYS: ModelReply(status=500),
    ModelBehavior.DENY: ModelReply(status=401),
    ModelBehavior.EMPTY: ModelReply(),
    ModelBehavior.FILTERED: ModelReply(finish_reason="content_filter"),
}
_FIRST: Mapping[ModelBehavior, Sequence[Callable[[str], ModelReply]]] = {
    ModelBehavior.SLOW: [
        lambda text: ModelReply(text=text, first_token_delay_s=2.0, token_delay_s=0.1)
    ],
    ModelBehavior.VERY_SLOW: [lambda text: ModelReply(text=text, token_delay_s=1.5)],
    ModelBehavior.REFUSE_ONCE: [lambda _: ModelReply(status=429, headers={"Retry-After": "1"})],
    ModelBehavior.FAIL_ONCE: [lambda _: ModelReply(status=500)],
    ModelBehavior.CUT_ONCE: [lambda text: ModelReply(text=text, drop_after=2)],
    ModelBehavior.HANG_ONCE: [lambda text: ModelReply(text=text, hang_after=2)],
    ModelBehavior.OVERLOADED_ONCE: [lambda _: ModelReply(status=529)],
    ModelBehavior.TOO_LONG_ONCE: [
        lambda _: ModelReply(status=400, error_code="context_length_exceeded")
    ],
    ModelBehavior.BROKEN_CALL_ONCE: [
        lambda _: ModelReply(calls=(ToolCall("ls", '{"path": /mnt'),))
    ],
    ModelBehavior.UNKNOWN_TOOL_ONCE: [lambda _: ModelReply(calls=(ToolCall("no_such_tool", {}),))],
    ModelBehavior.EMPTY_AFTER_TOOL: [lambda _: _list_files("ls-once"), lambda _: ModelReply()],
}
"""The answers to the first requests about a version of a message."""
