"""Builds the reply that people read from the parts of a run. Pure, and linear in the length of the reply."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bus.locales import Messages
from bus.runs.progress import RunProgress
from bus.runs.questions import (
    NO_QUESTION,
    Question,
    are_numbered,
    first_question,
    interrupt_choices,
    parse_options,
    pending_interrupts,
    question_text,
)
from bus.runs.stream import (
    INTERRUPTS,
    Message,
    MessageChunk,
    RunEnded,
    RunFailed,
    RunPart,
    StateSnapshot,
    ToolProgressEvent,
    is_error_reply,
    is_hidden,
    is_question,
    is_steering,
    is_user_message,
    messages_in,
    text_of,
)

CHUNKS_PER_BLOCK = 256
"""Number of deltas to join into one block, so that a reply of 100,000 deltas is about 400 objects."""


SILENCE = "NO_REPLY"
"""The answer with which the agent stays silent. The agent's prompt in groups names it (agent/speakers.py)."""

_REASONS = {
    "auth": "The model's server refused the API key.",
    "quota": "The model's account has no credit left.",
    "rate_limit": "The model's server limits requests.",
    "server": "The model's server failed.",
    "timeout": "The model did not answer in time.",
    "connection": "The model's server cannot be reached.",
    "context": "The conversation is too long for the model.",
    "request": "The model's server did not accept the request.",
    "circuit_open": "The model failed several times and is not asked for a while.",
    "usage_limit": "A usage limit left no room for the answer.",
}
"""The agent's reasons, in words for administrators."""

