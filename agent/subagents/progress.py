"""SubagentProgress and SubagentResult: track a subagent while it runs, and hold its outcome."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.messages.ai import UsageMetadata

from agent.models.failures import is_fallback
from agent.streaming import MessageEvent, TurnReader
from agent.subagents.status import SubagentStatus

TURN_CAPPED = "turn_capped"
"""Key in a message's `additional_kwargs`, and a stop reason: the subagent reached its turn limit."""

NO_RESPONSE = "No response generated"
NO_TEXT = "No text content in response"
CANCELLED_ERROR = "Cancelled by user"
INTERRUPTED_ERROR = "A person must decide how to continue, and a subagent cannot ask one"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentResult:
    """The outcome of a delegation.

    Attributes:
        status: The status.
        result: The final text, if completed.
        error: Why it did not complete.
        is_capped: Whether it had to answer because it reached its turn limit.
        usage: The tokens its model calls used; None = unknown.
    """

    status: SubagentStatus
    result: str = ""
    error: str = ""
    is_capped: bool = False
    usage: UsageMetadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentMessage:
    """An answer of a subagent's model; `index` counts from 1."""

    message: AIMessage
    index: int


class SubagentProgress:
    """Follows the state of a subagent's graph.

    Args:
        report: Called with each answer of the model.
    """

    def __init__(self, report: Callable[[SubagentMessage], None]) -> None:
        self._report = report
        self._reader = TurnReader(None)
        self._messages: Sequence[AnyMessage] = ()
        self._reported = 0
        self._is_interrupted = False

    @property
    def usage(self) -> UsageMetadata | None:
        """The tokens used so far; None = unknown."""
        return self._reader.usage

    def add_state(self, values: Mapping[str, Any]) -> None:
        """Read the state after a step, and report its new answers."""
        self._is_interrupted = "__interrupt__" in values
        self._messages = values.get("messages") or self._messages
        for event in self._reader.read("values", values):
            if isinstance(event, MessageEvent):
                self._reported += 1
                self._report(SubagentMessage(message=event.message, index=self._reported))

    def result(self) -> SubagentResult:
        """Return the outcome of the delegation after the graph has ended."""
        last = next((m for m in reversed(self._messages) if isinstance(m, AIMessage)), None)
        text = final_text(self._messages)
        if self._is_interrupted:
            return SubagentResult(status="failed", error=INTERRUPTED_ERROR, usage=self.usage)
        if last is not None and is_fallback(last):
            return SubagentResult(status="failed", error=text, usage=self.usage)
        capped = last is not None and bool(last.additional_kwargs.get(TURN_CAPPED))
        return SubagentResult(status="completed", result=text, is_capped=capped, usage=self.usage)


def final_text(messages: Sequence[AnyMessage]) -> str:
    r"""Return the text of the last answer in a subagent's history.

    >>> final_text([AIMessage("Half."), AIMessage([{"type": "text", "text": "All"}, "done"])])
    'All\ndone'
    """
    if not messages:
        return NO_RESPONSE
    last = next((m for m in reversed(messages) if isinstance(m, AIMessage)), messages[-1])
    if isinstance(last.content, str):
        return last.content or NO_RESPONSE
    return "\n".join(_texts(last.content)) or NO_TEXT


def _texts(blocks: Sequence[str | dict[Any, Any]]) -> list[str]:
    found = [
        block if isinstance(block, str) else block.get("text")
        for block in blocks
        if isinstance(block, str) or block.get("type") in ("text", "output_text")
    ]
    return [text for text in found if isinstance(text, str) and text]
