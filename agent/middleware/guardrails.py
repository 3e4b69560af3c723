"""Checks each tool call with the guardrail provider, and asks a person for approval where required."""

import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import anyio
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import interrupt
from typing_extensions import override

from agent.config import GuardrailsConfig
from agent.errors import ThreadIdMissing
from agent.guardrails.approval import approval_request, parse_decision
from agent.guardrails.protocol import (
    APPROVAL_REQUIRED,
    DENIED,
    EVALUATOR_ERROR,
    REJECTED,
    GuardrailDecision,
    GuardrailProvider,
    GuardrailReason,
    GuardrailRequest,
    ask_for_approval,
    deny,
)
from agent.locales import AgentMessages
from agent.mcp.tool_names import SERVER_KEY
from agent.middleware.handler_types import ToolHandler, ToolResult
from agent.middleware.localization import localized_messages
from agent.middleware.skills_in_use import SkillsInUse, approves
from agent.options import RunContext, lookup
from agent.skills.loader import Skill
from agent.state import ThreadState
from agent.subagents.status import TASK, status_kwargs
from agent.tool_names import EXEMPT_KEY, matches
from store.errors import StoreError
from store.guardrail_decisions import GuardrailDecisionRow, GuardrailDecisions, GuardrailOutcome

log = logging.getLogger(__name__)

REASON_CHARS = 500
STORED_CHARS = 200
"""Maximum length of a stored name or code, characters: models and providers choose them."""

_STORED = ("code", "policy_id", "reason")
UNKNOWN_TOOL = "unknown_tool"
NO_REASON = GuardrailReason(DENIED, "blocked by guardrail policy")
ONLY_LEAD_ASKS = (
    "a person must approve it, and a subagent cannot ask one; leave this step to the lead agent"
)


def guardrail_middleware(
    config: GuardrailsConfig,
    provider: GuardrailProvider | None,
    skills: Sequence[Skill] = (),
    *,
    is_subagent: bool = False,
    decisions: GuardrailDecisions | None = None,
) -> "GuardrailMiddleware | None":
    """Return the middleware; None = no tool call is checked. `decisions`: see the class."""
    if not config.enabled or (provider is None and not config.ask):
        return None
    return GuardrailMiddleware(
        config, provider, skills, is_subagent=is_subagent, decisions=decisions
    )


