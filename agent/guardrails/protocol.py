"""What a guardrail is asked, what it answers, and what asks it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

ALLOWED: Final = "oap.allowed"
NOT_ALLOWED: Final = "oap.tool_not_allowed"
COMMAND_NOT_ALLOWED: Final = "oap.command_not_allowed"
BLOCKED_PATTERN: Final = "oap.blocked_pattern"
LIMIT_EXCEEDED: Final = "oap.limit_exceeded"
SUSPENDED: Final = "oap.passport_suspended"
DENIED: Final = "oap.denied"
EVALUATOR_ERROR: Final = "oap.evaluator_error"
APPROVAL_REQUIRED: Final = "oap.approval_required"
REJECTED: Final = "oap.rejected"

EXEMPT_TOOLS: Final = frozenset({"ask_clarification", "write_todos"})
"""Tools that touch nothing outside the conversation: an active passport is enough, and nobody is asked about them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailRequest:
    """One tool call that is about to be made.

    Attributes:
        tool_name: The tool; empty where the model named none.
        tool_input: Its arguments, as the model wrote them.
        agent_id: The `passport` of the configuration.
        thread_id: The thread; None where nobody said.
        is_subagent: Whether a subagent asks.
        timestamp: When, ISO 8601 with zone.
        user_id: For whom the run works: `{channel}:{workspace}:{platform user id}` from chats.
        run_id: The run.
        tool_call_id: The call.
        mcp_server: The MCP server that the tool belongs to; None = it is no such tool.
    """

    tool_name: str
    tool_input: Mapping[str, Any]
    agent_id: str | None = None
    thread_id: str | None = None
    is_subagent: bool = False
    timestamp: str = ""
    user_id: str | None = None
    run_id: str | None = None
    tool_call_id: str | None = None
    mcp_server: str | None = None


@dataclass(frozen=True, slots=True)
class GuardrailReason:
    """Why: a code for programs, a sentence for the model."""

    code: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailDecision:
    """Whether the call may be made.

    Attributes:
        allow: False also where a person has to be asked: who does not know of `ask` makes no call.
        ask: Whether a person decides; the first reason is told to them.
        reasons: The first is told to the model.
        policy_id: Which rule decided, for the log.
        metadata: Whatever else a provider wants to say.
    """

    allow: bool
    reasons: tuple[GuardrailReason, ...] = ()
    policy_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    ask: bool = False


class GuardrailProvider(Protocol):
    """Decides about tool calls. No class to derive from: these three names are enough.

    What it answers is read by name as well: `allow`, `ask`, `reasons` with `code` and `message`, `policy_id`.
    """

    @property
    def name(self) -> str:
        """Return its name for the log."""
        ...

    def evaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        """Decide; may block. Whatever it raises counts as `fail_closed` says."""
        ...

    async def aevaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        """Decide on the event loop."""
        ...


def allow(*, policy_id: str | None = None) -> GuardrailDecision:
    """Return the decision that a call may be made."""
    return GuardrailDecision(
        allow=True, reasons=(GuardrailReason(ALLOWED, "allowed by policy"),), policy_id=policy_id
    )


def deny(code: str, message: str, *, policy_id: str | None = None) -> GuardrailDecision:
    """Return the decision that it may not, and why."""
    return GuardrailDecision(
        allow=False, reasons=(GuardrailReason(code, message),), policy_id=policy_id
    )


def ask_for_approval(message: str, *, policy_id: str | None = None) -> GuardrailDecision:
    """Return the decision that a person decides, and what they are told of it."""
    reason = GuardrailReason(APPROVAL_REQUIRED, message)
    return GuardrailDecision(allow=False, ask=True, reasons=(reason,), policy_id=policy_id)
