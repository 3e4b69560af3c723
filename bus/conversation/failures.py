"""The replies of turns whose run failed, was canceled, or could not be started or followed."""

import logging

from bus.conversation.control import CancelReason
from bus.conversation.record import TurnRecord
from bus.errors import AgentThreadBusy, RewindUnsupported, RunError
from bus.locales import Messages
from bus.outbound.rows import LiveMessages
from bus.runs.replies import Reply, error_cause, error_reason, error_reply, turn_messages
from bus.runs.stream import RunFailed

log = logging.getLogger(__name__)

AGENT_NOT_FOUND, AGENT_INVALID = "AgentNotFound", "AgentInvalid"
"""Errors about the chosen agent. The text of the second error says in English what is wrong."""

MAX_ERROR_CHARS = 300
"""Maximum number of characters to show of an invalid agent's error."""

FINAL_ERRORS = frozenset(
    {
        *("AuthenticationError", "PermissionDeniedError", "GraphRecursionError", "ModelUnusable"),
        *(AGENT_NOT_FOUND, AGENT_INVALID),
    }
)
"""Errors of runs that would occur again on a retry."""

FINAL_REASONS = frozenset({"auth", "quota", "context", "request"})
"""Reasons, given by the agent itself, that would occur again on a retry."""


def canceled_reply(turn: TurnRecord, seen: LiveMessages) -> Reply | None:
    """Return the answer of a canceled turn; None if people know why there is none."""
    control, texts = turn.control, turn.texts
    is_due = control.by_operator and not turn.message.inbound.is_overheard
    if not (seen.exist or is_due):
        return None
    text = "" if control.reason is CancelReason.DELETED else turn.attempt.fold.text
    end = texts.stopped_by_operator if control.by_operator else texts.stopped
    if control.reason is CancelReason.INTERRUPTED:
        end = texts.interrupted
    return _stopped_reply(text, end)


def operator_stop_reply(turn: TurnRecord) -> Reply:
    """Return the answer of a turn whose run an API client canceled."""
    return _stopped_reply(turn.attempt.fold.text, turn.texts.stopped_by_operator)


def _stopped_reply(text: str, end: str) -> Reply:
    return Reply(markdown=f"{text}\n\n{end}".strip(), stopped=True)


def is_retryable(failure: RunFailed, reason: str = "") -> bool:
    """Return whether a retry of the message may succeed. `reason` is the agent's own."""
    return failure.error not in FINAL_ERRORS and reason not in FINAL_REASONS


def failure_message(failure: RunFailed, texts: Messages, *, agent: str = "") -> str:
    """Return the message to the sender about a failed run. `agent` is the chosen custom agent."""
    if failure.error == AGENT_NOT_FOUND and agent:
        return texts.failed_no_agent.format(name=agent)
    if failure.error in (AGENT_NOT_FOUND, AGENT_INVALID):
        return texts.failed_agent.format(reason=failure.message.strip()[:MAX_ERROR_CHARS])
    by_error = {
        "AuthenticationError": texts.failed_auth,
        "PermissionDeniedError": texts.failed_auth,
        "RateLimitError": texts.failed_rate_limit,
        "APIConnectionError": texts.failed_connection,
        "APITimeoutError": texts.failed_timeout,
        "InternalServerError": texts.failed_server,
        "GraphRecursionError": texts.failed_steps,
    }
    return by_error.get(failure.error, texts.failed)


def run_error_message(error: RunError, texts: Messages) -> str:
    """Return the message to the sender about a run that could not be started or followed."""
    if isinstance(error, AgentThreadBusy):
        return texts.thread_busy
    if isinstance(error, RewindUnsupported):
        return f"⚠️ {texts.rewind_refused}"
    return texts.agent_unreachable if error.retryable else texts.failed


def failed_reply(turn: TurnRecord, failure: RunFailed) -> Reply:
    """Return the answer of a turn whose run failed, including the text read so far; log the cause."""
    attempt = turn.attempt
    reason = f"{failure.error}: {failure.message}".removesuffix(": ")
    log.error("run %s failed: %.300s", attempt.run_id, reason)
    messages = turn_messages(attempt.fold.values, attempt.message_id)
    explained = failure_message(failure, turn.texts, agent=turn.agent)
    return Reply(
        markdown=error_reply(messages) or f"{attempt.fold.text}\n\n{explained}".strip(),
        failed=True,
        retry=is_retryable(failure, error_reason(messages)),
        problem=error_cause(messages) or reason,
    )
