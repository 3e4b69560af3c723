"""Questions that a turn ends with: options to choose from, approvals, and other interrupts of a graph. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from bus.locales import Messages
from bus.runs.redaction import REDACTED, is_secret_name, redact

ARGUMENT_CHARS = 500
"""Maximum number of characters to show of one tool argument, or of one option."""

CALL_CHARS = 1500
"""Maximum number of characters to show of one tool call, or of a question in an unknown form."""

InterruptKind = Literal["review", "call", "other"]
"""LangChain's human-in-the-loop request for several tool calls, its request for one call, or another interrupt."""

APPROVALS = frozenset(
    {
        *("approve", "approved", "yes", "y", "yep", "ok", "okay", "allow", "accept", "go ahead"),
        *("同意", "批准", "允许", "可以", "好", "好的", "是", "是的", "确认", "👍", "✅"),
    }
)
DENIALS = frozenset(
    {
        *("deny", "denied", "no", "n", "nope", "reject", "cancel"),
        *("拒绝", "不同意", "不", "不行", "不可以", "不要", "否", "取消", "👎", "❌"),
    }
)
APPROVE, DENY = "approve", "deny"
"""The words that a button sends in the name of the person who presses it."""

_LABELS = ("label", "title", "name", "text")
_VALUES = ("value", "id", "key")
"""Fields of an option that is an object. People see the first, and the graph gets the second."""

