"""What can go wrong between a message and its answer; every error carries the decision it asks for.

BusError
├── IntakeFull         no room now: do not acknowledge, the platform redelivers
├── IntakeClosed       stopping: do not acknowledge
├── RunError           the agent's side failed
│   ├── ThreadBusy     another run holds the thread (HTTP 409)
│   ├── ThreadGone     the server lost the thread (HTTP 404)
│   ├── NotTakenBack   the server does not change what was said
│   ├── NotHeard       the server's runs cannot be told anything while they go on
│   └── RunsUnavailable the server cannot be reached or answered 5xx
└── DeliveryError      a platform refused, or may have refused, a message
    └── FileTooLarge   a file that somebody sent is not taken
"""

from typing_extensions import override


class BusError(Exception):
    """Something between a message and its answer failed."""

    @override
    def __str__(self) -> str:
        return super().__str__() or (self.__doc__ or "").strip()


class IntakeFull(BusError):
    """Too many messages are being accepted at this moment."""


class IntakeClosed(BusError):
    """Parley is stopping and accepts nothing more."""


class RunError(BusError):
    """The run failed."""

    retryable = False


class ThreadBusy(RunError):
    """Another run holds this thread."""

    retryable = True


class ThreadGone(RunError):
    """The server does not know this thread any more."""


class NotTakenBack(RunError):
    """The agent's server does not take messages back."""


class NotHeard(RunError):
    """Runs of the agent's server hear nothing while they go on."""


class RunsUnavailable(RunError):
    """The agent's server cannot be reached."""

    retryable = True


class DeliveryError(BusError):
    """A platform did not take a message.

    Attributes:
        retryable: Whether the same send may succeed later.
        retry_after_s: The platform's own word on when, in seconds.
        ambiguous: The message may have arrived (timeout, connection lost after the request was sent).
            Only an idempotent send, or one that was looked up, may then be repeated at once.
        target_gone: The message that was to be patched or replied to no longer exists or can no longer be changed.
        user_message: What the admin reads in the outbox; no secrets, no stack.
    """

    def __init__(
        self,
        user_message: str,
        *,
        retryable: bool = False,
        retry_after_s: float | None = None,
        ambiguous: bool = False,
        target_gone: bool = False,
    ) -> None:
        super().__init__(user_message)
        self.user_message = user_message
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.ambiguous = ambiguous
        self.target_gone = target_gone


class FileTooLarge(DeliveryError):
    """A file that somebody sent is larger than what is taken.

    Attributes:
        megabytes: What is taken.
    """

    def __init__(self, max_bytes: int) -> None:
        self.megabytes = max_bytes // 1_000_000
        super().__init__(f"it is larger than {self.megabytes} MB")
