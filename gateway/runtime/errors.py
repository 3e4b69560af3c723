"""Errors of a request for a run. Errors inside a run are in its result.

RunRequestError
├── RuntimeClosing           stopping: nothing new is started
├── ThreadBusyError        another run holds the thread and the caller did not want to wait
├── UnknownAssistant  no graph of this name or id
└── InvalidRequest    the request contradicts itself or asks for what there is not
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
    """There is no such assistant.

    Attributes:
        by_name: It was asked for by a name, not by an id: more likely a typing error than a lost row.
    """

    def __init__(self, message: str, *, by_name: bool) -> None:
        super().__init__(message)
        self.by_name = by_name


class InvalidRequest(RunRequestError):
    """The request cannot be carried out as it stands.

    Attributes:
        malformed: The request does not have the right form (and not merely contradicts itself).
    """

    def __init__(self, message: str, *, malformed: bool = False) -> None:
        super().__init__(message)
        self.malformed = malformed