_ENDINGS = re.compile(r"(?<![\s.!。！,，])[\s.!。！,，]+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingInterrupt:
    """One interrupt that a thread waits for.

    Attributes:
        id: The server's ID; "" = the server gives none.
        count: Number of decisions that it needs.
    """

    id: str
    kind: InterruptKind
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question that a turn ended with. It is stored with the turn's inbox row.

    Attributes:
        options: The answers that the question offers, not shortened.
        values: The value that the graph gets for each option; () = the options themselves.
        interrupts: The interrupts that the thread waits for.
        is_numbered: Whether a number chooses an option. False if the answer itself may be a number.
    """

    options: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    interrupts: tuple[PendingInterrupt, ...] = ()
    is_numbered: bool = True

    @property
    def needs_approval(self) -> bool:
        """Whether it can be answered with yes or no."""
        return any(one.kind != "other" for one in self.interrupts)

    def __bool__(self) -> bool:
        return bool(self.options or self.interrupts)


NO_QUESTION = Question()

_QUESTION: TypeAdapter[Question] = TypeAdapter(Question)


def encode_question(question: Question) -> str | None:
    """Return the JSON for the inbox; None for nothing."""
    return _QUESTION.dump_json(question).decode() if question else None


def decode_question(asks: str | None) -> Question:
    """Return the question of an inbox row, or an empty one if another version wrote it in a different form."""
    try:
        return _QUESTION.validate_json(asks) if asks else NO_QUESTION
    except ValueError:
        return NO_QUESTION


def parse_options(arguments: object) -> tuple[str, ...]:
    """Return the options of an ask_clarification call. Models send them in several forms.

    >>> parse_options({"options": ["a", " ", {"label": "b"}, 3]}), parse_options({"options": '["x", "y"]'})
    (('a', 'b', '3'), ('x', 'y'))
    >>> parse_options({"options": "just this"}), parse_options(None)
    (('just this',), ())
    """
    given = arguments.get("options") if isinstance(arguments, Mapping) else None
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            given = [given]
    found = (" ".join(option.split()) for option in _leaves(given, depth=4))
    return tuple(dict.fromkeys(option for option in found if option))


def _leaves(given: object, depth: int) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, int | float) and not isinstance(given, bool):
        yield str(given)
    elif depth > 0 and isinstance(given, Mapping):
        for value in given.values():
            yield from _leaves(value, depth - 1)
    elif depth > 0 and isinstance(given, list):
        for value in given:
            yield from _leaves(value, depth - 1)


def pending_interrupts(interrupts: Sequence[Mapping[str, Any]]) -> tuple[PendingInterrupt, ...]:
    """Return the pending interrupts.

    >>> pending_interrupts([{"id": "i", "value": {"action_requests": [{"name": "a"}, {"name": "b"}]}}])
    (PendingInterrupt(id='i', kind='review', count=2),)
    >>> [one.kind for one in pending_interrupts([{"value": {"type": "tool_approval", "name": "a"}}, {"value": "?"}])]
    ['call', 'other']
    """
    return tuple(
        PendingInterrupt(
            id=str(one.get("id") or ""),
            kind=_shape(one.get("value")),
            count=len(_actions(one.get("value"))) or 1,
        )
        for one in interrupts
    )


def first_question(interrupts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the interrupts that people decide next with one answer: all approvals together, or one other question.

    The other questions are asked afterward, in the order in which they came.

    >>> approval, which = {"value": {"type": "tool_approval", "name": "a"}}, {"value": "Which?"}
    >>> first_question([which, approval]) == [which], first_question([approval, which, approval]) == [approval] * 2
    (True, True)
    """
    approvals = [one for one in interrupts if _shape(one.get("value")) != "other"]
    return approvals if interrupts[0] in approvals else list(interrupts[:1])


def interrupt_choices(
    interrupts: Sequence[Mapping[str, Any]],
) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Return the `options` that a graph's own question offers, and their values, if it is the only question.

    >>> interrupt_choices([{"value": {"question": "Which?", "options": ["red", {"label": "Blue", "value": 2}]}}])
    (('red', 'Blue'), ('red', 2))
    """
    values = [one.get("value") for one in interrupts]
    if len(values) != 1 or _shape(values[0]) != "other" or not isinstance(values[0], Mapping):
        return (), ()
    given = values[0].get("options")
    choices: dict[str, Any] = {}
    for option in given if isinstance(given, list) else ():
        label, value = _choice(option)
        if label:
            choices.setdefault(label, value)
    if not choices:
        choices = {option: option for option in parse_options(values[0])}
    return tuple(choices), tuple(choices.values())


def are_numbered(interrupts: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a number chooses an option. A graph sets `numbered: false` if the answer may be a number.

    >>> are_numbered([{"value": {"options": ["Skip"], "numbered": False}}]), are_numbered([{"value": {"options": []}}])
    (False, True)
    """
    values = [one.get("value") for one in interrupts]
    return not any(isinstance(one, Mapping) and one.get("numbered") is False for one in values)


def _choice(option: object) -> tuple[str, object]:
    """Return an option's label and value."""
    if isinstance(option, Mapping):
        label = next((option[key] for key in _LABELS if _is_word(option.get(key))), None)
        value = next((option[key] for key in _VALUES if _is_word(option.get(key))), label)
        label = value if label is None else label
        found = next(_leaves(option, depth=4), "") if label is None else str(label)
        return " ".join(found.split()), found if value is None else value
    words = " ".join(str(option).split()) if _is_word(option) else ""
    return words, option if not isinstance(option, str) else words


def _is_word(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def chosen_index(question: Question, text: str) -> int | None:
    """Return the index of the option that a text names by its words or number; None = no option.

    >>> question = Question(options=("Red", "2"))
    >>> [chosen_index(question, text) for text in ("red", "1.", "2", "blue")]
    [0, 0, 1, None]
    >>> chosen_index(Question(options=("Skip",), is_numbered=False), "1") is None
    True
    """
    words = " ".join(text.split()).casefold()
    named = {option.casefold(): index for index, option in enumerate(question.options)}
    numbered = {str(index + 1): index for index in range(len(question.options))}
    if not question.is_numbered:
        numbered = {}
    return named.get(words, numbered.get(words.rstrip(".")))


def question_text(
    interrupts: Sequence[Mapping[str, Any]], texts: Messages, approval_hint: str = ""
) -> str:
    """Return the text of interrupts for people: the calls to approve, or the graph's question and options.

    `approval_hint`: how to decide in this chat; "" = as in a private chat.
    """
    actions = [action for one in interrupts for action in _actions(one.get("value"))]
    others = [one.get("value") for one in interrupts if _shape(one.get("value")) == "other"]
    parts = [_free_text(value) for value in others]
    options, _ = interrupt_choices(interrupts)
    if options:  # Not every chat has buttons.
        lines = [
            f"{number}. {option}" if are_numbered(interrupts) else f"- {option}"
            for number, option in enumerate(options, start=1)
        ]
        parts.append("\n".join(_cut(redact(line), ARGUMENT_CHARS) for line in lines))
    if actions:
        shown = [_action_text(action, texts) for action in actions]
        parts += [texts.approval_ask, *shown, approval_hint or texts.approval_hint]
    return "\n\n".join(parts) or texts.approval_free


def resume_value(
    interrupts: Sequence[PendingInterrupt], text: str, question: Question = NO_QUESTION
) -> object:
    """Return the value that resumes a run: the answer to each interrupt of a question, by its ID if it has one.

    `question`: the question of the graph. If the text names one of its options, the graph gets the option's value.

    >>> resume_value([PendingInterrupt(id="i", kind="review", count=2)], "Yes!")
    {'i': {'decisions': [{'type': 'approve'}, {'type': 'approve'}]}}
    >>> resume_value([PendingInterrupt(id="i", kind="call"), PendingInterrupt(id="j", kind="call")], "not now")
    {'i': {'type': 'reject', 'message': 'not now'}, 'j': {'type': 'reject', 'message': 'not now'}}
    >>> resume_value([PendingInterrupt(id="", kind="other")], "blue")
    'blue'
    >>> asked = Question(options=("Red", "Blue"), values=("red", 7))
    >>> resume_value([PendingInterrupt(id="", kind="other")], "2", asked)
    7
    """
    chosen = chosen_index(question, text)
    answers = [
        _answer(one, text) if chosen is None else (question.values or question.options)[chosen]
        for one in interrupts
    ]
    if len(interrupts) == 1 and not interrupts[0].id:
        return answers[0]
    return {one.id: answer for one, answer in zip(interrupts, answers, strict=True)}


def is_approval(text: str) -> bool:
    """Return whether a text approves. Ignores bold and italics, but not strikethrough.

    >>> [is_approval(words) for words in ("Approve", "OK.", "好的！", "yes, but not there", "no")]
    [True, True, True, False, False]
    >>> [is_approval(words) for words in ("**yes**", "_ok_!", "~~yes~~")]
    [True, True, False]
    """
    return _plain(text) in APPROVALS


def _plain(text: str) -> str:
    return _ENDINGS.sub("", text.strip().casefold()).strip("*_`")


def _answer(one: PendingInterrupt, text: str) -> object:
    if one.kind == "other":
        return text
    decision = {"type": "approve"} if is_approval(text) else _rejection(text)
    return {"decisions": [decision] * one.count} if one.kind == "review" else decision


def _rejection(text: str) -> dict[str, str]:
    words = "" if _plain(text) in DENIALS else text.strip()
    return {"type": "reject", "message": words} if words else {"type": "reject"}


def _shape(value: object) -> InterruptKind:
    if isinstance(value, Mapping):
        requests = value.get("action_requests")
        if isinstance(requests, list) and requests:
            return "review"
        if value.get("type") == "tool_approval" and value.get("name"):
            return "call"
    return "other"


def _actions(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, Mapping) or (shape := _shape(value)) == "other":
        return []
    actions = value["action_requests"] if shape == "review" else [value]
    return [action if isinstance(action, Mapping) else {} for action in actions]


def _action_text(action: Mapping[str, Any], texts: Messages) -> str:
    name = str(action.get("name") or action.get("action") or "?")[:100]
    arguments = action.get("args")
    shown, hidden = _shown(arguments if isinstance(arguments, Mapping) else {"": arguments})
    lines = [f"**{name.replace('*', '')}**", *([_fenced(shown)] if shown else [])]
    return "\n".join([*lines, *([texts.approval_cut.format(count=hidden)] if hidden else [])])


def _shown(arguments: Mapping[str, Any]) -> tuple[str, int]:
    """Return a tool's arguments, one per line, shortened and without secrets, and the number of omitted characters."""
    lines, hidden = [], 0
    for name, value in arguments.items():
        if value is None or value == "":
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text = REDACTED if is_secret_name(str(name)) else redact(text)
        text, cut = _cut_middle(text, ARGUMENT_CHARS)
        hidden += cut
        lines.append(f"{name}: {text}" if name else text)
    text, cut = _cut_middle("\n".join(lines), CALL_CHARS)
    return text, hidden + cut


def _cut_middle(text: str, most: int) -> tuple[str, int]:
    """Return the beginning and the end of a text that is too long, and the number of omitted characters.

    >>> _cut_middle("abcdefghij", 7)
    ('abcd…ij', 4)
    """
    if len(text) <= most:
        return text, 0
    end = (most - 1) // 3
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}", len(text) - most + 1


def _free_text(value: object) -> str:
    """Return the text of a graph's own interrupt: its words if it contains any."""
    if isinstance(value, Mapping):
        for key in ("question", "message", "text", "description", "prompt"):
            if isinstance(value.get(key), str) and value[key].strip():
                return _cut(redact(value[key].strip()), CALL_CHARS)
    if isinstance(value, str):
        return _cut(redact(value.strip()), CALL_CHARS)
    dumped = json.dumps(value, ensure_ascii=False, indent=1, default=str)
    return _fenced(_cut(redact(dumped), CALL_CHARS))


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