class GuardrailMiddleware(AgentMiddleware[ThreadState, Any]):
    """Runs a tool only if the provider allows it and, where required, a person. Otherwise the model gets the reason.

    If a provider fails, hangs or returns something invalid, the call is denied, or allowed with `fail_closed: false`. A
    provider's interrupts pass through. This middleware runs outside tool error handling, so that a denial stays a
    denial.

    A skill in use approves the calls that its `allowed-tools` name, so no person is asked. The provider still decides.

    Asking a person interrupts the graph. When the graph resumes, the call starts again from here; the tool has not run.
    Parallel calls keep their results.

    Args:
        decisions: Stores denials and people's approvals; None = they are only logged.
    """

    def __init__(
        self,
        config: GuardrailsConfig,
        provider: GuardrailProvider | None,
        skills: Sequence[Skill] = (),
        *,
        is_subagent: bool = False,
        decisions: GuardrailDecisions | None = None,
    ) -> None:
        super().__init__()
        self._config = config
        self._provider = provider
        self._skills = SkillsInUse([skill for skill in skills if skill.allowed_tools])
        self._is_subagent = is_subagent
        self._decisions = decisions

    @override
    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        asked = self._guardrail_request(request)
        refusal = None
        if self._provider is not None:
            try:
                with anyio.fail_after(self._config.timeout_seconds):
                    decision = await self._provider.aevaluate(asked)
                refusal = _denying_decision(decision)
            except GraphBubbleUp:
                raise
            except Exception as error:  # noqa: BLE001 - a provider may raise anything; no error may bypass it
                refusal = self._on_provider_error(asked, error)
                if refusal is None:
                    reason = f"the guardrail failed ({type(error).__name__})"
                    await self._store(asked, request, "approved", EVALUATOR_ERROR, reason)
        if refusal is None and self._needs_person(asked, request):
            needed = localized_messages(request).approval_needed
            refusal = ask_for_approval(needed, policy_id="ask")
        if refusal is None:
            return await handler(request)
        message = self._refusal_message(asked, refusal, localized_messages(request))
        if message is None:
            await self._store(asked, request, "approved")
            return await handler(request)
        code, policy, reason = (message.additional_kwargs["guardrail"][one] for one in _STORED)
        outcome: GuardrailOutcome = "rejected" if code == REJECTED else "denied"
        await self._store(asked, request, outcome, code, reason, policy or "")
        return message

    async def _store(
        self,
        asked: GuardrailRequest,
        request: ToolCallRequest,
        outcome: GuardrailOutcome,
        code: str = "",
        reason: str = "",
        policy: str = "",
    ) -> None:
        """Store a decision. Errors are only logged, because the call does not depend on them."""
        if self._decisions is None:
            return
        runtime = request.runtime
        row = GuardrailDecisionRow(
            outcome=outcome,
            tool=(asked.tool_name or UNKNOWN_TOOL)[:STORED_CHARS],
            server=asked.mcp_server or "",
            code=str(code)[:STORED_CHARS],
            policy=str(policy)[:STORED_CHARS],
            reason=reason,
            is_subagent=asked.is_subagent,
            thread_id=asked.thread_id,
            person=asked.user_id or "",
            room=str(lookup(runtime.context, runtime.config, "room") or ""),
            created_at=time.time(),
        )
        try:
            await self._decisions.add(row)
        except StoreError as error:
            log.warning("A guardrail decision was not stored: %s", error)

    def _needs_person(self, asked: GuardrailRequest, request: ToolCallRequest) -> bool:
        """Return whether this tool requires a person's approval and no skill in use approves the call."""
        if asked.is_exempt or not matches(asked.tool_name, self._config.ask):
            return False
        for skill in self._skills.find(request.state["messages"]):
            if approves(skill.allowed_tools, asked.tool_name, asked.tool_input):
                log.info(
                    "Tool %s approved by the skill %s, thread %s, user %s",
                    asked.tool_name,
                    skill.name,
                    asked.thread_id,
                    asked.user_id,
                )
                return False
        return True

    def _refusal_message(
        self, asked: GuardrailRequest, refusal: GuardrailDecision, messages: AgentMessages
    ) -> ToolMessage | None:
        """Return a message with the reason not to run the tool; None = run it. Asks a person if required."""
        if getattr(refusal, "ask", False) is not True:
            return self._denial_message(asked, refusal)
        if self._is_subagent:
            return self._denial_message(asked, deny(APPROVAL_REQUIRED, ONLY_LEAD_ASKS))
        reason = next(iter(refusal.reasons or ()), None)
        text = _shorten(reason.message) if reason else ""
        decided = parse_decision(
            interrupt(approval_request(asked, text or messages.approval_needed))
        )
        log.info(
            "Tool %s %s by a person, thread %s, user %s",
            asked.tool_name,
            "approved" if decided.approved else "rejected",
            asked.thread_id,
            asked.user_id,
        )
        return None if decided.approved else _rejection_message(asked, decided.reason)

    def _guardrail_request(self, request: ToolCallRequest) -> GuardrailRequest:
        call = request.tool_call
        runtime = request.runtime
        try:
            caller = RunContext.from_runtime(runtime.context, runtime.config)
        except ThreadIdMissing:
            caller = None
        metadata = (request.tool.metadata if request.tool is not None else None) or {}
        return GuardrailRequest(
            tool_name=call.get("name") or "",
            tool_input=call.get("args") or {},
            agent_id=self._config.passport,
            thread_id=caller.thread_id if caller else None,
            is_subagent=self._is_subagent,
            timestamp=datetime.now(UTC).isoformat(),
            user_id=caller.user_id if caller else None,
            run_id=caller.run_id if caller else None,
            tool_call_id=call.get("id"),
            mcp_server=metadata.get(SERVER_KEY),
            is_exempt=metadata.get(EXEMPT_KEY) is True and SERVER_KEY not in metadata,
        )

    def _on_provider_error(
        self, asked: GuardrailRequest, error: Exception
    ) -> GuardrailDecision | None:
        """Return the decision for a provider that failed: a denial, or None."""
        log.error(
            "Guardrail %s failed for tool %s: call %s",
            self._provider.name if self._provider is not None else "",
            asked.tool_name,
            "denied" if self._config.fail_closed else "made",
            exc_info=error,
        )
        if not self._config.fail_closed:
            return None
        message = "the guardrail could not decide, so the call was not made"
        reason = GuardrailReason(EVALUATOR_ERROR, message)
        return GuardrailDecision(allow=False, reasons=(reason,))

    def _denial_message(self, asked: GuardrailRequest, decision: GuardrailDecision) -> ToolMessage:
        name = asked.tool_name or UNKNOWN_TOOL
        reason = next(iter(decision.reasons or ()), NO_REASON)
        code, message = reason.code or DENIED, _clean_reason(reason.message)
        policy = getattr(decision, "policy_id", None)
        # Do not log the arguments: they may hold secrets.
        log.warning(
            "Guardrail denied: tool %s, code %s, policy %s, thread %s, user %s, subagent %s",
            name,
            code,
            policy,
            asked.thread_id,
            asked.user_id,
            asked.is_subagent,
        )
        text = (
            f"Guardrail denied: tool '{name}' was blocked ({code}). Reason: {message}. "
            "Choose an alternative approach."
        )
        guardrail = {"code": code, "policy_id": policy, "reason": message}
        return _error_message(asked, text, message, guardrail)


