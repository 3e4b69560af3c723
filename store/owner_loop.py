"""OwnerLoop: the event loop that owns an object; worker threads and other event loops call the object through it."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class OwnerLoop:
    """The event loop that creates this object.

    Graphs call stores from worker threads (a synchronous step or tool), and from other event loops (`asyncio.run` in
    such a thread). The call runs in the caller's context.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def is_current(self) -> bool:
        """Return whether the caller runs in this event loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call in this event loop and block until it has ended. Raises RuntimeError in the event loop itself."""
        if self.is_current():
            call.close()
            raise RuntimeError(
                "A synchronous call would block the event loop. In asynchronous code, call graphs and stores"
                " with their asynchronous methods (ainvoke, aget, aput ...)."
            )
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    async def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call in this event loop and wait for it. May be called from any event loop."""
        if self.is_current():
            return await call
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))


class OwnedObject(Protocol):
    """An object that belongs to an event loop."""

    @property
    def owner(self) -> OwnerLoop:
        """The event loop."""
        ...


OwnedT = TypeVar("OwnedT", bound=OwnedObject)


def in_owner_loop(
    method: Callable[Concatenate[OwnedT, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[OwnedT, P], Coroutine[Any, Any, T]]:
    """Make an asynchronous method run in the event loop that owns its object."""

    @wraps(method)
    async def call(owned: OwnedT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await owned.owner.run(method(owned, *args, **kwargs))

    return call