_AROUND_SILENCE = " \t\r\n`*_\"'.[]()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A finished answer.

    Attributes:
        markdown: The text; never empty.
        whole: The whole text, to be sent as a file, if `markdown` is only its beginning; else "".
        endless: Whether the run was ended because its text became too long.
        artifacts: Virtual paths of the files that the agent presented in this turn, in order.
        failed: Whether the run failed; `markdown` then says so and what to do.
        stopped: Whether a person stopped it; `markdown` then says so.
        retry: Whether it failed for a reason that may be gone on a retry.
        question: The question that it ends with.
        silent: Whether the agent says nothing; `markdown` is then empty, and people see nothing.
        problem: Why the run failed, for administrators; "" = `markdown` says everything that is known.
    """

    markdown: str
    whole: str = ""
    endless: bool = False
    artifacts: tuple[str, ...] = ()
    failed: bool = False
    stopped: bool = False
    retry: bool = False
    question: Question = NO_QUESTION
    silent: bool = False
    problem: str = ""


class ReplyFold:
    """Accumulates the parts of one run.

    Args:
        message_id: ID of the human message that the run answers. Only later messages of the state belong to the reply.
        max_shown: Maximum length of `shown_text`, characters.
        approval_hint: As for `question_text`.
        may_be_silent: Whether the agent may stay silent, as in groups. Otherwise, a text says that the answer is empty.

    Attributes:
        length: Characters of `text`.
    """

    def __init__(
        self,
        message_id: str,
        max_shown: int = 60_000,
        *,
        approval_hint: str = "",
        may_be_silent: bool = False,
    ) -> None:
        self.length = 0
        self._may_be_silent = may_be_silent
        self._approval_hint = approval_hint
        self._max_shown = max_shown
        self._message_id = message_id
        self._message_in_progress = ""
        self._blocks: list[str] = []
        self._pieces: list[str] = []
        self._values: Mapping[str, Any] | None = None
        self._interrupts: dict[str, Mapping[str, Any]] = {}
        self.progress = RunProgress()
        self.failure: RunFailed | None = None
        self.ended = ""

    def add(self, part: RunPart) -> bool:
        """Add a part. Return whether the text to show changed."""
        match part:
            case MessageChunk(kind="ai"):
                return self._add_chunk(part)
            case StateSnapshot():
                self.set_state(part.values)
                return self._read_state()
            case ToolProgressEvent():
                return self.progress.add_event(part.data)
            case RunFailed():
                self.failure = part
            case RunEnded():
                self.ended = part.status or "success"
            case _:
                pass
        return False

    @property
    def text(self) -> str:
        """The message being streamed. This takes time proportional to its length, so do not read it for every token."""
        return "".join([*self._blocks, *self._pieces])

    def shown_text(self) -> str:
        """Return the text to show now: `text`, or the beginning of a long one; "" while it may become `SILENCE`."""
        text = self.text[: self._max_shown]
        return "" if SILENCE.startswith(text.strip(_AROUND_SILENCE)) else text

    @property
    def values(self) -> Mapping[str, Any] | None:
        """The last state of the run."""
        return self._values

    def set_state(self, values: Mapping[str, Any]) -> None:
        """Replace the state.

        Parallel interrupts arrive one by one, and other tasks may end after them, so no later event removes interrupts.
        """
        self._values = values
        found = [one for one in values.get(INTERRUPTS) or [] if isinstance(one, dict)]
        self._interrupts |= {str(one.get("id")): one for one in found}

    @property
    def is_interrupted(self) -> bool:
        """Whether the thread is interrupted and waits for an answer."""
        return bool(self._interrupts)

    def reply(self, texts: Messages) -> Reply:
        """Return the answer of a run that succeeded, or the question that it waits for."""
        messages = turn_messages(self._values, self._message_id)
        if self._interrupts:
            asked = first_question(list(self._interrupts.values()))
            said = [without_silence(text_of(m)) for m in messages[-1:] if m.get("type") == "ai"]
            parts = [*said, question_text(asked, texts, self._approval_hint)]
            options, values = interrupt_choices(asked)
            return Reply(
                markdown="\n\n".join(part for part in parts if _is_readable(part)),
                question=Question(
                    options=options,
                    values=values if values != options else (),
                    interrupts=pending_interrupts(asked),
                    is_numbered=are_numbered(asked),
                ),
            )
        words = without_silence(answer_text(messages) or self.text)
        artifacts, options = presented_files(messages), offered_options(messages)
        if not _is_readable(words):
            if self._may_be_silent and not (artifacts or options):
                return Reply(markdown="", silent=True)
            words = texts.no_answer
        return Reply(markdown=words, artifacts=artifacts, question=Question(options=options))

    def _add_chunk(self, chunk: MessageChunk) -> bool:
        if not chunk.text:
            return False
        if chunk.message_id != self._message_in_progress or chunk.whole:
            self._start(chunk.message_id)
        self.length += len(chunk.text)
        self._pieces.append(chunk.text)
        if len(self._pieces) >= CHUNKS_PER_BLOCK:
            self._blocks.append("".join(self._pieces))
            self._pieces.clear()
        return True

    def _start(self, message_id: str) -> None:
        self._message_in_progress, self._blocks, self._pieces = message_id, [], []
        self.length = 0

    def _read_state(self) -> bool:
        """Update the progress from the state. Return whether the text to show changed.

        A clarification question is shown as soon as it is in the state, because it is never streamed in chunks.
        """
        messages = turn_messages(self._values, self._message_id)
        changed = self.progress.update(messages, (self._values or {}).get("todos"))
        if not messages or not is_question(messages[-1]):
            return changed
        self._start(str(messages[-1].get("id")))
        self._pieces.append(text_of(messages[-1]))
        return True


def limit_length(reply: Reply, max_chars: int, texts: Messages) -> Reply:
    """Shorten a reply's text to about `max_chars` characters.

    A shortened reply ends with a note and has the whole text in `whole`.

    >>> from bus.locales.en import ENGLISH
    >>> cut = limit_length(Reply(markdown="```py" + chr(10) + "a = 1" + chr(10) + "b = 2"), 14, ENGLISH)
    >>> cut.markdown.split(chr(10))[:3], len(cut.whole)
    (['```py', 'a = 1', '```'], 17)
    """
    if len(reply.markdown) <= max_chars:
        return reply
    beginning = reply.markdown[:max_chars]
    beginning = beginning.rpartition("\n")[0] or beginning
    fences = [line for line in beginning.split("\n") if line.startswith("```")]
    closing = "\n```" if len(fences) % 2 else ""
    note = texts.answer_endless if reply.endless else texts.answer_in_file
    shown = f"{beginning}{closing}\n\n{note.format(count=f'{max_chars:,}')}"
    return replace(reply, markdown=shown, whole=reply.markdown)


def without_silence(text: str) -> str:
    r"""Return an answer without `SILENCE` as its only or last line; models add formatting to it.

    >>> without_silence(" **NO_REPLY**. "), without_silence("Done.\n\nNO_REPLY"), without_silence("It says NO_REPLY")
    ('', 'Done.', 'It says NO_REPLY')
    """
    before, _, last = text.strip().rpartition("\n")
    return before.strip() if last.strip(_AROUND_SILENCE) == SILENCE else text.strip()


def turn_messages(values: Mapping[str, Any] | None, message_id: str) -> Sequence[Message]:
    """Return the messages after the human message `message_id`; if it is missing, after the last visible human message.

    They include messages that people injected during the turn.

    >>> state = {"messages": [{"type": "human", "id": "h1"}, {"type": "ai", "id": "a1"},
    ...                       {"type": "human", "id": "h2"}, {"type": "ai", "id": "a2"}]}
    >>> [m["id"] for m in turn_messages(state, "h1")], [m["id"] for m in turn_messages(state, "?")]
    (['a1'], ['a2'])
    """
    messages = messages_in(values or {})
    start = _last_index(messages, lambda m: m.get("id") == message_id)
    if start is None:
        start = _last_index(messages, _starts_turn)
    if start is None:
        return []
    following = messages[start + 1 :]
    end = next((i for i, m in enumerate(following) if _starts_turn(m)), None)
    return following[:end]


def answer_text(messages: Sequence[Message]) -> str:
    """Return the final text of a turn: a clarification question, or the last AI message with text."""
    for message in reversed(messages):
        is_ai = str(message.get("type")).lower().startswith("ai") and not is_hidden(message)
        if (is_ai or is_question(message)) and _is_readable(text := text_of(message)):
            return text.strip()
    return ""


def offered_options(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the options of the question that a turn ends with.

    >>> call = {"id": "c", "name": "ask_clarification", "args": {"options": ["a", "b"]}}
    >>> asked = {"type": "tool", "name": "ask_clarification", "tool_call_id": "c", "content": "Which?"}
    >>> offered_options([{"type": "ai", "tool_calls": [call]}, asked]), offered_options([asked])
    (('a', 'b'), ())
    """
    if not messages or not is_question(messages[-1]):
        return ()
    calls = [call for message in messages for call in message.get("tool_calls") or []]
    asked = messages[-1].get("tool_call_id")
    return next((parse_options(call.get("args")) for call in calls if call.get("id") == asked), ())


