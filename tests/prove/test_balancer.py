"""The load balancer uses the nodes in turn, and skips nodes that do not listen."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketStream

from tests.ports import free_port
from tests.prove.balancer import LoadBalancer


@asynccontextmanager
async def node(name: bytes) -> AsyncIterator[int]:
    """Run a server that answers each line with its name."""

    async def answer(client: SocketStream) -> None:
        async with client:
            async for line in client:
                await client.send(name + b" " + line)

    port = free_port()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        yield port
        tasks.cancel_scope.cancel()


async def ask(port: int) -> bytes:
    async with await anyio.connect_tcp("127.0.0.1", port) as client:
        await client.send(b"hello")
        return await client.receive()


async def test_connections_go_to_the_nodes_in_turn_and_pass_over_one_that_is_gone() -> None:
    port, gone = free_port(), free_port()
    async with node(b"a") as first, node(b"b") as second:
        async with LoadBalancer(port, [first, second]):
            assert {await ask(port) for _ in range(2)} == {b"a hello", b"b hello"}
        async with LoadBalancer(port, [gone, second]):
            assert {await ask(port) for _ in range(3)} == {b"b hello"}
