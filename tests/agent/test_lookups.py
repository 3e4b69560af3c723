"""DNS lookups of names that others choose. The owner of the name server can make them hang."""

import asyncio
import threading
from contextlib import suppress
from typing import Any

import anyio

from agent.network.url_guard import MAX_LOOKUPS, resolve_host
from tests.eventually import WITHIN_S, eventually


async def test_lookups_that_hang_hold_up_neither_platforms_nor_models() -> None:
    began, may_end = list[str](), threading.Event()

    def hang(host: str, *_args: Any, **_options: Any) -> list[Any]:  # noqa: ANN401 - as socket.getaddrinfo
        began.append(host)
        may_end.wait(WITHIN_S)
        raise OSError

    async def look_up(number: int) -> None:
        with suppress(OSError):
            await resolve_host(f"{number}.example.org", 443, lookup=hang)

    try:
        async with anyio.create_task_group() as tasks:
            for number in range(4 * MAX_LOOKUPS):
                tasks.start_soon(look_up, number)
            await eventually(lambda: len(began) >= MAX_LOOKUPS)
            with anyio.fail_after(WITHIN_S / 2):  # each connection of the service does this
                assert await asyncio.get_running_loop().getaddrinfo("localhost", 80)
            assert len(began) == MAX_LOOKUPS
            tasks.cancel_scope.cancel()
    finally:
        may_end.set()


async def test_a_name_of_this_machine_is_looked_up() -> None:
    assert set(await resolve_host("localhost", 80)) & {"127.0.0.1", "::1"}