def _rejection_message(asked: GuardrailRequest, reason: str) -> ToolMessage:
    """Return the message for a call that a person rejected."""
    name = asked.tool_name or UNKNOWN_TOOL
    stated = f'They said: "{reason}"' if reason else "They gave no reason"
    text = (
        f"The user did not approve the call of '{name}', so it was not run. {stated}. "
        "Do not repeat the call unless the user asks for it."
    )
    guardrail = {"code": REJECTED, "policy_id": None, "reason": reason[:REASON_CHARS]}
    return _error_message(asked, text, "not approved by the user", guardrail)


def _error_message(
    asked: GuardrailRequest, text: str, reason: str, guardrail: dict[str, str | None]
) -> ToolMessage:
    name = asked.tool_name or UNKNOWN_TOOL
    # Clients that show delegations wait for a status of each.
    stamps = status_kwargs("failed", reason) if name == TASK else {}
    return ToolMessage(
        content=text,
        name=name,
        tool_call_id=asked.tool_call_id or "missing_tool_call_id",
        status="error",
        additional_kwargs={"guardrail": guardrail, **stamps},
    )


def _denying_decision(decision: GuardrailDecision) -> GuardrailDecision | None:
    """Return the decision if it denies the call, None if it allows the call.

    Raises:
        TypeError: It is not a decision. A truthy value of another type must not allow a call.
    """
    allow = getattr(decision, "allow", None)
    if not isinstance(allow, bool):
        raise TypeError(f"{type(decision).__name__} is not a guardrail decision")
    return None if allow else decision


def _clean_reason(message: str) -> str:
    """Return a reason in a form that fits into a sentence for the model."""
    return _shorten(message).rstrip(".") or NO_REASON.message


def _shorten(message: str) -> str:
    text = " ".join(str(message or "").split())
    return text if len(text) <= REASON_CHARS else text[: REASON_CHARS - 3] + "..."