def error_reply(messages: Sequence[Message]) -> str:
    """Return the agent's own final message in a turn that failed; "" if there is none.

    It also contains the text that the model wrote before the failure.

    >>> error_reply([{"type": "ai", "content": "Sorry.", "additional_kwargs": {"error_fallback": True}}])
    'Sorry.'
    """
    return text_of(messages[-1]).strip() if messages and is_error_reply(messages[-1]) else ""


def error_reason(messages: Sequence[Message]) -> str:
    """Return the agent's reason code for a failure; "" = none."""
    extra = (messages[-1].get("additional_kwargs") or {}) if messages else {}
    return str(extra.get("error_reason") or "")


def error_cause(messages: Sequence[Message]) -> str:
    """Return the agent's description of a failure for administrators; "" = none.

    >>> extra = {"error_reason": "server", "error_type": "APIError", "error_detail": "HTTP 500"}
    >>> error_cause([{"additional_kwargs": extra}])
    "The model's server failed. APIError: HTTP 500"
    """
    extra = (messages[-1].get("additional_kwargs") or {}) if messages else {}
    cause = ": ".join(
        str(extra[name]) for name in ("error_type", "error_detail") if extra.get(name)
    )
    return f"{_REASONS.get(error_reason(messages), '')} {cause}".strip()


def _is_readable(text: str) -> bool:
    r"""Return whether a text contains more than blanks, control characters and zero-width characters.

    >>> _is_readable(" a "), _is_readable(" \n\x00\u200b\ud800")
    (True, False)
    """
    return any(char.isprintable() and not char.isspace() for char in text)


def presented_files(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the paths of this turn's successful `present_files` calls, in order, without duplicates."""
    failed = {
        m.get("tool_call_id")
        for m in messages
        if m.get("type") == "tool" and m.get("status") == "error"
    }
    answered = {m.get("tool_call_id") for m in messages if m.get("type") == "tool"}
    paths: dict[str, None] = {}
    for message in messages:
        for call in message.get("tool_calls") or []:
            if call.get("name") != "present_files" or call.get("id") in failed:
                continue
            if call.get("id") in answered:
                paths_given = (call.get("args") or {}).get("filepaths") or []
                paths.update(dict.fromkeys(str(path) for path in paths_given))
    return tuple(paths)


def _last_index(messages: Sequence[Message], predicate: Any) -> int | None:  # noqa: ANN401 - a callable
    return next((i for i in range(len(messages) - 1, -1, -1) if predicate(messages[i])), None)


def _starts_turn(message: Message) -> bool:
    return is_user_message(message) and not is_steering(message)
