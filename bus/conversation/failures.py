"""Messages for failed runs and cancelled turns, and which failures can be retried."""

from bus.conversation.machine import CancelReason, Turn
from bus.errors import AgentThreadBusy, RewindUnsupported, RunError
from bus.locales import Messages
from bus.outbound.rows import LiveMessages
from bus.runs.replies import Reply
from bus.runs.stream import RunFailed

AGENT_NOT_FOUND, AGENT_INVALID = "AgentNotFound", "AgentInvalid"
"""Errors about the chosen agent; the second says itself, in English, what is wrong with it."""

MAX_ERROR_CHARS = 300
"""Characters shown of an invalid agent's error."""


FINAL_ERRORS = frozenset(
    {
        *("AuthenticationError", "PermissionDeniedError", "GraphRecursionError", "ModelUnusable"),
        *(AGENT_NOT_FOUND, AGENT_INVALID),
    }
)
"""Errors of runs that come again when the same is tried again."""

FINAL_REASONS = frozenset({"auth", "quota", "context", "request"})
"""The same for the reasons that the agent itself names."""


def is_retryable(failure: RunFailed, reason: str = "") -> bool:
    """Return whether the same message may be answered when it is tried again; `reason` as the agent names it."""
    return failure.error not in FINAL_ERRORS and reason not in FINAL_REASONS


def failure_message(failure: RunFailed, texts: Messages, *, agent: str = "") -> str:
    """Return what a failed run means to the person who asked. `agent` is the custom agent that was to answer."""
    if failure.error == AGENT_NOT_FOUND and agent:
        return texts.failed_no_agent.format(name=agent)
    if failure.error in (AGENT_NOT_FOUND, AGENT_INVALID):
        return texts.failed_agent.format(reason=failure.message.strip()[:MAX_ERROR_CHARS])
    return _by_error(texts).get(failure.error, texts.failed)


def run_error_message(error: RunError, texts: Messages) -> str:
    """Return what it means that no run could be had."""
    if isinstance(error, AgentThreadBusy):
        return texts.thread_busy
    if isinstance(error, RewindUnsupported):
        return f"⚠️ {texts.rewind_refused}"
    return texts.agent_unreachable if error.retryable else texts.failed


def cancelled_reply(turn: Turn, seen: LiveMessages) -> Reply | None:
    """Return what is said of a turn that was cancelled; None where nothing of it was visible."""
    if not seen.exist:
        return None
    text = "" if turn.reason is CancelReason.DELETED else turn.attempt.fold.text
    is_interrupted = turn.reason is CancelReason.INTERRUPTED
    end = turn.texts.interrupted if is_interrupted else turn.texts.stopped
    return Reply(markdown=f"{text}\n\n{end}".strip(), stopped=True)


def _by_error(texts: Messages) -> dict[str, str]:
    """Return the message for each class of run errors."""
    return {
        "AuthenticationError": texts.failed_auth,
        "PermissionDeniedError": texts.failed_auth,
        "RateLimitError": texts.failed_rate_limit,
        "APIConnectionError": texts.failed_connection,
        "APITimeoutError": texts.failed_timeout,
        "InternalServerError": texts.failed_server,
        "GraphRecursionError": texts.failed_steps,
    }
