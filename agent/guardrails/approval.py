"""A person's leave for a tool call: the question in LangChain's human-in-the-loop shape, and its answer. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from agent.guardrails.protocol import EXEMPT_TOOLS, GuardrailRequest

APPROVE: Final = "approve"
REJECT: Final = "reject"

MEANS_APPROVE: Final = frozenset({APPROVE, "accept"})
"""`accept` is what clients of LangGraph's older shape send."""

REASON_CHARS: Final = 2000
"""Longest reason of a person that the model reads."""

DESCRIPTION: Final = "This tool call needs your approval."


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecision:
    """What a person decided; `reason` are their own words, for a refusal."""

    approved: bool
    reason: str = ""


def needs_approval(tool_name: str, patterns: Sequence[str]) -> bool:
    """Say whether a person is asked before this tool runs.

    >>> [needs_approval(name, ["bash", "github_*"]) for name in ("bash", "github_push", "ls")]
    [True, True, False]
    >>> needs_approval("ask_clarification", ["*"])
    False
    """
    return tool_name not in EXEMPT_TOOLS and any(fnmatchcase(tool_name, one) for one in patterns)


def approval_request(asked: GuardrailRequest, description: str = "") -> dict[str, Any]:
    """Return what the interrupt says: one action, with the arguments as the model wrote them."""
    action = {
        "name": asked.tool_name,
        "args": dict(asked.tool_input),
        "description": description or DESCRIPTION,
    }
    review = {"action_name": asked.tool_name, "allowed_decisions": [APPROVE, REJECT]}
    return {"action_requests": [action], "review_configs": [review]}


def parse_decision(answer: object) -> ApprovalDecision:
    """Return what an answer to the interrupt decides. What is not understood approves nothing.

    >>> parse_decision({"decisions": [{"type": "approve"}]})
    ApprovalDecision(approved=True, reason='')
    >>> parse_decision({"decisions": [{"type": "reject", "message": "not now"}]})
    ApprovalDecision(approved=False, reason='not now')
    >>> parse_decision([{"type": "accept"}]).approved, parse_decision(True).approved, parse_decision("yes").approved
    (True, False, False)
    """
    decision = _only(answer)
    if not isinstance(decision, Mapping):
        return ApprovalDecision(
            approved=False,
            reason=decision.strip()[:REASON_CHARS] if isinstance(decision, str) else "",
        )
    if decision.get("type") in MEANS_APPROVE:
        return ApprovalDecision(approved=True)
    said = decision.get("message") or decision.get("args")
    return ApprovalDecision(
        approved=False, reason=said.strip()[:REASON_CHARS] if isinstance(said, str) else ""
    )


def _only(answer: object) -> object:
    """Return the one decision of an answer, in whichever shape it came."""
    decisions = answer.get("decisions", answer) if isinstance(answer, Mapping) else answer
    if isinstance(decisions, list | tuple):
        return decisions[0] if len(decisions) == 1 else None
    return decisions
