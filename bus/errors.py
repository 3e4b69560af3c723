"""What can go wrong between a message and its answer, and what each error does.

BusError
├── IntakeFull                    no room now: do not acknowledge, the platform redelivers
├── IntakeClosed                  stopping: do not acknowledge
├── RunError                      the agent's server failed
│   ├── AgentThreadBusy           another run holds the thread (HTTP 409)
│   ├── AgentThreadNotFound       the server lost the thread (HTTP 404)
│   ├── RewindUnsupported         the server cannot remove messages from a thread
│   ├── SteeringUnsupported       the server cannot inject messages into a run
│   └── AgentUnavailable          the server cannot be reached or answered 5xx
├── RunMoves                      the run was stopped, and another node continues it
└── DeliveryError                 a platform refused, or may have refused, a message
    ├── MessageTooLong            a text needs several messages; nothing was sent
    └── FileTooLarge              a file that a person sent is too large

The failure policy
==================
A stage or a step raises; the boundary around it acts. The boundaries are the turn (`bus.conversation.turn`),
the command (`bus.inbound.dispatcher`), the task of a conversation (`bus.outbound`) and the adapter (`bus.supervision`).
Each unwraps exception groups with `unwrapped`, so that every error arrives as itself.

error       | row               | turn              | conversation       | channel           | service
------------|-------------------|-------------------|--------------------|-------------------|------------------
StoreError  | as it was         | pauses, retries   | waits, then goes   | intake refuses: no | alive; health is
            |                   | with backoff;     | on                 | acknowledgement,   | degraded
            |                   | never dead for it |                    | so it redelivers   |
Delivery-   | retry, elsewhere, | not affected      | next row after     | pauses where the   | alive
Error       | uncertain or      |                   | the backoff        | platform says so   |
            | failed, by flags  |                   |                    |                    |
unknown     | sends: as an      | not affected:     | goes on            | restarted if it    | alive
exception   | ambiguous         | `decoration`      |                    | ends `run`         |
of an       | DeliveryError,    | drops it          |                    |                    |
adapter     | logged            |                   |                    |                    |
cancel-     | as it was; taken  | ended by its      | stops              | -                  | -
lation      | up at next start  | CancelReason      |                    |                    |
any other   | dead, with a      | failed            | the next message   | goes on            | alive
(a bug)     | visible message   |                   | works              |                    |

Degraded health is `store.database.Database.outage`: why the store fails, until it works again.

A decoration (indicator, growing message, notice, draft) never raises into a turn.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Literal, TypeAlias

from typing_extensions import override

from store.errors import RowConflict, RowNotFound
from store.errors import StoreError as StoreError  # noqa: PLC0414 - for adapters, which do not know the store

log = logging.getLogger(__name__)

PlaceGone: TypeAlias = Literal["", "thread", "chat"]


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


class AgentThreadBusy(RunError):
    """Another run holds this thread."""

    retryable = True


class AgentThreadNotFound(RunError):
    """The server does not know this thread any more."""


class RewindUnsupported(RunError):
    """The agent's server cannot remove messages from a thread."""


class SteeringUnsupported(RunError):
    """The agent's server cannot inject messages into a run."""


class AgentUnavailable(RunError):
    """The agent's server cannot be reached."""

    retryable = True


class RunMoves(BusError):
    """The run was stopped because its node stops: another node continues it."""


class DeliveryError(BusError):
    """A platform did not take a message.

    Attributes:
        retryable: Whether the same send may succeed later.
        retry_after_s: The platform's own word on when, in seconds.
        ambiguous: The message may have arrived (timeout, connection lost after the request was sent).
            Only an idempotent send, or one that was looked up, may then be repeated at once.
        target_gone: The message that was to be patched or replied to no longer exists or can no longer be changed.
        place_gone: The bot can no longer write there, and nothing was sent. `thread`: a topic, thread or message that
            was deleted or closed. `chat`: one that was archived or disbanded, or that the bot is not in. An answer
            goes elsewhere (bus/outbound/places.py).
        credentials_refused: The bot's token or secret is refused, whatever it sends; nothing arrived. Replies wait
            until it works again.
        user_message: Shown to the administrator in the outbox; no secrets, no stack.
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
    """A text for one message needs several. Nothing was sent; the worker sends the pieces, one by one.

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
    """Return the error of a (nested) exception group that decides what happens; any other error as it is.

    A cancellation or another exit comes before errors, a bug before errors that have a policy, and a `StoreError`
    before the rest: what has to be retried must not be taken for what was decided.

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
    """Return whether an error is one of the store that passes: the row is as it was, and the call is repeated.

    >>> is_store_outage(StoreError("full")), is_store_outage(RowNotFound("gone"))
    (True, False)
    """
    return isinstance(error, StoreError) and not isinstance(error, RowNotFound | RowConflict)


class _Unwrapped(AbstractContextManager[None]):
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
        # The group has this error. If the error had the group too, as its context or by a variable of a frame in its
        # traceback, both would stay until the oldest objects are looked at for garbage.
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
    """Raise, instead of an exception group, the one error that decides (see `unwrap`). For use at boundaries."""
    return _Unwrapped()


@contextmanager
def decoration(name: str) -> Iterator[None]:
    """Log and drop whatever goes wrong inside: `name` is nice to have, and never worth a turn.

    Cancellation passes.
    """
    try:
        yield
    except DeliveryError as error:
        log.info("%s skipped: %s", name, error.user_message)
    except Exception:
        log.exception("%s failed", name)
