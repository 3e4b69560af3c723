"""What a person is told when a turn went wrong, and what to do."""

from bus.errors import NotTakenBack, RunError, ThreadBusy
from bus.runs import RunFailed
from bus.texts import Texts

CHOICE_ERRORS = frozenset({"AgentNotFound", "AgentInvalid"})
"""Errors that say themselves what is wrong with the chosen agent."""

SAID_CHARS = 300
"""How much of what they say is shown."""


def told(failure: RunFailed, texts: Texts) -> str:
    """Return what a failed run means to the person who asked."""
    if failure.error in CHOICE_ERRORS:
        return texts.failed_agent.format(said=failure.message.strip()[:SAID_CHARS])
    return _by_error(texts).get(failure.error, texts.failed)


def sorry(error: RunError, texts: Texts) -> str:
    """Return what it means that no run could be had."""
    if isinstance(error, ThreadBusy):
        return texts.thread_busy
    if isinstance(error, NotTakenBack):
        return f"⚠️ {texts.exchange_refused}"
    return texts.agent_unreachable if error.retryable else texts.failed


def _by_error(texts: Texts) -> dict[str, str]:
    """Return by the class name of a run's error what to tell the person."""
    return {
        "AuthenticationError": texts.failed_auth,
        "PermissionDeniedError": texts.failed_auth,
        "RateLimitError": texts.failed_rate_limit,
        "APIConnectionError": texts.failed_connection,
        "APITimeoutError": texts.failed_timeout,
        "InternalServerError": texts.failed_server,
        "GraphRecursionError": texts.failed_steps,
    }
