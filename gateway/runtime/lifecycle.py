"""Run statuses, their transitions, and the result of a run. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.messages import AIMessage
from langgraph.errors import EmptyInputError, InvalidUpdateError

from gateway.runtime.masking import mask_secrets
from store.runs import RunStatus
from store.threads import ThreadStatus

CancelAction = Literal["interrupt", "rollback"]
"""How a run is stopped: keep what it did, or take the thread back to where it was before."""

TRANSITIONS: Mapping[RunStatus, frozenset[RunStatus]] = {
    "pending": frozenset({"running", "interrupted"}),
    "running": frozenset({"success", "error", "timeout", "interrupted"}),
    "success": frozenset(),
    "error": frozenset(),
    "timeout": frozenset(),
    "interrupted": frozenset(),
}

_SAFE_EXCEPTIONS = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RuntimeError,
    TimeoutError,
    EmptyInputError,
    InvalidUpdateError,
)
"""Exceptions whose text may leave the process; others may quote a request, and with it a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """What a client learns of an exception."""

    error: str
    message: str

    def as_dict(self) -> dict[str, str]:
        """Return the wire form."""
        return {"error": self.error, "message": self.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended.

    Attributes:
        thread_status: What becomes of the thread; where it is untouched, what its state says of it.
        values: The thread's values at the end, or None when there are none (stopped before the first step).
        interrupts: What the graph asks its user, by task id.
        is_rolled_back: The thread is what it was before the run: it never began, or was rolled back.
    """

    status: RunStatus
    thread_status: ThreadStatus = "idle"
    values: Mapping[str, Any] | None = None
    failure: RunFailure | None = None
    interrupts: Mapping[str, Any] = field(default_factory=dict)
    is_rolled_back: bool = False

    @property
    def title(self) -> str | None:
        """The thread's title, if the graph gave it one."""
        title = (self.values or {}).get("title")
        return title if isinstance(title, str) else None


def can_transition(before: RunStatus, after: RunStatus) -> bool:
    """Return whether a run may go from one status to another.

    >>> can_transition("running", "success"), can_transition("success", "running")
    (True, False)
    """
    return after in TRANSITIONS[before]


def is_final(status: RunStatus) -> bool:
    """Return whether nothing will change any more."""
    return not TRANSITIONS[status]


def describe_failure(error: BaseException) -> RunFailure:
    """Return what a client may know of an exception.

    An exception of ours says it itself in `user_message`; of others only the kinds of programming error
    keep their text, without what looks like a path of this machine or a key.

    >>> describe_failure(ValueError("n is too small")).as_dict()
    {'error': 'ValueError', 'message': 'n is too small'}
    >>> describe_failure(OSError("/etc/secret")).message
    'An internal error occurred'
    """
    said = getattr(error, "user_message", None)
    if isinstance(said, str) and said:
        return RunFailure(error=type(error).__name__, message=said)
    if isinstance(error, _SAFE_EXCEPTIONS):
        return RunFailure(error=type(error).__name__, message=mask_secrets(str(error)))
    return RunFailure(error=type(error).__name__, message="An internal error occurred")


def ends_with_model_failure(values: Mapping[str, Any] | None) -> bool:
    """Return whether the last message only says that no model could be reached.

    The agent then has told the user what to do; the run has failed all the same.
    """
    messages = (values or {}).get("messages") or [None]
    last = messages[-1]
    return isinstance(last, AIMessage) and bool(last.additional_kwargs.get("error_fallback"))
