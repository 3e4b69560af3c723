"""Errors of a request for a run. Errors inside a run are in its result.

RunRequestError
├── RuntimeClosing    Parley is stopping and starts no new runs
├── ThreadBusyError   another run holds the thread, and the caller does not want to wait
├── UnknownAssistant  no graph has this name or ID
└── InvalidRequest    the request is malformed, contradictory, or asks for something unsupported
"""

from typing_extensions import override


class RunRequestError(Exception):
    """A run could not be started."""

    retryable = False

    @override
    def __str__(self) -> str:
        return super().__str__() or (self.__doc__ or "").strip()


class RuntimeClosing(RunRequestError):
    """Parley is stopping and starts no more runs."""

    retryable = True


class ThreadBusyError(RunRequestError):
    """Thread is already running a task. Wait for it to finish or choose a different multitask strategy."""

    retryable = True


class UnknownAssistant(RunRequestError):
    """The assistant does not exist.

    Attributes:
        by_name: Whether the request used a name, not an ID. A wrong name is more likely a typo than a deleted
            assistant.
    """

    def __init__(self, message: str, *, by_name: bool) -> None:
        super().__init__(message)
        self.by_name = by_name


class InvalidRequest(RunRequestError):
    """The request cannot be carried out as it stands.

    Attributes:
        malformed: Whether the request is malformed, not merely contradictory.
    """

    def __init__(self, message: str, *, malformed: bool = False) -> None:
        super().__init__(message)
        self.malformed = malformed
