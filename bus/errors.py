"""Errors that can occur between a message and its answer, and the effect of each.

BusError
├── IntakeFull                    no room now: do not acknowledge, the platform redelivers
├── IntakeClosed                  stopping: do not acknowledge
├── ConversationFull              too many messages wait: nothing was stored, the other system repeats its event
├── HookRejected                  an event of another system does not have a valid signature
├── HookMalformed                 its payload cannot be read
├── RunError                      the agent's server failed
│   ├── AgentThreadBusy           another run holds the thread (HTTP 409)
│   ├── AgentThreadNotFound       the server lost the thread (HTTP 404)
│   ├── RewindUnsupported         the server cannot remove messages from a thread
│   ├── SteeringUnsupported       the server cannot inject messages into a run
│   └── AgentUnavailable          the server cannot be reached or answered 5xx
├── RunMoves                      the run was stopped, and another node continues it
├── InvalidChoice                 a model, agent or language that cannot be chosen there
├── SpeechError                   a recording was not transcribed: the turn continues without its words
└── DeliveryError                 a platform refused, or may have refused, a message
    ├── MessageTooLong            a text needs several messages; nothing was sent
    └── FileTooLarge              a file that a person sent is too large

The failure policy
==================
A stage or a step raises an error, and the boundary around it acts. The boundaries are the turn
(`bus.conversation.turn`), the command (`bus.inbound.dispatcher`), the task of a conversation (`bus.outbound`) and the
adapter (`bus.supervision`). Each unwraps exception groups with `unwrapped`, so that every error arrives as itself.

error       | row               | turn              | conversation       | channel           | service
------------|-------------------|-------------------|--------------------|-------------------|------------------
StoreError* | as it was         | pauses, retries   | waits, then        | intake refuses: no | alive; health is
            |                   | with backoff;     | continues          | acknowledgement,   | degraded
            |                   | never dead for it |                    | so it redelivers   |
Delivery-   | retry, elsewhere, | not affected      | next row after     | pauses where the   | alive
Error       | uncertain or      |                   | the backoff        | platform says so   |
            | failed, by flags  |                   |                    |                    |
unknown     | sends: as an      | not affected:     | continues          | restarted if it    | alive
exception   | ambiguous         | `decoration`      |                    | ends `run`         |
of an       | DeliveryError,    | drops it          |                    |                    |
adapter     | logged            |                   |                    |                    |
cancel-     | as it was; taken  | ended by its      | stops              | -                  | -
lation      | up at next start  | CancelReason      |                    |                    |
any other   | dead, with a      | failed            | the next message   | continues          | alive
(a bug)     | visible message   |                   | works              |                    |

* ValueRefused counts as a bug: messages are cleaned before they are stored, and a retry would be refused again.

While the store fails, `store.database.Database.outage` says why, and health is degraded.

A decoration (indicator, growing message, notice, draft) never raises into a turn.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Literal, TypeAlias, TypeGuard

from typing_extensions import override

from store.errors import RowConflict, RowNotFound, ValueRefused
from store.errors import StoreError as StoreError  # noqa: PLC0414 - for adapters, which do not know the store

log = logging.getLogger(__name__)

PlaceGone: TypeAlias = Literal["", "thread", "chat"]


class BusError(Exception):
    """Base class of failures between a message and its answer."""

    @override
    def __str__(self) -> str:
        return super().__str__() or (self.__doc__ or "").strip()


class IntakeFull(BusError):
    """Too many messages are being accepted now."""


class IntakeClosed(BusError):
    """Parley is stopping and accepts nothing more."""


class InvalidChoice(BusError):
    """A value that cannot be chosen."""


class ConversationFull(BusError):
    """Too many messages wait in this conversation. Try again later."""


class HookRejected(BusError):
    """There is no such hook, or the signature of the request is missing, wrong or too old.

    The text says which of these it is, for the operator only.
    """


class HookMalformed(BusError):
    """The payload is neither JSON nor a form, in UTF-8."""


class RunError(BusError):
    """The run failed."""

    retryable = False


class AgentThreadBusy(RunError):
    """Another run holds this thread."""

    retryable = True


class AgentThreadNotFound(RunError):
    """The server does not have this thread anymore."""


class RewindUnsupported(RunError):
    """The agent's server cannot remove messages from a thread."""


class SteeringUnsupported(RunError):
    """The agent's server cannot inject messages into a run."""


class AgentUnavailable(RunError):
    """The agent's server cannot be reached."""

    retryable = True


class RunMoves(BusError):
    """The run was stopped because its node stops. Another node continues it."""


SpeechFailure: TypeAlias = Literal[
    "too_long", "too_large", "format", "slow", "unavailable", "refused"
]
"""Why a recording was not transcribed.

The first three name limits and the kind of file. `slow`, `unavailable` and `refused` describe the speech service.
"""


