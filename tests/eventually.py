"""Waits for a condition that has no event: `eventually` polls until it holds, or fails with the last value.

To check that a call does *not* return, use `is_waiting`, which takes no time.
"""

import ast
import inspect
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, overload

import anyio

T = TypeVar("T")

WITHIN_S = 60.0
"""Generous, because a busy machine is slow. The wait ends as soon as the condition holds."""

LONGEST_PAUSE_S = 0.05
"""Longest pause between probes of a slow condition, seconds. Probing takes CPU time from the work it waits for."""

_SHOWN_CHARS = 2_000
_TRANSPARENT = frozenset(
    {"all", "any", "bool", "len", "list", "next", "set", "sorted", "str", "sum"}
)


@overload
async def eventually(
    probe: Callable[[], Awaitable[T]],
    holds: Callable[[T], object] = ...,
    *,
    within_s: float = ...,
    every_s: float | None = ...,
) -> T: ...


@overload
async def eventually(
    probe: Callable[[], T],
    holds: Callable[[T], object] = ...,
    *,
    within_s: float = ...,
    every_s: float | None = ...,
) -> T: ...


async def eventually(
    probe: Callable[[], Any],
    holds: Callable[[Any], object] = bool,
    *,
    within_s: float = WITHIN_S,
    every_s: float | None = None,
) -> Any:
    """Call `probe`, which may be async, until `holds` is true of its result; return the result.

    If the probe raises AssertionError, the condition does not hold yet. The next call is `every_s` seconds later, so a
    condition that holds only for a moment may be missed. None = a tenth of the time waited so far, at least 0.01 and at
    most `LONGEST_PAUSE_S`.

    Raises:
        AssertionError: `within_s` seconds have passed. The message has the probe's last result and,
            for a lambda, the values of the expressions it compares.
    """
    seen: object = "nothing: the first call of the probe did not return"
    began_at = anyio.current_time()
    with anyio.move_on_after(within_s):
        while True:
            try:
                result = probe()
                if inspect.isawaitable(result):
                    result = await result
                seen = result
                if holds(result):
                    return result
            except AssertionError as error:
                seen = error
            waited_s = anyio.current_time() - began_at
            pause_s = min(max(waited_s / 10, 0.01), LONGEST_PAUSE_S)
            await anyio.sleep(pause_s if every_s is None else every_s)
    values = "".join(f"\n  {line}" for line in _compared_values(probe))
    raise AssertionError(f"not within {within_s:g} s; last seen: {_shown(seen)}{values}")


async def is_waiting(call: Callable[[], Awaitable[object]]) -> bool:
    """Return whether a call waits: it has not returned, and no task of the event loop can continue. Cancel it
    afterwards.

    For calls that wait for a timer or another task. A call that waits for a thread or a socket may be about to
    continue.
    """
    has_returned = False

    async def run() -> None:
        nonlocal has_returned
        await call()
        has_returned = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    return not has_returned


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)"


def _compared_values(probe: Callable[[], Any]) -> Iterator[str]:
    """Yield "expression = value" for the parts of a lambda's condition."""
    code = getattr(probe, "__code__", None)
    if code is None or code.co_name != "<lambda>":
        return
    names = {**probe.__globals__, **inspect.getclosurevars(probe).nonlocals}
    for node in ast.walk(ast.parse(Path(code.co_filename).read_text("utf-8"))):
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno:
            for part in _parts(node.body):
                expression = ast.unparse(part)
                try:
                    value = eval(expression, names)  # noqa: S307 - the test's own source
                except Exception as error:  # noqa: BLE001 - only a description of a failure
                    value = error
                if inspect.iscoroutine(value):
                    value.close()  # it is never awaited
                yield f"{expression} = {_shown(value)}"


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Constant() | ast.Await():
            return
        case ast.Compare(left=left, comparators=others):
            inner = [left, *others]
        case ast.BoolOp(values=inner):
            pass
        case ast.UnaryOp(operand=operand):
            inner = [operand]
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in _TRANSPARENT:
            inner = [first]
        case ast.GeneratorExp(generators=[first, *_]) | ast.ListComp(generators=[first, *_]):
            inner = [first.iter]
        case _:
            yield node
            return
    for part in inner:
        yield from _parts(part)
