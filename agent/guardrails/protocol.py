"""Guardrail protocol: request, decision and provider."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

ALLOWED = "oap.allowed"
NOT_ALLOWED = "oap.tool_not_allowed"
COMMAND_NOT_ALLOWED = "oap.command_not_allowed"
BLOCKED_PATTERN = "oap.blocked_pattern"
LIMIT_EXCEEDED = "oap.limit_exceeded"
SUSPENDED = "oap.passport_suspended"
DENIED = "oap.denied"
EVALUATOR_ERROR = "oap.evaluator_error"
APPROVAL_REQUIRED = "oap.approval_required"
REJECTED = "oap.rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailRequest:
    """A tool call to decide on.

    Attributes:
        tool_name: The tool; empty if the model named none.
        tool_input: Its arguments, as the model wrote them.
        agent_id: The configured `passport`.
        thread_id: The thread; None if unknown.
        is_subagent: Whether a subagent makes the call.
        timestamp: ISO 8601 with time zone.
        user_id: The user of the run; `{channel}:{workspace}:{platform user id}` in chats.
        run_id: The run.
        tool_call_id: The tool call.
        mcp_server: The MCP server of the tool; None = not an MCP tool.
        is_exempt: Whether it is a built-in tool without effects outside the conversation. Such a tool needs an active
            passport but no approval. This is not decided by the name, because other tools may have the same name.
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
    is_exempt: bool = False


@dataclass(frozen=True, slots=True)
class GuardrailReason:
    """A reason: a code for programs, a sentence for the model."""

    code: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailDecision:
    """Whether a call may run.

    Attributes:
        allow: Also false if a person must decide, so that callers that ignore `ask` deny the call.
        ask: Whether a person decides. The person sees the first reason.
        reasons: The model sees the first one.
        policy_id: The rule that decided, for logs.
        metadata: Additional data of the provider.
    """

    allow: bool
    reasons: tuple[GuardrailReason, ...] = ()
    policy_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    ask: bool = False


@runtime_checkable
class ReportsProblem(Protocol):
    """A provider that can detect in advance that it will deny every call."""

    def find_problem(self) -> str | None:
        """Return why it will deny every call, in one line. None = it decides each call. Blocking."""
        ...


class GuardrailProvider(Protocol):
    """Decides on tool calls. A provider needs no base class, only these attributes and methods.

    A decision needs no base class either, only `allow`, `ask`, `reasons` with `code` and `message`, and `policy_id`.
    """

    @property
    def name(self) -> str:
        """Return its name, for logs."""
        ...

    def evaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        """Decide; may block. Exceptions are handled according to `fail_closed`."""
        ...

    async def aevaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        """Decide on the event loop."""
        ...


def allow(*, policy_id: str | None = None) -> GuardrailDecision:
    """Return a decision that allows the call."""
    return GuardrailDecision(
        allow=True, reasons=(GuardrailReason(ALLOWED, "allowed by policy"),), policy_id=policy_id
    )


def deny(code: str, message: str, *, policy_id: str | None = None) -> GuardrailDecision:
    """Return a decision that denies the call."""
    return GuardrailDecision(
        allow=False, reasons=(GuardrailReason(code, message),), policy_id=policy_id
    )


def ask_for_approval(message: str, *, policy_id: str | None = None) -> GuardrailDecision:
    """Return a decision that asks a person, with a message for them."""
    reason = GuardrailReason(APPROVAL_REQUIRED, message)
    return GuardrailDecision(allow=False, ask=True, reasons=(reason,), policy_id=policy_id)
