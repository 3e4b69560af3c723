"""Runs a benchmark in the event loop of `parley serve`."""

from collections.abc import Awaitable, Callable

import anyio
from typing_extensions import TypeVar, TypeVarTuple, Unpack

from gateway.serving.event_loop import FairEventLoop

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")


def run_as_service(
    main: Callable[[Unpack[_Arguments]], Awaitable[_Result]], *args: *_Arguments
) -> _Result:
    """Run a coroutine function to its end, and return its result."""
    return anyio.run(main, *args, backend_options={"loop_factory": FairEventLoop})