class SpeechError(BusError):
    """A recording was not transcribed.

    Attributes:
        failure: The cause. The person sees it in their language.
        detail: What the service said, for administrators. Contains no secrets.
        retryable: Whether the same request may succeed later.
        retry_after_s: When to retry, according to the service, seconds.
    """

    def __init__(
        self,
        failure: SpeechFailure,
        detail: str = "",
        *,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(detail or failure)
        self.failure: SpeechFailure = failure
        self.detail = detail
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class DeliveryError(BusError):
    """A platform did not accept a message.

    Attributes:
        retryable: Whether the same send may succeed later.
        retry_after_s: When to retry, according to the platform, seconds.
        ambiguous: Whether the message may have arrived (timeout, connection lost after the request was sent). If so,
            only an idempotent send, or one that was looked up, may be repeated at once.
        target_gone: Whether the message to edit or reply to no longer exists or can no longer be changed.
        place_gone: The place where the bot can no longer write; nothing was sent. `thread`: the topic, thread or
            message was deleted or closed. `chat`: the chat was archived or disbanded, or the bot was removed from it.
            An answer goes elsewhere (bus/outbound/moved_answers.py).
        credentials_refused: Whether the platform refuses the bot's token or secret, so that nothing arrived. Replies
            wait until the platform accepts it again.
        user_message: For the administrator, in the outbox. Contains no secrets and no stack traces.
    """

    def __init__(
        self,
        user_message: str,
        *,
        retryable: bool = False,
        retry_after_s: float | None = None,
        ambiguous: bool = False,
        target_gone: bool = False,
        place_gone: PlaceGone = "",
        credentials_refused: bool = False,
    ) -> None:
        super().__init__(user_message)
        self.user_message = user_message
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.ambiguous = ambiguous
        self.target_gone = target_gone
        self.place_gone: PlaceGone = place_gone
        self.credentials_refused = credentials_refused


class MessageTooLong(DeliveryError):
    """A text needs several messages. Nothing was sent. The worker sends the pieces one by one.

    Attributes:
        pieces: The texts of the messages, two or more.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = tuple(pieces)
        super().__init__(f"the text needs {len(self.pieces)} messages")


class FileTooLarge(DeliveryError):
    """A file that a person sent is too large.

    Attributes:
        megabytes: The limit.
    """

    def __init__(self, max_bytes: int) -> None:
        self.megabytes = max_bytes // 1_000_000
        super().__init__(f"it is larger than {self.megabytes} MB")


def unwrap(error: BaseException) -> BaseException:
    """Return the decisive error of a (nested) exception group. Returns any other error unchanged.

    The order is: a cancellation or another exit, bugs, a `StoreError`, other errors. A `StoreError` precedes the
    others, because the operation must be retried.

    >>> unwrap(ExceptionGroup("", [DeliveryError("late"), ExceptionGroup("", [StoreError("full")])]))
    StoreError('full')
    >>> unwrap(ExceptionGroup("", [StoreError("full"), KeyError("bug")]))
    KeyError('bug')
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    return min((unwrap(one) for one in error.exceptions), key=_rank)


def _rank(error: BaseException) -> int:
    if not isinstance(error, Exception):
        return 0
    if isinstance(error, StoreError):
        return 2
    return 3 if isinstance(error, BusError | TimeoutError) else 1


def is_store_outage(error: Exception) -> bool:
    """Return whether an error is a temporary failure of the store: the row did not change, and the call is repeated.

    >>> is_store_outage(StoreError("full")), is_store_outage(RowNotFound("gone"))
    (True, False)
    """
    return is_repeatable(error) and not isinstance(error, RowNotFound | RowConflict)


def is_repeatable(error: Exception) -> TypeGuard[StoreError]:
    """Return whether the store failed and the same call may succeed later.

    >>> is_repeatable(StoreError("full")), is_repeatable(ValueRefused()), is_repeatable(ValueError())
    (True, False, False)
    """
    return isinstance(error, StoreError) and not isinstance(error, ValueRefused)


class _GroupUnwrapper(AbstractContextManager[None]):
    @override
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, BaseExceptionGroup):
            return
        decisive = unwrap(error)
        # The group refers to this error. If the error also referred to the group, as its context or by a variable in
        # its traceback, both would stay until a full garbage collection.
        del error, trace
        context = decisive.__context__
        try:
            raise decisive  # noqa: TRY301 - which makes the group its context
        except BaseException:
            decisive.__context__ = context
            raise
        finally:
            del decisive, context


def unwrapped() -> AbstractContextManager[None]:
    """Raise the decisive error instead of an exception group. See `unwrap`. For use at boundaries."""
    return _GroupUnwrapper()


@contextmanager
def decoration(name: str) -> Iterator[None]:
    """Log and drop errors of the block, which is optional and must not fail a turn. Cancellation passes through."""
    try:
        yield
    except DeliveryError as error:
        log.info("%s skipped: %s", name, error.user_message)
    except Exception:
        log.exception("%s failed", name)
