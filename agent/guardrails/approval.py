"""Approval of tool calls by a person, in LangChain's human-in-the-loop format. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.guardrails.protocol import GuardrailRequest

APPROVE = "approve"
REJECT = "reject"

MEANS_APPROVE = frozenset({APPROVE, "accept"})
"""Clients with LangGraph's older format send `accept`."""

REASON_CHARS = 2000
"""Maximum length of a person's reason for the model, characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecision:
    """A person's decision. `reason` is the person's own text for a rejection."""

    approved: bool
    reason: str = ""


def approval_request(request: GuardrailRequest, description: str) -> dict[str, Any]:
    """Return the value of the interrupt: one action, with the arguments as the model wrote them.

    `description` tells people why the call needs approval.
    """
    action = {
        "name": request.tool_name,
        "args": dict(request.tool_input),
        "description": description,
    }
    review = {"action_name": request.tool_name, "allowed_decisions": [APPROVE, REJECT]}
    return {"action_requests": [action], "review_configs": [review]}


def parse_decision(answer: object) -> ApprovalDecision:
    """Parse the answer to the interrupt. An invalid answer is a rejection.

    >>> parse_decision({"decisions": [{"type": "approve"}]})
    ApprovalDecision(approved=True, reason='')
    >>> parse_decision({"decisions": [{"type": "reject", "message": "not now"}]})
    ApprovalDecision(approved=False, reason='not now')
    >>> parse_decision([{"type": "accept"}]).approved, parse_decision(True).approved, parse_decision("yes").approved
    (True, False, False)
    """
    decision = _single(answer)
    if not isinstance(decision, Mapping):
        return _rejected(decision)
    if decision.get("type") in MEANS_APPROVE:
        return ApprovalDecision(approved=True)
    return _rejected(decision.get("message") or decision.get("args"))


def _rejected(reason: object) -> ApprovalDecision:
    text = reason.strip()[:REASON_CHARS] if isinstance(reason, str) else ""
    return ApprovalDecision(approved=False, reason=text)


def _single(answer: object) -> object:
    """Return the single decision of an answer, in any of the formats."""
    decisions = answer.get("decisions", answer) if isinstance(answer, Mapping) else answer
    if isinstance(decisions, list | tuple):
        return decisions[0] if len(decisions) == 1 else None
    return decisions
