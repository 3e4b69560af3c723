"""What a person is told when a turn went wrong, and what to do."""

from bus.errors import NotTakenBack, RunError, ThreadBusy
from bus.runs import RunFailed

FAILED_TEXT = (
    "⚠️ Something went wrong and I could not finish this answer. Please send your message again; "
    "if it fails again, tell the person who runs this bot."
)
FAILED_TEXTS = {
    "AuthenticationError": "⚠️ The model's key was refused, so I cannot answer. Please tell the person who "
    "runs this bot: the key in its configuration has to be renewed.",
    "PermissionDeniedError": "⚠️ The model's key was refused, so I cannot answer. Please tell the person who "
    "runs this bot: the key in its configuration has to be renewed.",
    "RateLimitError": "⚠️ The model is overloaded or its quota is used up. Please send your message again in "
    "a minute.",
    "APIConnectionError": "⚠️ I could not reach the model's server. Please send your message again in a few "
    "minutes.",
    "APITimeoutError": "⚠️ The model's server did not answer in time. Please send your message again in a few "
    "minutes.",
    "InternalServerError": "⚠️ The model's server had a problem. Please send your message again in a few "
    "minutes.",
    "GraphRecursionError": "⚠️ I used up all my steps before I was finished. Please ask again in smaller "
    "parts, or say what to leave out.",
}
"""By the class name of the run's error: what to tell the person, and what to do."""

CHOICE_TEXT = "⚠️ {said} Choose another with /agent, or the usual one with /agent default."
CHOICE_ERRORS = frozenset({"AgentNotFound", "AgentInvalid"})
"""Errors that say themselves what is wrong with the chosen agent."""

UNREACHABLE_TEXT = (
    "⚠️ I could not reach the agent's server, so this message was not answered. Please send it again "
    "in a few minutes."
)
BUSY_TEXT = (
    "⚠️ Another request is still being worked on in this conversation. Please send your message again "
    "when it is finished, or send /stop first."
)
NOT_TAKEN_BACK_TEXT = "⚠️ The agent's server does not take messages back."
STOPPED_TEXT = "⏹ Stopped."
POISONED_TEXT = "⚠️ I was interrupted too often while answering this message. Please send it again."


def told(failure: RunFailed) -> str:
    """Return what a failed run means to the person who asked."""
    if failure.error in CHOICE_ERRORS:
        return CHOICE_TEXT.format(said=failure.message.strip()[:300])
    return FAILED_TEXTS.get(failure.error, FAILED_TEXT)


def sorry(error: RunError) -> str:
    """Return what it means that no run could be had."""
    if isinstance(error, ThreadBusy):
        return BUSY_TEXT
    if isinstance(error, NotTakenBack):
        return NOT_TAKEN_BACK_TEXT
    return UNREACHABLE_TEXT if error.retryable else FAILED_TEXT
