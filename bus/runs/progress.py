"""The progress of a run, apart from its answer: tool calls, plan, subagents. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from bus.locales.en import Messages
from bus.messages import ToolStep
from bus.runs.redaction import REDACTED, is_secret_name, redact
from bus.runs.stream import CLARIFICATION, Message, text_of

MAX_ITEMS = 4
"""Maximum number of tools and subagents to show. A plan shows twice as many steps."""

DETAIL_CHARS = 60

DETAIL_ARGUMENTS = (
    "description",
    "query",
    "url",
    "command",
    "path",
    "pattern",
    "prompt",
    "question",
)
"""Arguments that describe a call best, in order of preference."""

HIDDEN_TOOLS = frozenset({"task", "write_todos", CLARIFICATION, "present_files"})
"""Tools that are not shown, because people see their effect."""

STATUS_EMOJI = {"completed": "✅", "in_progress": "▶️"}
PENDING_EMOJI, TOOL_EMOJI, SUBAGENT_EMOJI = "▫️", "🔧", "🤖"

TASK_END_EVENTS = frozenset({"task_completed", "task_failed", "task_cancelled", "task_timed_out"})


UNKEPT_TOOLS = HIDDEN_TOOLS - {"task"}
"""Tools that do not count as steps, because people see their effect."""

MAX_STEP_CHARS = 4_000
"""Maximum length of a step's arguments, and of its result."""


class RunProgress:
    """The current progress of one run."""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._subagents: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self._todos: Sequence[Mapping[str, Any]] = []
        self._messages: Sequence[Message] = ()

    def update(self, messages: Sequence[Message], todos: object) -> bool:
        """Update from the turn's messages so far and its plan. Return whether anything changed."""
        self._messages = messages
        calls = _open_calls(messages)
        plan = (
            [todo for todo in todos if isinstance(todo, Mapping)] if isinstance(todos, list) else []
        )
        changed = calls != self._calls or plan != self._todos
        self._calls, self._todos = calls, plan
        self._texts = {call: text for call, text in self._texts.items() if call in calls}
        return changed

    def add_event(self, data: object) -> bool:
        """Add an event that a tool emitted while it runs. Return whether anything changed."""
        if not isinstance(data, Mapping):
            return False
        kind, task = str(data.get("type")), str(data.get("task_id"))
        if kind == "tool_progress":
            call, text = str(data.get("tool_call_id")), _flat(str(data.get("text") or ""))
            is_new = call in self._calls and self._texts.get(call) != text
            self._texts[call] = text
            return is_new
        if kind == "task_started":
            self._subagents[task] = _flat(str(data.get("description") or ""))
            return True
        return kind in TASK_END_EVENTS and self._subagents.pop(task, None) is not None

    def steps(self) -> list[ToolStep]:
        """Return the finished tool calls, in order. Takes time proportional to the turn's messages."""
        results = {m.get("tool_call_id"): m for m in self._messages if m.get("type") == "tool"}
        return [
            _step(call, results[call.get("id")])
            for message in self._messages
            for call in message.get("tool_calls") or []
            if call.get("id") in results and call.get("name") not in UNKEPT_TOOLS
        ]

    def lines(self, words: Messages) -> str:
        """Return the progress as Markdown, at most about fifteen short lines; "" if there is none."""
        steps = [
            f"{STATUS_EMOJI.get(str(todo.get('status')), PENDING_EMOJI)} {_flat(str(todo.get('title') or ''))}"
            for todo in self._todos
        ]
        tools = [
            f"{TOOL_EMOJI} {call}{f': {self._texts[key]}' if self._texts.get(key) else ''}"
            for key, call in self._calls.items()
        ]
        others = [
            f"{SUBAGENT_EMOJI} {what or words.progress_subagent}"
            for what in self._subagents.values()
        ]
        lines = [*_some(steps, 2 * MAX_ITEMS), *_some(tools, MAX_ITEMS), *_some(others, MAX_ITEMS)]
        return "\n".join(f"> {line}  " for line in lines)


def _open_calls(messages: Sequence[Message]) -> dict[str, str]:
    """Return the tool calls without a result, by id."""
    last = next(
        (m for m in reversed(messages) if str(m.get("type")).lower().startswith("ai")), None
    )
    if last is None:
        return {}
    answered = {m.get("tool_call_id") for m in messages if m.get("type") == "tool"}
    return {
        str(call.get("id")): _call(call)
        for call in last.get("tool_calls") or []
        if call.get("id") not in answered and call.get("name") not in HIDDEN_TOOLS
    }


def _call(call: Mapping[str, Any]) -> str:
    args = call.get("args")
    given = args if isinstance(args, Mapping) else {}
    detail = next((_flat(str(given[name])) for name in DETAIL_ARGUMENTS if given.get(name)), "")
    name = str(call.get("name")).replace("`", "")
    return f"`{name}` {detail}".strip()


def _step(call: Mapping[str, Any], result: Message) -> ToolStep:
    args = call.get("args")
    given = {
        str(name): REDACTED if is_secret_name(str(name)) else redact(str(value))
        for name, value in (args.items() if isinstance(args, Mapping) else ())
    }
    lines = [f"{name}: {value}" for name, value in given.items()]
    return ToolStep(
        id=str(call.get("id")),
        title=_call({**call, "args": given}),
        arguments="\n".join(lines)[:MAX_STEP_CHARS],
        result=redact(text_of(result)).strip()[:MAX_STEP_CHARS],
        failed=result.get("status") == "error",
    )


def _flat(text: str) -> str:
    r"""Return the beginning of a text on one line, without Markdown syntax.

    >>> _flat("*look* at\nthis")
    'look at this'
    """
    flat = " ".join("".join(char for char in text[:400] if char not in "*_`~[]<>|#\\").split())
    return flat if len(flat) <= DETAIL_CHARS else f"{flat[:DETAIL_CHARS].rstrip()}…"


def _some(lines: Sequence[str], most: int) -> Sequence[str]:
    if len(lines) <= most:
        return lines
    return [f"… +{len(lines) - most}", *lines[-most:]]
