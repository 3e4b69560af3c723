"""Run statuses, their transitions, and the result of a run. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.messages import AIMessage
from langgraph.errors import EmptyInputError, InvalidUpdateError

from gateway.runtime.masking import mask_secrets
from store.runs import RunStatus
from store.threads import ThreadStatus

CancelAction = Literal["interrupt", "rollback", "hand_over"]
"""How a run is canceled: keep its steps, restore the thread's earlier state, or let another node continue it."""

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
"""Exceptions whose text clients may see. Other texts may quote a request that contains a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """The public description of an exception."""

    error: str
    message: str

    def as_dict(self) -> dict[str, str]:
        """Return the wire form."""
        return {"error": self.error, "message": self.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended.

    Attributes:
        thread_status: The thread's status afterwards. If the thread is unchanged, its state determines the status.
        values: The thread's values at the end, a mapping unless the graph is a function of the functional API. None =
            canceled before the first step.
        interrupts: The graph's questions to its user, by task ID.
        thread_unchanged: Whether the thread is as before, because the run never started or was rolled back.
    """

    status: RunStatus
    thread_status: ThreadStatus = "idle"
    values: Any = None
    failure: RunFailure | None = None
    interrupts: Mapping[str, Any] = field(default_factory=dict)
    thread_unchanged: bool = False

    @property
    def title(self) -> str | None:
        """The thread's title, if the graph set one."""
        title = state_fields(self.values).get("title")
        return title if isinstance(title, str) else None


def state_fields(values: object) -> Mapping[str, Any]:
    """Return the fields of a thread's values. Values that are not a mapping (LangGraph's functional API) have none.

    >>> state_fields({"title": "Tea"}), state_fields("Tea")
    ({'title': 'Tea'}, {})
    """
    return values if isinstance(values, Mapping) else {}


def can_transition(before: RunStatus, after: RunStatus) -> bool:
    """Return whether a run's status may change from one to another.

    >>> can_transition("running", "success"), can_transition("success", "running")
    (True, False)
    """
    return after in TRANSITIONS[before]


def is_final(status: RunStatus) -> bool:
    """Return whether a status is final."""
    return not TRANSITIONS[status]


def describe_failure(error: BaseException) -> RunFailure:
    """Return the public description of an exception.

    Parley's own exceptions have a `user_message`. Of all others, only programming errors keep their text, without
    host paths and keys.

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


def ends_with_model_failure(values: object) -> bool:
    """Return whether the last message only reports that no model could be reached.

    The agent has told the user what to do, but the run counts as failed.
    """
    messages = state_fields(values).get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return isinstance(last, AIMessage) and bool(last.additional_kwargs.get("error_fallback"))
