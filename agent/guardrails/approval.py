"""A person's leave for a tool call: the question in LangChain's human-in-the-loop shape, and its answer. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from agent.guardrails.protocol import FREE, GuardrailRequest

APPROVE: Final = "approve"
REJECT: Final = "reject"

MEANS_APPROVE: Final = frozenset({APPROVE, "accept"})
"""`accept` is what clients of LangGraph's older shape send."""

REASON_CHARS: Final = 2000
"""Longest reason of a person that the model reads."""

DESCRIPTION: Final = "This tool call needs your approval."


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
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
    return tool_name not in FREE and any(fnmatchcase(tool_name, one) for one in patterns)


def question(asked: GuardrailRequest, description: str = "") -> dict[str, Any]:
    """Return what the interrupt says: one action, with the arguments as the model wrote them."""
    action = {
        "name": asked.tool_name,
        "args": dict(asked.tool_input),
        "description": description or DESCRIPTION,
    }
    review = {"action_name": asked.tool_name, "allowed_decisions": [APPROVE, REJECT]}
    return {"action_requests": [action], "review_configs": [review]}


def verdict(answer: object) -> Verdict:
    """Return what an answer to the interrupt decides. What is not understood approves nothing.

    >>> verdict({"decisions": [{"type": "approve"}]})
    Verdict(approved=True, reason='')
    >>> verdict({"decisions": [{"type": "reject", "message": "not now"}]})
    Verdict(approved=False, reason='not now')
    >>> verdict([{"type": "accept"}]).approved, verdict(True).approved, verdict("yes").approved
    (True, False, False)
    """
    decision = _only(answer)
    if not isinstance(decision, Mapping):
        return Verdict(
            approved=False,
            reason=decision.strip()[:REASON_CHARS] if isinstance(decision, str) else "",
        )
    if decision.get("type") in MEANS_APPROVE:
        return Verdict(approved=True)
    said = decision.get("message") or decision.get("args")
    return Verdict(
        approved=False, reason=said.strip()[:REASON_CHARS] if isinstance(said, str) else ""
    )


def _only(answer: object) -> object:
    """Return the one decision of an answer, in whichever shape it came."""
    decisions = answer.get("decisions", answer) if isinstance(answer, Mapping) else answer
    if isinstance(decisions, list | tuple):
        return decisions[0] if len(decisions) == 1 else None
    return decisions
