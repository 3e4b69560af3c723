"""The single error that leaves a task group."""

from contextlib import suppress

import anyio
import pytest

from bus.errors import DeliveryError, unwrapped
from store.errors import StoreError
from tests.garbage import garbage_made


async def fail(error: Exception) -> None:
    raise error


async def fail_together(*errors: Exception) -> None:
    with unwrapped():
        async with anyio.create_task_group() as tasks:
            for error in errors:
                tasks.start_soon(fail, error)


async def test_the_error_that_decides_is_raised_with_its_traceback_and_without_the_group() -> None:
    with pytest.raises(StoreError, match="full") as caught:
        await fail_together(DeliveryError("late"), StoreError("full"))
    assert caught.value.__context__ is None
    assert "fail" in [frame.name for frame in caught.traceback]


async def test_it_keeps_what_it_was_raised_from() -> None:
    async def retell() -> None:
        try:
            await fail(KeyError("first"))
        except KeyError as error:
            raise StoreError("full") from error

    with pytest.raises(StoreError, match="full") as caught, unwrapped():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(retell)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__context__ is caught.value.__cause__


async def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="plain"), unwrapped():
        raise ValueError("plain")


async def test_unwrapping_leaves_no_garbage() -> None:
    async def fill() -> None:
        raise StoreError("full")  # a variable that holds the error would leave garbage

    async def fill_beside() -> None:
        with unwrapped():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fill)

    with garbage_made() as garbage, suppress(StoreError):
        await fill_beside()
    assert [found for found in garbage if isinstance(found, BaseException)] == []
